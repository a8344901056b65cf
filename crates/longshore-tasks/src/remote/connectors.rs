//! The interface of the clients of connectors.

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use longshore_connect::Code;
use longshore_plugins::{Addressee, Answer, Call, Category, Listed};

/// A client of connectors.
#[async_trait]
pub trait AskConnectors: std::fmt::Debug + Send + Sync + 'static {
    /// Keeps the list of the task types of each connector up to date, for as long as it is polled.
    async fn follow(&self) {}

    /// The connectors that have to list their task types before it is known which one this is for, in words; `None` where
    /// that is known, and where no connector takes it.
    fn awaits(&self, _: &Addressee) -> Option<String> {
        None
    }

    /// The foreign system that answers what is asked of this one, by the lists of now: its questions share the limits of one
    /// host. Unless said otherwise, each task type has one of its own.
    fn host(&self, to: &Addressee) -> String {
        to.category.task_type.clone()
    }

    /// Whether a connector takes tasks of this category by its list, or because the configuration names it for their type.
    fn lists(&self, _: &Category) -> Listed {
        Listed::No
    }

    /// An item each time the list of a connector has changed, from now on. What [`awaits`](Self::awaits) and
    /// [`lists`](Self::lists) return may be another one then.
    fn changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }

    /// Sends a request to the connector that this call is for. Waits until it is known which one that is.
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
    /// It answered CreateTask with more than what is read.
    #[error("CreateTask was answered with more than {most} bytes")]
    TooLarge {
        /// So much is read.
        most: usize,
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
