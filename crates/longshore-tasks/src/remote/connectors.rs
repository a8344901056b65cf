//! The interface of the clients of connectors.

use async_trait::async_trait;
use longshore_connect::Code;
use longshore_plugins::{Answer, Call, Category};

/// A client of connectors.
#[async_trait]
pub trait AskConnectors: std::fmt::Debug + Send + Sync + 'static {
    /// Keeps the list of the task types of each connector up to date, for as long as it is polled. Without that list, no
    /// request is sent.
    async fn follow(&self) {}

    /// Sends a request to the connector that takes the category of this call.
    ///
    /// # Errors
    /// There is no such connector, it did not answer, or it refused. Whether the request took effect is not known.
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError>;
}

/// A connector that did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// No connector takes such tasks.
    #[error("{0}")]
    NoConnector(String),
    /// It did not answer.
    #[error("{operation} of connector {connector} got no answer: {why}")]
    NoAnswer {
        /// Its name.
        connector: String,
        /// As `CreateTask`.
        operation: &'static str,
        /// Why.
        why: String,
    },
    /// It refused.
    #[error("{operation} of connector {connector} failed with gRPC status {code}: {message}")]
    Refused {
        /// Its name.
        connector: String,
        /// As `CreateTask`.
        operation: &'static str,
        /// `grpc-status`.
        code: Code,
        /// `grpc-message`.
        message: String,
    },
}

/// There are no connectors.
#[derive(Clone, Copy, Debug)]
pub struct NoConnectors;

#[async_trait]
impl AskConnectors for NoConnectors {
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let Category {
            task_type, version, ..
        } = &call.category;
        Err(ConnectorError::NoConnector(format!(
            "no connector takes task type {task_type:?} in version {version}: none is configured"
        )))
    }
}
