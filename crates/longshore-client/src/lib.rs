//! How the programs of Longshore reach an API server.

mod http2;

pub use http2::{Requests, UnusableConfig, client_builder};
