//! The client with which the programs of Longshore call an API server.

mod connections;
mod http2;

pub use longshore_outbound::Permit;

pub use http2::{Requests, UnusableConfig, client_builder};
