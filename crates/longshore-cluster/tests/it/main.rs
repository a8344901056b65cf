//! The cluster as its clients see it: through `kube::Client` and through raw requests.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test that called it"
)]

mod harness;
mod judge;

mod controllers;
mod crowd;
mod crud;
mod definitions;
mod deletion;
mod differential;
mod documents;
mod durable;
mod faults;
mod hostile;
mod identity;
mod jobs;
mod kill;
mod kubectl;
mod lists;
mod patches;
mod pods;
mod properties;
mod protobuf;
mod rollouts;
mod services;
mod stored;
mod streams;
mod tables;
mod warnings;
mod watch;
mod webhooks;
mod wire;
mod workloads;
