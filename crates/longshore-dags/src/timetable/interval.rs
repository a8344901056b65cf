//! Timetables that run over the interval between two ticks, at its end.

use jiff::Timestamp;

use super::{DataInterval, Delta, NextRun, Restriction, cron::CronSchedule, ticks::Ticks};

/// A schedule that knows where to begin when missed intervals stay missed.
pub(super) trait Intervals: Ticks {
    /// The start of the first interval that is not skipped at this time.
    fn skip_to_latest(&self, earliest: Option<Timestamp>, now: Timestamp) -> Option<Timestamp>;
}

impl Intervals for CronSchedule {
    fn skip_to_latest(&self, earliest: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let last_start = self.before(now)?;
        let start = if self.after(last_start)? == now {
            last_start
        } else {
            self.before(last_start)?
        };
        match earliest {
            None => Some(start),
            Some(earliest) => Some(start.max(self.align_to_next(earliest)?)),
        }
    }
}

impl Intervals for Delta {
    fn skip_to_latest(&self, earliest: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let start = self.before(self.floor(now, earliest.unwrap_or(now))?)?;
        Some(earliest.map_or(start, |earliest| start.max(earliest)))
    }
}

/// The next run over an interval.
pub(super) fn next_run(
    schedule: &impl Intervals,
    last: Option<&DataInterval>,
    restriction: &Restriction,
    now: Timestamp,
) -> Option<NextRun> {
    let earliest = match restriction.earliest {
        earliest if !restriction.catchup => Some(schedule.skip_to_latest(earliest, now)?),
        Some(earliest) => Some(schedule.align_to_next(earliest)?),
        None => None,
    };
    let start = match last {
        None => earliest?,
        Some(last) => {
            // Aligned, as the schedule may be another one since.
            let begin = schedule.align_to_previous(last.end)?;
            let begin = earliest.map_or(begin, |earliest| begin.max(earliest));
            // A coarser schedule may lead back to the interval that has run.
            if begin <= last.start {
                schedule.after(begin).filter(|next| *next > last.start)?
            } else {
                begin
            }
        }
    };
    if restriction.latest.is_some_and(|latest| start > latest) {
        return None;
    }
    Some(NextRun::of(DataInterval {
        start,
        end: schedule.after(start)?,
    }))
}
