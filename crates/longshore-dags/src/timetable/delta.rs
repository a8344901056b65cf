//! A fixed step in time, or one in months.

use std::num::TryFromIntError;

use jiff::{SignedDuration, Span, Timestamp, tz::TimeZone};

use super::ticks::Ticks;

/// A step in UTC: calendar months, and then an exact time. Airflow's `timedelta` has no months, its `relativedelta` may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delta {
    /// Calendar months; a year is twelve. The day is clamped to the month's last.
    pub months: i32,
    /// Days (of 24 hours) and less.
    pub rest: SignedDuration,
}

impl Delta {
    /// No step at all.
    pub const ZERO: Self = Self::exact(SignedDuration::ZERO);

    /// A step without months.
    pub const fn exact(rest: SignedDuration) -> Self {
        Self { months: 0, rest }
    }

    /// Whether it leads forward from everywhere.
    pub fn is_positive(self) -> bool {
        // The shortest month decides where a step of months goes back by days.
        let shortest = SignedDuration::from_hours(28 * 24).checked_mul(self.months);
        let least = shortest.and_then(|months| months.checked_add(self.rest));
        self.months >= 0 && least.is_some_and(|least| least > SignedDuration::ZERO)
    }

    /// One step later; `None` outside the times that can be written.
    pub fn add_to(self, time: Timestamp) -> Option<Timestamp> {
        let months = Span::new().try_months(self.months).ok()?;
        let zoned = time.to_zoned(TimeZone::UTC).checked_add(months).ok()?;
        zoned.timestamp().checked_add(self.rest).ok()
    }

    /// One step earlier; `None` outside the times that can be written.
    pub fn subtract_from(self, time: Timestamp) -> Option<Timestamp> {
        let months = self.months.checked_neg()?;
        let rest = self.rest.checked_neg()?;
        Self { months, rest }.add_to(time)
    }

    /// The latest boundary not after `time`. Steps of months are counted from `anchor` one by one, as the clamped days
    /// depend on the way; exact ones lie on a grid from 1970, as in Airflow.
    pub(super) fn floor(self, time: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
        if self.months != 0 {
            let mut boundary = anchor;
            while let Some(next) = self.add_to(boundary).filter(|next| *next <= time) {
                boundary = next;
            }
            return Some(boundary);
        }
        let step = self.rest.as_micros();
        let past = i128::from(time.as_microsecond()).checked_rem_euclid(step)?;
        let past: Result<i64, TryFromIntError> = past.try_into();
        let past = SignedDuration::from_micros(past.ok()?);
        time.checked_sub(past).ok()
    }
}

/// A step has no grid of its own: it is aligned wherever it is.
impl Ticks for Delta {
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        self.add_to(time)
    }

    fn before(&self, time: Timestamp) -> Option<Timestamp> {
        self.subtract_from(time)
    }

    fn align_to_next(&self, time: Timestamp) -> Option<Timestamp> {
        Some(time)
    }

    fn align_to_previous(&self, time: Timestamp) -> Option<Timestamp> {
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn months_are_clamped_and_come_before_days() {
        let delta = Delta {
            months: 1,
            rest: SignedDuration::from_hours(24),
        };
        for (from, later, earlier) in [
            (
                "2026-01-31T06:00:00Z",
                "2026-03-01T06:00:00Z",
                "2025-12-30T06:00:00Z",
            ),
            (
                "2024-01-30T00:00:00Z",
                "2024-03-01T00:00:00Z",
                "2023-12-29T00:00:00Z",
            ),
            (
                "2026-03-31T00:00:00Z",
                "2026-05-01T00:00:00Z",
                "2026-02-27T00:00:00Z",
            ),
        ] {
            assert_eq!(delta.add_to(time(from)), Some(time(later)), "from {from}");
            assert_eq!(
                delta.subtract_from(time(from)),
                Some(time(earlier)),
                "from {from}"
            );
        }
    }

    #[test]
    fn exact_steps_lie_on_a_grid_and_months_on_the_way_from_the_anchor() {
        let three_hours = Delta::exact(SignedDuration::from_hours(3));
        let anchor = time("2026-01-31T00:00:00Z");
        let now = time("2026-03-28T13:07:09Z");
        assert_eq!(
            three_hours.floor(now, anchor),
            Some(time("2026-03-28T12:00:00Z"))
        );
        let month = Delta {
            months: 1,
            rest: SignedDuration::ZERO,
        };
        assert_eq!(month.floor(now, anchor), Some(time("2026-03-28T00:00:00Z")));
        assert_eq!(
            month.floor(anchor - SignedDuration::from_hours(1), anchor),
            Some(anchor)
        );
    }

    #[test]
    fn a_step_that_may_stand_still_is_not_positive() {
        let with = |months, hours| Delta {
            months,
            rest: SignedDuration::from_hours(hours),
        };
        for (delta, expected) in [
            (Delta::ZERO, false),
            (with(0, 1), true),
            (with(0, -1), false),
            (with(1, 0), true),
            (with(1, -27 * 24), true),
            (with(1, -28 * 24), false),
            (with(-1, 32 * 24), false),
        ] {
            assert_eq!(delta.is_positive(), expected, "of {delta:?}");
        }
    }
}
