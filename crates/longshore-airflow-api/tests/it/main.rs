//! The service over a memory: recorded exchanges, tokens, fences, limits, XComs, versions.

#![cfg(test)]

mod fences;
mod limits;
mod memory;
mod recorded;
mod routes;
mod tokens;
mod xcoms;

use std::sync::{Arc, Mutex};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use longshore_airflow::{
    api::{HEADER_REFRESHED_TOKEN, HEADER_VERSION},
    token::{SigningKey, TokenRules, TokenScope, Tokens},
};
use longshore_airflow_api::{ApiConfig, Measures, router};
use longshore_kit::Clock;
use serde_json::Value;
use tower::ServiceExt;
use uuid::Uuid;

use memory::{DAG, Memory, RUN, Row};

const SECRET: &str = "5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f";
const VALIDITY: SignedDuration = SignedDuration::from_mins(10);

/// A clock that stands still until it is set forward.
#[derive(Debug)]
struct TestClock(Mutex<Timestamp>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// A service, and what it answers from.
struct World {
    memory: Arc<Memory>,
    clock: Arc<TestClock>,
    tokens: Arc<Tokens>,
    router: Router,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Answered {
    status: u16,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Answered {
    /// The body; null where there is none.
    fn json(&self) -> Value {
        if self.bytes.is_empty() {
            return Value::Null;
        }
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json");
        serde_json::from_slice(&self.bytes).unwrap()
    }

    fn reason(&self) -> Value {
        self.json()["detail"]["reason"].clone()
    }

    /// The token that the worker uses from now on.
    fn token(&self) -> Option<&str> {
        Some(self.headers.get(HEADER_REFRESHED_TOKEN)?.to_str().unwrap())
    }
}

fn tokens(secret: &str) -> Tokens {
    Tokens::new(
        SigningKey::secret(secret, None).unwrap(),
        TokenRules::default(),
    )
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ApiConfig)) -> Self {
        let memory = Arc::new(Memory::default());
        let now = "2026-11-21T00:30:00Z".parse().unwrap();
        let clock = Arc::new(TestClock(Mutex::new(now)));
        let tokens = Arc::new(tokens(SECRET));
        let mut config = ApiConfig::new(Arc::clone(&tokens));
        change(&mut config);
        let service = router(memory.clone(), clock.clone(), config, &Measures::default());
        Self {
            memory,
            clock,
            tokens,
            router: Router::new().nest("/execution", service),
        }
    }

    fn wait(&self, seconds: i64) {
        let mut now = self.clock.0.lock().unwrap();
        *now += SignedDuration::from_secs(seconds);
    }

    fn token(&self, id: Uuid, scope: TokenScope) -> String {
        let validity = VALIDITY.try_into().unwrap();
        let now = self.clock.now();
        let token = self.tokens.issue(id, scope, validity, now, [7; 16]);
        token.unwrap()
    }

    /// A task instance that runs, and the token of its execution.
    fn running(&self, task_id: &str) -> (Uuid, String) {
        let id = self.memory.add(Row::running(task_id));
        (id, self.token(id, TokenScope::Execution))
    }

    /// Sends a request to a path below `/execution`, with a token unless it is empty.
    async fn ask(&self, token: &str, method: &str, path: &str, body: impl Into<Body>) -> Answered {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/execution{path}"));
        if !token.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert!(response.headers().contains_key(HEADER_VERSION));
        let (head, body) = response.into_parts();
        Answered {
            status: head.status.as_u16(),
            headers: head.headers,
            bytes: body.collect().await.unwrap().to_bytes(),
        }
    }
}

/// The path of an XCom of this run.
fn xcom(task_id: &str, key: &str) -> String {
    format!("/xcoms/{DAG}/{RUN}/{task_id}/{key}")
}
