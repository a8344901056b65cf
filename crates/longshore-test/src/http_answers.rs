//! A server that answers JSON over HTTP, in the place of the webhooks of rules and of hooks.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::foreign_server::{Answer, Conduct, ForeignServer, Received};

/// A server of a loopback port. Dropping it stops it.
#[derive(Debug)]
pub struct HttpAnswers {
    server: ForeignServer,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl HttpAnswers {
    /// Starts it: `answer` makes a status and a body of each question.
    ///
    /// # Errors
    /// The operating system assigns no port.
    pub async fn start(
        answer: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let noted = Arc::clone(&asked);
        let server = ForeignServer::start(move |received| {
            let question = question(received);
            let (status, body) = answer(&question);
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push(question);
            Conduct::Answers(Answer {
                status: StatusCode::from_u16(status).unwrap_or_default(),
                body: Bytes::from(body.to_string()),
                ..Answer::default()
            })
        });
        let server = server.await?;
        Ok(Self { server, asked })
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Value> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops it. Once this returns, no client can connect.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

/// The body of a request; for a request without a body, its method and path.
fn question(received: &Received) -> Value {
    let Received {
        method, path, body, ..
    } = received;
    serde_json::from_slice(body).unwrap_or_else(|_| json!({method.as_str(): path}))
}
