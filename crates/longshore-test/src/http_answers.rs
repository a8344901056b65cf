//! Somebody who answers JSON over HTTP: what rules and hooks ask.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

/// A server of a loopback port. Dropping it stops it.
#[derive(Debug)]
pub struct HttpAnswers {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

type Answer = dyn Fn(&Value) -> (u16, Value) + Send + Sync;

impl HttpAnswers {
    /// Starts it: `answer` makes a status and a body of each question.
    ///
    /// # Errors
    /// The system gives no port.
    pub async fn start(
        answer: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let answer: Arc<Answer> = Arc::new(answer);
        let noted = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Incoming>| {
            let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
            async move { Ok::<_, Infallible>(serve(request, &noted, &*answer).await) }
        });
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let connection = http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service.clone());
                        connections.spawn(connection);
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            asked,
            task,
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Value> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HttpAnswers {
    /// Stops it; nobody is reached there any more once this returns.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for HttpAnswers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    request: Request<Incoming>,
    asked: &Mutex<Vec<Value>>,
    answer: &Answer,
) -> Response<Full<Bytes>> {
    let asked_for = json!({request.method().as_str(): request.uri().to_string()});
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    // What has no body says what it asks for in its address.
    let question = serde_json::from_slice(&body).unwrap_or(asked_for);
    let (status, body) = answer(&question);
    let mut noted = asked.lock().unwrap_or_else(PoisonError::into_inner);
    noted.push(question);
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
}
