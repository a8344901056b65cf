//! The API as its clients meet it: over loopback, with a service that is a table in memory.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod api;
mod client;
mod fake;
mod hostile;

use std::sync::Arc;

use longshore_console::{Access, Hosts, Token, client::Client, router, serve::serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use fake::Fake;

const TOKEN: &str = "secret-of-the-test";

/// A service on loopback, until it is dropped.
struct Service {
    fake: Arc<Fake>,
    address: String,
    stopping: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Service {
    async fn start() -> Self {
        Self::with(Arc::new(Fake::default()), "127.0.0.1:0").await
    }

    async fn with(fake: Arc<Fake>, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stopping = CancellationToken::new();
        let access = Access {
            token: Token::new(TOKEN),
            hosts: Hosts::Known(Vec::new()),
        };
        let router = router(fake.clone(), access, stopping.clone());
        let served = tokio::spawn(serve(listener, router, stopping.clone()));
        Self {
            fake,
            address,
            stopping,
            served,
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.address, Some(Token::new(TOKEN))).unwrap()
    }

    async fn stop(self) -> (Arc<Fake>, String) {
        self.stopping.cancel();
        self.served.await.unwrap();
        (self.fake, self.address)
    }
}
