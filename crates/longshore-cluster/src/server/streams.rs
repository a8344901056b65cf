//! The interface between the API server and whoever runs the pods: processes and connections inside of pods.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::{ApiError, Result as Answer};

/// Streams that one pod may have open at the same time: commands, attachments, forwarded connections, proxied requests.
const STREAMS_PER_POD: usize = 256;

/// Which streams of a process a client wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamSet {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; of no meaning with a terminal.
    pub stderr: bool,
    /// A terminal instead of pipes.
    pub tty: bool,
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// A process that a client talks to. Dropping it ends a command, and lets go of a container.
pub struct Process {
    /// Standard input; dropping it is its end.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Tells a terminal its size.
    pub resize: Option<Box<dyn Fn(TerminalSize) + Send + Sync>>,
    /// Waits for the end: the exit code of a command, or why there is none.
    pub exit: BoxFuture<'static, io::Result<i32>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// Both directions of a connection to a port of a pod.
pub trait PodDuplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> PodDuplex for S {}

/// A connection to a port of a pod.
pub type PodConnection = Box<dyn PodDuplex>;

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The request cannot be served as it is: the container does not run (HTTP 400).
    #[error("{0}")]
    BadRequest(String),
    /// The pod is not there (any more) (HTTP 404).
    #[error("{0}")]
    NotFound(String),
    /// The node cannot do it (HTTP 500).
    #[error("{0}")]
    Internal(String),
    /// Nothing answers in the pod (HTTP 503).
    #[error("{0}")]
    Unavailable(String),
}

impl From<StreamError> for ApiError {
    fn from(error: StreamError) -> ApiError {
        match error {
            StreamError::BadRequest(message) => ApiError::bad_request(message),
            StreamError::NotFound(message) => ApiError::missing(message),
            StreamError::Internal(message) => ApiError::internal(message),
            StreamError::Unavailable(message) => ApiError::unavailable(message),
        }
    }
}

/// A way into pods, for `exec`, `attach`, `portforward` and `proxy`. `pod` is the whole pod object as stored.
#[async_trait]
pub trait PodStreams: Send + Sync {
    /// Whether a process could be started in the container now.
    async fn check(&self, pod: &Value, container: &str) -> Result<(), StreamError>;

    /// Starts a command beside the program of a container.
    async fn exec(
        &self,
        pod: &Value,
        container: &str,
        command: Vec<String>,
        streams: StreamSet,
    ) -> Result<Process, StreamError>;

    /// Joins the program of a container.
    async fn attach(
        &self,
        pod: &Value,
        container: &str,
        streams: StreamSet,
    ) -> Result<Process, StreamError>;

    /// Connects to a port, as a process of the pod would.
    async fn connect(&self, pod: &Value, port: u16) -> Result<PodConnection, StreamError>;
}

/// Counts the open streams of each pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<Mutex<BTreeMap<String, usize>>>);

impl Places {
    /// A place among the streams of a pod.
    ///
    /// # Errors
    /// All of them are taken.
    pub(crate) fn take(&self, uid: &str, name: &str) -> Answer<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.entry(uid.to_owned()).or_default();
        if *n >= STREAMS_PER_POD {
            return Err(ApiError::too_many_streams(name, STREAMS_PER_POD));
        }
        *n += 1;
        Ok(Place {
            places: self.clone(),
            uid: uid.to_owned(),
        })
    }
}

/// One open stream of a pod.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    uid: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = &self.places.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = taken.get_mut(&self.uid) {
            *n -= 1;
            if *n == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_limited_number_of_streams_and_another_pod_its_own() {
        let places = Places::default();
        let mut taken: Vec<Place> = (0..STREAMS_PER_POD)
            .map(|_| places.take("u1", "a").unwrap())
            .collect();
        let refused = places.take("u1", "a").unwrap_err();
        assert_eq!(refused.code, 429);
        assert!(refused.message.contains("256"), "{}", refused.message);
        assert!(places.take("u2", "b").is_ok());
        taken.pop();
        assert!(places.take("u1", "a").is_ok());
        taken.clear();
        assert!(places.0.lock().unwrap().is_empty());
    }
}
