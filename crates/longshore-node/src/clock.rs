//! The crate's only use of the clock.

use jiff::Timestamp;
use longshore_kit::{Clock, SystemClock};

/// The current time of the machine, which is the one that its processes live in. Pure code gets it as an argument.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}
