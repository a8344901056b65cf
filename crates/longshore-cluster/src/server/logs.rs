//! The interface between the API server and the source of the logs of pods.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;

/// The options of a request for a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Name of the container; `None` when the pod has only one and the client did not say.
    pub container: Option<String>,
    /// Keep the answer open and send what is written later.
    pub follow: bool,
    /// The log of the container's previous attempt.
    pub previous: bool,
    /// Only lines written in the last so many seconds.
    pub since_seconds: Option<i64>,
    /// Only lines written at or after this instant.
    pub since_time: Option<Timestamp>,
    /// Only the last so many lines.
    pub tail_lines: Option<i64>,
    /// Put the instant of writing in front of every line.
    pub timestamps: bool,
    /// End after so many bytes.
    pub limit_bytes: Option<i64>,
}

/// Pieces of a log, in order; an error ends it.
pub type LogStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Why there is no log to send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The request cannot be served as it is: unknown container, or a container that has not
    /// started (HTTP 400).
    #[error("{0}")]
    BadRequest(String),
    /// The log does not exist (any more) (HTTP 404).
    #[error("{0}")]
    NotFound(String),
    /// The node does not answer now (HTTP 503).
    #[error("{0}")]
    Unavailable(String),
}

/// A source of the logs of pods, for `pods/log`.
#[async_trait]
pub trait PodLogs: Send + Sync {
    /// Opens a log. `pod` is the whole pod object as stored.
    async fn logs(&self, pod: &Value, options: LogOptions) -> Result<LogStream, LogError>;
}
