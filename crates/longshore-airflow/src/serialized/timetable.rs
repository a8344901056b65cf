//! When a DAG runs, as its document says it (spec section 5.3).
//!
//! Only what is written: whether a cron expression can be read, and when it is next, whoever schedules finds out.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    asset::Asset,
    error::Unreadable,
    record::{Json, Members, record},
    time::{RunImmediately, Step, Zone},
};
use crate::pointer::Place;

const PREFIX: &str = "airflow.timetables.";

macro_rules! timetables {
    ($($(#[$doc:meta])* $class:literal $name:ident($fields:ty),)*) => {
        /// A timetable. The names are those of Airflow's classes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Timetable {
            $($(#[$doc])* $name($fields),)*
            /// A class of the user's, or one of Airflow's for partitions.
            Other {
                /// Its import path.
                class: String,
                /// What it wrote of itself.
                fields: Value,
            },
        }

        impl Timetable {
            fn read_fields(class: String, fields: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
                Ok(match class.strip_prefix(PREFIX) {
                    $(Some($class) => Self::$name(Json::read(fields, at)?),)*
                    _ => Self::Other { class, fields },
                })
            }

            /// As Airflow writes it: `{"__type": class, "__var": fields}`.
            #[must_use]
            pub fn to_json(&self) -> Value {
                match self {
                    $(Self::$name(fields) => {
                        json!({"__type": concat!("airflow.timetables.", $class), "__var": fields.write()})
                    })*
                    Self::Other { class, fields } => json!({"__type": class, "__var": fields}),
                }
            }
        }
    };
}

timetables! {
    /// Never by itself: `schedule=None`.
    "simple.NullTimetable" Null(NoFields),
    /// Once: `@once`.
    "simple.OnceTimetable" Once(NoFields),
    /// Again as soon as it ends: `@continuous`.
    "simple.ContinuousTimetable" Continuous(NoFields),
    /// At each time of a cron expression.
    "trigger.CronTriggerTimetable" CronTrigger(CronTrigger),
    /// In equal steps.
    "trigger.DeltaTriggerTimetable" DeltaTrigger(DeltaTrigger),
    /// At each time of any of several cron expressions.
    "trigger.MultipleCronTriggerTimetable" MultipleCronTrigger(MultipleCronTrigger),
    /// Over what lies between two times of a cron expression.
    "interval.CronDataIntervalTimetable" CronDataInterval(CronDataInterval),
    /// Over one step after the other.
    "interval.DeltaDataIntervalTimetable" DeltaDataInterval(DeltaDataInterval),
    /// When assets were written.
    "simple.AssetTriggeredTimetable" AssetTriggered(AssetTriggered),
    /// When assets were written, and by another timetable.
    "assets.AssetOrTimeSchedule" AssetOrTime(AssetOrTime),
    /// At times that are listed.
    "events.EventsTimetable" Events(Events),
}

/// A timetable that needs nothing said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NoFields {
    /// What it says nevertheless.
    pub rest: Map<String, Value>,
}

impl Json for NoFields {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let rest = Members::of(value, at)?.rest();
        Ok(Self { rest })
    }

    fn write(&self) -> Value {
        self.rest.clone().into()
    }
}

record! {
    /// Fields of `CronTriggerTimetable`.
    pub struct CronTrigger {
        /// The cron expression, or a preset: `@daily`.
        "expression" needs expression: String,
        /// The zone whose clock it is about.
        "timezone" needs timezone: Zone,
        /// Length of the data interval, which ends at the time.
        "interval" may interval: Step,
        /// The first run of a DAG without `start_date`.
        "run_immediately" may run_immediately: RunImmediately,
    }
}

record! {
    /// Fields of `MultipleCronTriggerTimetable`.
    pub struct MultipleCronTrigger {
        /// Cron expressions.
        "expressions" needs expressions: Vec<String>,
        /// The zone whose clock they are about.
        "timezone" needs timezone: Zone,
        /// Length of the data interval, which ends at the time.
        "interval" may interval: Step,
        /// The first run of a DAG without `start_date`.
        "run_immediately" may run_immediately: RunImmediately,
    }
}

record! {
    /// Fields of `DeltaTriggerTimetable`.
    pub struct DeltaTrigger {
        /// From one run to the next.
        "delta" needs delta: Step,
        /// Length of the data interval, which ends at the time.
        "interval" may interval: Step,
    }
}

record! {
    /// Fields of `CronDataIntervalTimetable`.
    pub struct CronDataInterval {
        /// The cron expression, or a preset.
        "expression" needs expression: String,
        /// The zone whose clock it is about.
        "timezone" needs timezone: Zone,
    }
}

record! {
    /// Fields of `DeltaDataIntervalTimetable`.
    pub struct DeltaDataInterval {
        /// Length of each data interval.
        "delta" needs delta: Step,
    }
}

record! {
    /// Fields of `AssetTriggeredTimetable`.
    pub struct AssetTriggered {
        /// Which assets.
        "asset_condition" needs asset_condition: Asset,
    }
}

record! {
    /// Fields of `AssetOrTimeSchedule`.
    pub struct AssetOrTime {
        /// Which assets.
        "asset_condition" needs asset_condition: Asset,
        /// The other timetable.
        "timetable" needs timetable: Box<Timetable>,
    }
}

record! {
    /// Fields of `EventsTimetable`.
    pub struct Events {
        /// The times, in order.
        "event_dates" needs event_dates: Vec<EventDate>,
        /// Whether a run by hand works on the last of them instead of its own time.
        "restrict_to_events" may restrict_to_events: bool,
        /// For the page.
        "description" may description: String,
    }
}

impl Json for Timetable {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let mut members = Members::of(value, at)?;
        let class = members.needs("__type")?;
        let fields = members.needs("__var")?;
        Self::read_fields(class, fields, &at.member("__var"))
    }

    fn write(&self) -> Value {
        self.to_json()
    }
}

impl Timetable {
    /// The timetable by which time starts runs: that beside the assets, where there is one.
    #[must_use]
    pub fn of_time(&self) -> &Self {
        match self {
            Self::AssetOrTime(fields) => fields.timetable.of_time(),
            Self::Null(_)
            | Self::Once(_)
            | Self::Continuous(_)
            | Self::CronTrigger(_)
            | Self::DeltaTrigger(_)
            | Self::MultipleCronTrigger(_)
            | Self::CronDataInterval(_)
            | Self::DeltaDataInterval(_)
            | Self::AssetTriggered(_)
            | Self::Events(_)
            | Self::Other { .. } => self,
        }
    }
}

/// A time as text: ISO 8601 with an offset; without one, it is UTC.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDate {
    text: String,
    timestamp: Timestamp,
}

impl EventDate {
    /// The time.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }
}

impl Json for EventDate {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let text = value.as_str().unwrap_or_default();
        let utc = || {
            let civil: jiff::civil::DateTime = text.parse().ok()?;
            let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
            Some(zoned.timestamp())
        };
        match text.parse().ok().or_else(utc) {
            Some(timestamp) => Ok(Self {
                text: text.to_owned(),
                timestamp,
            }),
            None => Err(Unreadable::form(at, "a time in ISO 8601", &value)),
        }
    }

    fn write(&self) -> Value {
        self.text.as_str().into()
    }
}

impl Events {
    /// The event of the next run, which is also its data interval (upstream: `next_dagrun_info`).
    ///
    /// `last` is the end of the last run's data interval. Without `catchup`, events before `now` are left out. What comes
    /// after `latest` never comes.
    #[must_use]
    pub fn next(
        &self,
        last: Option<Timestamp>,
        earliest: Option<Timestamp>,
        latest: Option<Timestamp>,
        catchup: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let earliest = earliest.max((!catchup).then_some(now));
        let mut events = self.event_dates.iter().map(EventDate::timestamp);
        let next = events.find(|event| {
            let is_early = earliest.is_some_and(|earliest| *event < earliest);
            let is_past = last.is_some_and(|last| *event <= last);
            !is_early && !is_past
        })?;
        latest.is_none_or(|latest| next <= latest).then_some(next)
    }

    /// The event that a run by hand works on: with `restrict_to_events` the last one until then, or the first of all.
    #[must_use]
    pub fn manual(&self, run_after: Timestamp) -> Timestamp {
        if self.restrict_to_events != Some(true) {
            return run_after;
        }
        let mut events = self.event_dates.iter().map(EventDate::timestamp);
        let last = events.clone().rev().find(|event| *event <= run_after);
        last.or_else(|| events.next()).unwrap_or(run_after)
    }
}
