//! What trigger and interval timetables need to know of a schedule.

use jiff::Timestamp;

/// A sequence of points in time. `None` is: there is none, as for February 30th.
pub(super) trait Ticks {
    /// The first tick after a time.
    fn after(&self, time: Timestamp) -> Option<Timestamp>;
    /// The last tick before a time.
    fn before(&self, time: Timestamp) -> Option<Timestamp>;
    /// The time itself where it is a tick, else the next one.
    fn align_to_next(&self, time: Timestamp) -> Option<Timestamp>;
    /// The time itself where it is a tick, else the last one before.
    fn align_to_previous(&self, time: Timestamp) -> Option<Timestamp>;
}
