//! Tasks that make no resource (`core-sleep`, those of connectors): each round is one step of their plugin.
//!
//! What is decided upon a step is in [`decide`](crate::decide); here is what a step is taken from. `exchange` keeps what
//! this process asked and was answered, `questions` asks beside the rounds, [`connectors`] says what can be asked,
//! `over_grpc` asks those of the configuration, and `rooms` has those wait for whom a quota has no room.

pub mod connectors;
mod exchange;
mod grpc;
mod over_grpc;
mod questions;
mod rate_limit;
mod rooms;
mod step;

pub use connectors::{AskConnectors, ConnectorError, NoConnectors};
pub(crate) use exchange::Exchanges;
pub use grpc::GrpcError;
pub use over_grpc::GrpcConnectors;
pub(crate) use questions::Questions;
pub(crate) use rooms::Rooms;
