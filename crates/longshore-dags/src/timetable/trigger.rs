//! Timetables that start a run at each tick, over an interval that ends there (or has no length).

use jiff::{SignedDuration, Timestamp};

use super::{DataInterval, Delta, NextRun, Restriction, cron::CronSchedule, ticks::Ticks};

/// Whether the first run of a DAG without `start_date` may be one whose time has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunImmediately {
    /// Only a recent one: by a tenth of the time between two ticks, at least five minutes. Airflow does so for `False`
    /// and for `None`.
    #[default]
    IfRecent,
    /// Always.
    Always,
    /// If its time has passed by no more than this.
    Within(SignedDuration),
}

impl RunImmediately {
    /// The first tick of a DAG without `start_date`.
    pub(super) fn first_tick(self, cron: &CronSchedule, now: Timestamp) -> Option<Timestamp> {
        let past = cron.align_to_previous(now)?;
        let recent = match self {
            Self::Always => return Some(past),
            Self::Within(limit) => limit,
            Self::IfRecent => {
                let gap = cron.align_to_next(now)?.duration_since(past);
                (gap / 10).max(SignedDuration::from_mins(5))
            }
        };
        if now.duration_since(past) <= recent {
            return Some(past);
        }
        cron.align_to_next(now)
    }
}

/// The next run at a tick. `first` returns the first tick of a schedule that has no run yet and no start date.
pub(super) fn next_run(
    ticks: &impl Ticks,
    interval: Delta,
    first: impl Fn() -> Option<Timestamp>,
    last: Option<&DataInterval>,
    restriction: &Restriction,
    now: Timestamp,
) -> Option<NextRun> {
    let earliest = restriction.earliest;
    let tick = if restriction.catchup {
        match (last, earliest) {
            (Some(last), _) => ticks.after(last.end)?,
            (None, Some(earliest)) => ticks.align_to_next(earliest)?,
            (None, None) => first()?,
        }
    } else {
        let begin = match (last, earliest) {
            (Some(last), _) => Some(ticks.after(last.end)?),
            (None, Some(_)) => None,
            (None, None) => Some(first()?),
        };
        let earliest = match earliest {
            Some(earliest) => Some(ticks.align_to_next(earliest)?),
            None => None,
        };
        // The latest of all: what was missed stays missed. `None` is less than any time.
        Some(ticks.align_to_previous(now)?)
            .max(begin)
            .max(earliest)?
    };
    if restriction.latest.is_some_and(|latest| latest < tick) {
        return None;
    }
    Some(NextRun::of(DataInterval {
        start: interval.subtract_from(tick)?,
        end: tick,
    }))
}
