//! kubectl believes the cluster. `LONGSHORE_TEST_KUBECTL` names a kubectl, 1.34 for choice, which
//! `cargo xtask kubectl` builds; without it these tests say so and pass. Each prints how many
//! commands it has run.

mod access;
mod applying;
mod changing;
mod custom;
mod draining;
mod finding;
mod removing;
mod rolling;
mod script;
mod streaming;
mod typed;

use std::time::Duration;

/// Longest that one command of a script may take.
const PATIENCE: Duration = Duration::from_secs(120);
