//! Tasks that make no resource (`core-sleep`, those of connectors): each round is one step of their plugin.
//!
//! What is decided upon a step is in [`decide`](crate::decide); here is what a step is taken from. `exchange` keeps what
//! this process asked and was answered, [`connectors`] asks.

pub mod connectors;
mod exchange;
mod step;

pub use connectors::{AskConnectors, ConnectorError, NoConnectors};
pub(crate) use exchange::Exchanges;
