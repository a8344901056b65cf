//! The cluster as its clients see it: through `kube::Client` and through raw requests.

#![expect(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod harness;

mod controllers;
mod crud;
mod deletion;
mod lists;
mod patches;
mod pods;
mod watch;
