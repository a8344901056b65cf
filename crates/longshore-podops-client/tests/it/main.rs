//! The framework of tables among pods and people, and the example controllers, on the embedded cluster in simulated time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy sees as a test only what is in a test function"
)]

mod examples;
mod laws;
mod world;
