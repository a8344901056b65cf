//! A cron expression in a time zone: where wall clocks are turned back or forward.

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{Disambiguation, TimeZone},
};

use super::{cron_expression::CronExpression, ticks::Ticks};

/// Times that a zone skips move forward by the gap; of times that it has twice the second is taken. Airflow 3.3.2 was
/// measured to do so.
const DISAMBIGUATION: Disambiguation = Disambiguation::Later;

/// When to run, by a wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronSchedule {
    /// Which times of the clock.
    pub expression: CronExpression,
    /// Whose clock.
    pub zone: TimeZone,
}

impl CronSchedule {
    /// In UTC.
    pub fn in_utc(expression: CronExpression) -> Self {
        Self {
            expression,
            zone: TimeZone::UTC,
        }
    }

    fn wall(&self, time: Timestamp) -> DateTime {
        self.zone.to_datetime(time)
    }

    fn instant(&self, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        ambiguous.disambiguate(DISAMBIGUATION).ok()
    }
}

impl Ticks for CronSchedule {
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let wall = self.wall(time);
        let next = self.expression.next(wall)?;
        if self.expression.covers_every_hour() {
            // The hour that comes twice is run twice.
            return time.checked_add(next.duration_since(wall)).ok();
        }
        // Later on the clock is later in time, because the second of two equal times is taken.
        self.instant(next)
    }

    fn before(&self, time: Timestamp) -> Option<Timestamp> {
        let wall = self.wall(time);
        let previous = self.expression.previous(wall)?;
        if self.expression.covers_every_hour() {
            return time.checked_sub(wall.duration_since(previous)).ok();
        }
        self.instant(previous)
    }

    fn align_to_next(&self, time: Timestamp) -> Option<Timestamp> {
        let next = self.after(time)?;
        Some(if self.before(next)? == time {
            time
        } else {
            next
        })
    }

    fn align_to_previous(&self, time: Timestamp) -> Option<Timestamp> {
        let previous = self.before(time)?;
        Some(if self.after(previous)? == time {
            time
        } else {
            previous
        })
    }
}
