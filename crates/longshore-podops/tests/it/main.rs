//! The controllers among all that stands around a pod, on the embedded cluster in simulated time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy sees as a test only what is in a test function"
)]

mod front;
mod large;
mod laws;
mod slow;
mod stories;
mod webhooks;
mod world;
