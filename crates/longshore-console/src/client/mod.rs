//! The client that the commands use: requests and answers as objects, streams as they come.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::redirect::Policy;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    control::{LogQuery, Until},
    names::{RunName, TaskName},
    objects::{Clear, Dag, DagPatch, ImportError, List, Pool, PoolSize, Run, Task, Trigger},
    problem::Problem,
    token::Token,
};

mod changes;
mod file;
mod log;
mod sse;

pub use changes::{Changes, Followed};
pub use file::{ClientFile, FileError};
pub use log::{LogPiece, LogReader};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// From a request to the end of its answer, where that is no stream. Longer than the service's own limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// No answer that is no stream is larger.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// What stays as it is in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is no `http://HOST:PORT`.
    #[error("expected the address of a service, as http://127.0.0.1:7080, found {0:?}")]
    Address(String),
    /// No server answers there.
    #[error("the service at {server} does not answer")]
    Unreachable {
        /// The address of the service.
        server: String,
        /// The network's own words.
        source: Box<reqwest::Error>,
    },
    /// The service ended a stream: it stops, or it has ended.
    #[error("the service at {0} closed the connection")]
    Closed(String),
    /// The server there does not answer as a Longshore service does.
    #[error("the answer of {server} is not that of a Longshore service: {what}")]
    Foreign {
        /// The address of the server.
        server: String,
        /// What is odd.
        what: String,
    },
    /// The service refuses.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
}

/// A connection to a service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// `http://127.0.0.1:7080`, without a slash at the end.
    server: String,
    token: Option<Token>,
}

/// A log as it comes.
pub type Log = Pin<Box<dyn Stream<Item = Result<Bytes, ClientError>> + Send>>;

impl Client {
    /// A client of the service at this address. The network is not touched before the first request.
    ///
    /// No proxy is used and no redirect followed: the token goes to this address and nowhere else.
    pub fn new(server: &str, token: Option<Token>) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| unreachable(server, source))?;
        Ok(Self {
            http,
            server: normal_address(server)?,
            token,
        })
    }

    /// The address of the service.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether requests show a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// All DAGs.
    pub async fn dags(&self) -> Result<List<Dag>, ClientError> {
        self.get("/dags", &[]).await
    }

    /// The files that could not be read as DAGs.
    pub async fn import_errors(&self) -> Result<List<ImportError>, ClientError> {
        self.get("/importErrors", &[]).await
    }

    /// One DAG.
    pub async fn dag(&self, dag_id: &str) -> Result<Dag, ClientError> {
        self.get(&dag_path(dag_id), &[]).await
    }

    /// Changes a DAG.
    pub async fn patch_dag(&self, dag_id: &str, patch: &DagPatch) -> Result<Dag, ClientError> {
        self.send(Method::PATCH, &dag_path(dag_id), patch).await
    }

    /// Creates a run.
    pub async fn trigger(&self, dag_id: &str, trigger: &Trigger) -> Result<Run, ClientError> {
        let path = format!("{}/runs", dag_path(dag_id));
        self.send(Method::POST, &path, trigger).await
    }

    /// A page of runs; the parameters are those of `GET /runs`.
    pub async fn runs(&self, query: &[(&str, String)]) -> Result<List<Run>, ClientError> {
        self.get("/runs", query).await
    }

    /// One run.
    pub async fn run(&self, run: &RunName) -> Result<Run, ClientError> {
        self.get(&run_path(run), &[]).await
    }

    /// Requests the end of a run.
    pub async fn cancel(&self, run: &RunName) -> Result<Run, ClientError> {
        let path = format!("{}/cancel", run_path(run));
        self.send(Method::POST, &path, &()).await
    }

    /// Clears what did not get done in a run that is over.
    pub async fn retry(&self, run: &RunName) -> Result<List<Task>, ClientError> {
        let path = format!("{}/retry", run_path(run));
        self.send(Method::POST, &path, &()).await
    }

    /// The tasks of a run, in one of these states where any are given.
    pub async fn tasks(&self, run: &RunName, states: &str) -> Result<List<Task>, ClientError> {
        let path = format!("{}/tasks", run_path(run));
        self.get(&path, &[("state", states.to_owned())]).await
    }

    /// One task with its tries.
    pub async fn task(&self, task: &TaskName) -> Result<Task, ClientError> {
        self.get(&task_path(task), &map_index(task)).await
    }

    /// Lets a task run again.
    pub async fn clear(&self, task: &TaskName, clear: &Clear) -> Result<List<Task>, ClientError> {
        let index = task.map_index;
        let path = format!("{}/clear?mapIndex={index}", task_path(task));
        self.send(Method::POST, &path, clear).await
    }

    /// The pools.
    pub async fn pools(&self) -> Result<List<Pool>, ClientError> {
        self.get("/pools", &[]).await
    }

    /// Creates or changes a pool.
    pub async fn set_pool(&self, name: &str, size: &PoolSize) -> Result<Pool, ClientError> {
        self.send(Method::PUT, &pool_path(name), size).await
    }

    /// Deletes a pool, and returns what it was.
    pub async fn delete_pool(&self, name: &str) -> Result<Pool, ClientError> {
        self.send(Method::DELETE, &pool_path(name), &()).await
    }

    /// Reads a log.
    pub async fn logs(&self, task: &TaskName, query: LogQuery) -> Result<Log, ClientError> {
        let mut params = map_index(task);
        params.extend(query.attempt.map(|n| ("attempt", n.to_string())));
        params.extend(query.tail.map(|n| ("tail", n.to_string())));
        if query.until == Until::End {
            params.push(("follow", true.to_string()));
        }
        let path = format!("{}/logs", task_path(task));
        let request = self.request(Method::GET, &path).query(&params);
        let response = self.answer(request).await?;
        let server = self.server.clone();
        let chunks = response.bytes_stream();
        Ok(Box::pin(chunks.map(move |chunk| {
            chunk.map_err(|source| unreachable(&server, source))
        })))
    }

    /// Reads a log like [`logs`](Self::logs); one that is followed, over disconnections and restarts of the service. The
    /// query should name the try: a later connection may find a later one.
    pub async fn read_log(
        &self,
        task: &TaskName,
        query: LogQuery,
    ) -> Result<LogReader, ClientError> {
        LogReader::open(self.clone(), task.clone(), query).await
    }

    /// Follows the state changes of a run, over disconnections and restarts of the service.
    pub fn changes(&self, run: &RunName) -> Changes {
        Changes::new(self.clone(), run.clone())
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}/api/v1{path}", self.server));
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, token.header()),
            None => request,
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, ClientError> {
        let request = self.request(Method::GET, path).query(query);
        self.object(request).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, ClientError> {
        // `()` is the absence of a body: `null` would be one.
        let body = serde_json::to_vec(body).map_err(|why| self.foreign(why))?;
        let request = self.request(method, path);
        let request = if body == b"null" {
            request
        } else {
            request
                .header(header::CONTENT_TYPE, "application/json")
                .body(body)
        };
        self.object(request).await
    }

    async fn object<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<T, ClientError> {
        let response = self.answer(request.timeout(ANSWER_TIMEOUT)).await?;
        let body = self.body(response).await?;
        serde_json::from_slice(&body).map_err(|why| self.foreign(why))
    }

    /// The answer, if it is a good one.
    async fn answer(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, ClientError> {
        let response = request.send().await;
        let response = response.map_err(|source| unreachable(&self.server, source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response).await?;
        match serde_json::from_slice(&body) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(_) => Err(self.foreign(format_args!("status {status} without our reason"))),
        }
    }

    async fn body(&self, response: reqwest::Response) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            body.extend(chunk.map_err(|source| unreachable(&self.server, source))?);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(self.foreign("it has no end"));
            }
        }
        Ok(body)
    }

    fn foreign(&self, what: impl ToString) -> ClientError {
        ClientError::Foreign {
            server: self.server.clone(),
            what: what.to_string(),
        }
    }
}

impl ClientError {
    /// Whether the same request may succeed later: no server answers, or the service is starting or stopping.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Closed(_) => true,
            Self::Refused(problem) => problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            Self::Address(_) | Self::Foreign { .. } => false,
        }
    }
}

fn unreachable(server: &str, source: reqwest::Error) -> ClientError {
    ClientError::Unreachable {
        server: server.to_owned(),
        // The address is in the message already.
        source: Box::new(source.without_url()),
    }
}

/// `127.0.0.1:7080` and `http://127.0.0.1:7080/` are the same.
pub fn normal_address(text: &str) -> Result<String, ClientError> {
    let wrong = || ClientError::Address(text.to_owned());
    let trimmed = text.trim().trim_end_matches('/');
    let address = if trimmed.contains("://") {
        trimmed.to_owned()
    } else {
        format!("http://{trimmed}")
    };
    let uri: http::Uri = address.parse().map_err(|_| wrong())?;
    let is_plain = matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none()
        && uri
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
    is_plain.then_some(address).ok_or_else(wrong)
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

fn dag_path(dag_id: &str) -> String {
    format!("/dags/{}", segment(dag_id))
}

fn pool_path(name: &str) -> String {
    format!("/pools/{}", segment(name))
}

fn run_path(run: &RunName) -> String {
    format!("{}/runs/{}", dag_path(&run.dag_id), segment(&run.run_id))
}

fn task_path(task: &TaskName) -> String {
    format!("{}/tasks/{}", run_path(&task.run), segment(&task.task_id))
}

fn map_index(task: &TaskName) -> Vec<(&'static str, String)> {
    vec![("mapIndex", task.map_index.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_short_and_nothing_else_than_an_address() {
        for (text, expected) in [
            ("127.0.0.1:7080", Some("http://127.0.0.1:7080")),
            ("http://localhost:7080/", Some("http://localhost:7080")),
            (
                "https://longshore.internal",
                Some("https://longshore.internal"),
            ),
            ("[::1]:7080", Some("http://[::1]:7080")),
            ("", None),
            ("ftp://localhost", None),
            ("http://user:password@localhost", None),
            ("http://localhost/x", None),
            ("http://localhost?x", None),
        ] {
            let found = normal_address(text);
            assert_eq!(found.ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_become_one_segment_each() {
        let task: TaskName = "e t/manual__2026-11-21T10:00:00+00:00/a%2F?#"
            .parse()
            .unwrap();
        assert_eq!(
            task_path(&task),
            "/dags/e%20t/runs/manual__2026-11-21T10%3A00%3A00%2B00%3A00/tasks/a%252F%3F%23"
        );
    }
}
