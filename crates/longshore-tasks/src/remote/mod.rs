//! Tasks that make no resource (`core-sleep`, those of connectors): each round is one step of their plugin.
//!
//! What is decided upon a step is in [`decide`](crate::decide); `step` takes it from what was read. `own_states` keeps
//! which states this process has written, [`connectors`] says what connectors can be asked, `over_grpc` sends requests to
//! those of the configuration, and `quota` has the slots that limit how many jobs run at the same time.

pub mod connectors;
mod grpc;
mod over_grpc;
mod own_states;
mod quota;
mod step;

pub use connectors::{AskConnectors, ConnectorError, NoConnectors};
pub use grpc::GrpcError;
pub use over_grpc::GrpcConnectors;
pub(crate) use own_states::OwnStates;
pub(crate) use quota::{Slot, Slots};
pub(crate) use step::{assemble, stored};
