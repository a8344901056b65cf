//! Tasks that make no resource (`core-sleep`, those of connectors): each round is one step of their plugin.
//!
//! What is decided upon a step is in [`decide`](crate::decide); here is what a step is taken from. `exchange` keeps what
//! this process asked and was answered, `questions` asks beside the rounds, [`connectors`] says what can be asked, and
//! `over_grpc` asks those of the configuration.

pub mod connectors;
mod exchange;
mod grpc;
mod over_grpc;
mod questions;
mod rate_limit;
mod step;

pub use connectors::{AskConnectors, ConnectorError, NoConnectors};
pub(crate) use exchange::Exchanges;
pub use grpc::GrpcError;
pub use over_grpc::GrpcConnectors;
pub(crate) use questions::Questions;
