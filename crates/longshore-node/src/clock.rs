//! The crate's only look at the clock.

use jiff::Timestamp;

/// The current time. Pure code gets it as an argument.
#[expect(
    clippy::disallowed_methods,
    reason = "the shim and the pod actors are the shell; `decide` takes `now` as an argument"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
