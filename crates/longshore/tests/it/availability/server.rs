//! The server in the pods: this very program, started again. It knows nothing of drains: a signal kills it with all
//! requests that are under way.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::load::ask;

/// Where it listens, in a pod.
const ADDRESS: &str = "LONGSHORE_TEST_SERVE_ADDRESS";
/// The port of every pod: each has an address of its own.
pub(super) const PORT: u16 = 8080;
/// How long a request takes: with this load some are under way at any time.
const WORK: Duration = Duration::from_millis(30);
/// The test below.
const NAME: &str = "availability::server::the_server_answers_until_it_is_killed";

/// The container that runs it.
pub(super) fn container() -> Value {
    let program = std::env::current_exe().unwrap();
    json!({
        "name": "server",
        "image": "host",
        "command": [program, "--exact", NAME, "--nocapture"],
        "env": [{"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
    })
}

async fn serve(listener: TcpListener) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    }
}

/// Serves one request for each connection. A client that disconnects early gets no answer.
async fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read_buf(&mut request).await, Ok(n) if n > 0) {
            return;
        }
    }
    tokio::time::sleep(WORK).await;
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let _ = stream.write_all(response).await;
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn the_server_answers_until_it_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "a pod is told its address so")]
    if let Ok(address) = std::env::var(ADDRESS) {
        let address: SocketAddr = format!("{address}:{PORT}").parse().unwrap();
        serve(TcpListener::bind(address).await.unwrap()).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener));
    ask(address).await.unwrap();
    serving.abort();
    let _ = serving.await;
    assert!(ask(address).await.is_err());
}
