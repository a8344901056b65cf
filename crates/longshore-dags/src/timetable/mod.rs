//! Timetables: when a DAG runs next, and over which interval of time, as Airflow 3.3 computes it. The caller passes the time.
//!
//! [`Timetable`] is read from what a DAG file says (`document`) or from Airflow's encoded objects (`encoded`).
//! Its kinds are in `trigger` (a run at each tick) and `interval` (a run over what lies between two ticks); ticks come
//! from [`CronSchedule`] (`cron` in a time zone, `cron_expression` and `cron_field` for its dialect) or from a
//! [`Delta`]. [`schedules`] decides which runs to create.

mod cron;
mod cron_error;
mod cron_expression;
mod cron_field;
mod cron_fields;
mod delta;
mod encoded;
mod interval;
pub mod schedules;
mod ticks;
mod trigger;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use cron::CronSchedule;
pub use cron_error::CronError;
pub use cron_expression::CronExpression;
pub(crate) use cron_expression::PRESETS;
pub use delta::Delta;
pub use encoded::TimetableError;
pub(crate) use encoded::zone;
pub use trigger::RunImmediately;

use ticks::Ticks;

/// The time that a run works on: from `start` up to `end`; they may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DataInterval {
    /// Its first moment.
    pub start: Timestamp,
    /// The moment after its last.
    pub end: Timestamp,
}

impl DataInterval {
    /// A point in time.
    pub fn exact(at: Timestamp) -> Self {
        Self { start: at, end: at }
    }
}

/// A run that a timetable asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NextRun {
    /// Airflow's `logical_date`: the start of the interval. No two runs of a DAG have the same.
    pub logical_date: Timestamp,
    /// What it works on.
    pub data_interval: DataInterval,
    /// It may not be created before.
    pub run_after: Timestamp,
}

impl NextRun {
    /// The run over an interval, at its end.
    pub fn of(data_interval: DataInterval) -> Self {
        Self {
            logical_date: data_interval.start,
            data_interval,
            run_after: data_interval.end,
        }
    }
}

/// The bounds that a DAG sets to its timetable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// `start_date`.
    pub earliest: Option<Timestamp>,
    /// `end_date`.
    pub latest: Option<Timestamp>,
    /// Whether what was missed is made up for.
    pub catchup: bool,
}

/// When a DAG runs. The names are those of Airflow's classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Timetable {
    /// Never by itself: `NullTimetable`.
    #[default]
    Null,
    /// Once, as soon as possible: `OnceTimetable`.
    Once,
    /// Again as soon as it ends: `ContinuousTimetable`.
    Continuous,
    /// At each time of a cron expression: `CronTriggerTimetable`.
    CronTrigger(CronTrigger),
    /// In equal steps: `DeltaTriggerTimetable`.
    DeltaTrigger {
        /// From one run to the next.
        delta: Delta,
        /// Length of the data interval.
        interval: Delta,
    },
    /// At each time of any of several cron expressions: `MultipleCronTriggerTimetable`.
    MultipleCronTrigger(Vec<CronTrigger>),
    /// Over what lies between two times of a cron expression: `CronDataIntervalTimetable`.
    CronDataInterval(CronSchedule),
    /// Over one step after the other: `DeltaDataIntervalTimetable`.
    DeltaDataInterval(Delta),
    /// Any other: triggered by assets, by events, or a class of the user's. Time never starts it.
    Unsupported {
        /// The whole name of the class.
        class: String,
    },
}

/// A run at each time of a cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronTrigger {
    /// The times.
    pub cron: CronSchedule,
    /// Length of the data interval, which ends at the time.
    pub interval: Delta,
    /// What the first run of a DAG without `start_date` is.
    pub run_immediately: RunImmediately,
}

impl CronTrigger {
    /// With no interval, as Airflow makes them of a `schedule`.
    pub fn at(cron: CronSchedule) -> Self {
        Self {
            cron,
            interval: Delta::ZERO,
            run_immediately: RunImmediately::default(),
        }
    }

    fn next_run(
        &self,
        last: Option<&DataInterval>,
        restriction: &Restriction,
        now: Timestamp,
    ) -> Option<NextRun> {
        let first = || self.run_immediately.first_tick(&self.cron, now);
        trigger::next_run(&self.cron, self.interval, first, last, restriction, now)
    }
}

impl Timetable {
    /// The run after the one over `last` (the interval of the latest scheduled run), if there is one.
    ///
    /// Its `run_after` may have passed, or be to come. With `catchup` no interval is left out; without, the latest one
    /// that is over comes next.
    pub fn next_run(
        &self,
        last: Option<&DataInterval>,
        restriction: &Restriction,
        now: Timestamp,
    ) -> Option<NextRun> {
        let now = whole_microseconds(now);
        match self {
            Self::Null | Self::Unsupported { .. } => None,
            Self::Once => once(last, restriction, now),
            Self::Continuous => continuous(last, restriction, now),
            Self::CronTrigger(trigger) => trigger.next_run(last, restriction, now),
            Self::DeltaTrigger { delta, interval } => {
                trigger::next_run(delta, *interval, || Some(now), last, restriction, now)
            }
            Self::MultipleCronTrigger(triggers) => {
                let runs = triggers
                    .iter()
                    .filter_map(|trigger| trigger.next_run(last, restriction, now));
                if restriction.catchup {
                    runs.min_by_key(|run| run.logical_date)
                } else {
                    // The latest one that is due, else the first one to come.
                    runs.min_by_key(|run| {
                        let is_due = run.logical_date <= now;
                        let distance = now.duration_since(run.logical_date).abs();
                        (!is_due, distance)
                    })
                }
            }
            Self::CronDataInterval(cron) => interval::next_run(cron, last, restriction, now),
            Self::DeltaDataInterval(delta) => interval::next_run(delta, last, restriction, now),
        }
    }

    /// The data interval of a run that a user triggers at a time: the one that a scheduled run would have then.
    pub fn manual_interval(&self, run_after: Timestamp) -> DataInterval {
        let run_after = whole_microseconds(run_after);
        let ending = |interval: &Delta| {
            let start = interval.subtract_from(run_after)?;
            let end = run_after;
            Some(DataInterval { start, end })
        };
        let interval = match self {
            Self::Null | Self::Once | Self::Continuous | Self::Unsupported { .. } => None,
            Self::CronTrigger(trigger) => ending(&trigger.interval),
            Self::DeltaTrigger { interval, .. } => ending(interval),
            Self::MultipleCronTrigger(triggers) => triggers
                .iter()
                .filter_map(|trigger| ending(&trigger.interval))
                .min(),
            Self::CronDataInterval(cron) => cron.align_to_previous(run_after).and_then(|end| {
                let start = cron.before(end)?;
                Some(DataInterval { start, end })
            }),
            Self::DeltaDataInterval(delta) => ending(delta),
        };
        interval.unwrap_or(DataInterval::exact(run_after))
    }

    /// Whether it is known beforehand when it runs, so that one of its times can be missed.
    pub fn has_fixed_times(&self) -> bool {
        match self {
            Self::CronTrigger(_)
            | Self::DeltaTrigger { .. }
            | Self::MultipleCronTrigger(_)
            | Self::CronDataInterval(_)
            | Self::DeltaDataInterval(_) => true,
            Self::Null | Self::Once | Self::Continuous | Self::Unsupported { .. } => false,
        }
    }

    /// Runs at the same time that the timetable allows, where it limits them.
    pub fn max_active_runs(&self) -> Option<u32> {
        match self {
            Self::Continuous => Some(1),
            Self::Null
            | Self::Once
            | Self::CronTrigger(_)
            | Self::DeltaTrigger { .. }
            | Self::MultipleCronTrigger(_)
            | Self::CronDataInterval(_)
            | Self::DeltaDataInterval(_)
            | Self::Unsupported { .. } => None,
        }
    }
}

/// Airflow's id of a run that a schedule started: `scheduled__2026-01-01T06:00:00+00:00`.
pub fn scheduled_run_id(run_after: Timestamp) -> String {
    let whole = whole_microseconds(run_after);
    let format = if whole.subsec_nanosecond() == 0 {
        "%Y-%m-%dT%H:%M:%S"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6f"
    };
    format!("scheduled__{}+00:00", whole.strftime(format))
}

fn once(last: Option<&DataInterval>, restriction: &Restriction, now: Timestamp) -> Option<NextRun> {
    if last.is_some() {
        return None;
    }
    let at = restriction.earliest.unwrap_or(now);
    let is_over = restriction.latest.is_some_and(|latest| at > latest);
    (!is_over).then(|| NextRun::of(DataInterval::exact(at)))
}

fn continuous(
    last: Option<&DataInterval>,
    restriction: &Restriction,
    now: Timestamp,
) -> Option<NextRun> {
    let begin = restriction.earliest.unwrap_or(now);
    let (start, end) = match last {
        None => (begin, begin.max(now)),
        Some(last) if last.end > now => {
            // The last one was in the future: one of the same length.
            let length = last.end.duration_since(last.start);
            (begin, begin.checked_add(length).ok()?)
        }
        Some(last) => (last.end, now),
    };
    let is_over = restriction.latest.is_some_and(|latest| end > latest);
    (!is_over).then(|| NextRun::of(DataInterval { start, end }))
}

/// Airflow's clock and database have microseconds.
fn whole_microseconds(time: Timestamp) -> Timestamp {
    let below = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond().rem_euclid(1000)));
    time.checked_sub(below).unwrap_or(time)
}

#[cfg(test)]
pub(crate) mod tests;
