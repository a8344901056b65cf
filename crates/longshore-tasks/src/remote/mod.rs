//! Tasks that make no resource (`core-sleep`, those of connectors): each round is one step of their plugin.
//!
//! What is decided upon a step is in [`decide`](crate::decide); here is what a step is taken from. `own_states` keeps
//! which states this process has written, [`connectors`] says what can be asked, `over_grpc` asks those of the
//! configuration, and `rooms` has those wait for whom a quota has no room.

pub mod connectors;
mod grpc;
mod over_grpc;
mod own_states;
mod rate_limit;
mod rooms;
mod step;

pub use connectors::{AskConnectors, ConnectorError, NoConnectors};
pub use grpc::GrpcError;
pub use over_grpc::GrpcConnectors;
pub(crate) use own_states::OwnStates;
pub(crate) use rooms::Rooms;
