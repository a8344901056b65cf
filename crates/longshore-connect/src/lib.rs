//! Connect's unary calls with protobuf messages: how the services of Flyte's control plane are called (task action spec
//! §17). [`ConnectClient`] sends requests, [`server`] answers them.

mod client;
mod code;
pub mod server;

pub use client::{ConnectClient, ConnectError};
pub use code::Code;

/// The content type of a message.
const PROTO: &str = "application/proto";
/// The content type of an error.
const JSON: &str = "application/json";
/// Says which protocol is spoken.
const VERSION_HEADER: (&str, &str) = ("connect-protocol-version", "1");
/// How long the caller waits, in milliseconds.
const TIMEOUT_HEADER: &str = "connect-timeout-ms";

/// An error as it is on the wire.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct WireError {
    /// A [`Code`].
    code: String,
    /// For people.
    #[serde(default)]
    message: String,
}

#[cfg(test)]
mod tests;
