//! Airflow's encoded timetables: `{"__type": class, "__var": fields}`. Our stored DAGs hold the same.

use jiff::{
    SignedDuration,
    tz::{Offset, TimeZone},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

use super::{
    CronError, CronExpression, CronSchedule, CronTrigger, Delta, RunImmediately, Timetable,
};

const PREFIX: &str = "airflow.timetables.";
const NULL: &str = "simple.NullTimetable";
const ONCE: &str = "simple.OnceTimetable";
const CONTINUOUS: &str = "simple.ContinuousTimetable";
const CRON_TRIGGER: &str = "trigger.CronTriggerTimetable";
const DELTA_TRIGGER: &str = "trigger.DeltaTriggerTimetable";
const MULTIPLE_CRON_TRIGGER: &str = "trigger.MultipleCronTriggerTimetable";
const CRON_DATA_INTERVAL: &str = "interval.CronDataIntervalTimetable";
const DELTA_DATA_INTERVAL: &str = "interval.DeltaDataIntervalTimetable";

/// Why an encoded timetable cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TimetableError {
    /// It has another form.
    #[error("encoded timetable `{class}` needs {expected} as `{field}`, but has {found}")]
    Field {
        /// The class.
        class: String,
        /// The field of `__var`.
        field: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A cron expression with a syntax error.
    #[error("encoded timetable `{class}` has a cron expression that cannot be read")]
    Cron {
        /// The class.
        class: String,
        /// Why.
        source: CronError,
    },
}

/// The fields of an encoded timetable.
struct Fields<'v> {
    class: &'v str,
    value: &'v Value,
}

impl Timetable {
    /// Reads Airflow's encoded object. A class that is not known here becomes [`Timetable::Unsupported`].
    pub fn from_encoded(encoded: &Value) -> Result<Self, TimetableError> {
        let fields = Fields {
            class: encoded["__type"].as_str().unwrap_or_default(),
            value: &encoded["__var"],
        };
        if fields.class.is_empty() {
            let whole = Fields {
                class: "",
                value: encoded,
            };
            return Err(whole.error("__type", "the name of a class"));
        }
        Ok(
            match fields.class.strip_prefix(PREFIX).unwrap_or_default() {
                NULL => Self::Null,
                ONCE => Self::Once,
                CONTINUOUS => Self::Continuous,
                CRON_TRIGGER => {
                    let expression = fields.cron("expression", &fields.value["expression"])?;
                    Self::CronTrigger(fields.cron_trigger(expression)?)
                }
                DELTA_TRIGGER => Self::DeltaTrigger {
                    delta: fields.step("delta")?,
                    interval: fields.delta("interval")?,
                },
                MULTIPLE_CRON_TRIGGER => {
                    let list = fields.value["expressions"].as_array();
                    let expressions = list.filter(|list| !list.is_empty());
                    let expressions = expressions
                        .ok_or_else(|| fields.error("expressions", "a list of cron expressions"))?;
                    let triggers = expressions.iter().map(|expression| {
                        fields.cron_trigger(fields.cron("expressions", expression)?)
                    });
                    Self::MultipleCronTrigger(triggers.collect::<Result<_, _>>()?)
                }
                CRON_DATA_INTERVAL => Self::CronDataInterval(CronSchedule {
                    expression: fields.cron("expression", &fields.value["expression"])?,
                    zone: fields.zone()?,
                }),
                DELTA_DATA_INTERVAL => Self::DeltaDataInterval(fields.step("delta")?),
                _ => Self::Unsupported {
                    class: fields.class.to_owned(),
                },
            },
        )
    }

    /// Airflow's encoded object. Of an unsupported timetable only the class is kept.
    pub fn to_encoded(&self) -> Value {
        let (class, fields) = match self {
            Self::Null => (NULL, json!({})),
            Self::Once => (ONCE, json!({})),
            Self::Continuous => (CONTINUOUS, json!({})),
            Self::CronTrigger(trigger) => {
                let mut fields = encode_trigger(trigger);
                fields["expression"] = trigger.cron.expression.to_string().into();
                (CRON_TRIGGER, fields)
            }
            Self::DeltaTrigger { delta, interval } => (
                DELTA_TRIGGER,
                json!({"delta": encode_delta(*delta), "interval": encode_delta(*interval)}),
            ),
            Self::MultipleCronTrigger(triggers) => {
                let mut fields = triggers.first().map_or(json!({}), encode_trigger);
                let expressions = triggers
                    .iter()
                    .map(|trigger| trigger.cron.expression.to_string());
                fields["expressions"] = expressions.collect();
                (MULTIPLE_CRON_TRIGGER, fields)
            }
            Self::CronDataInterval(cron) => (
                CRON_DATA_INTERVAL,
                json!({"expression": cron.expression.to_string(), "timezone": encode_zone(&cron.zone)}),
            ),
            Self::DeltaDataInterval(delta) => {
                (DELTA_DATA_INTERVAL, json!({"delta": encode_delta(*delta)}))
            }
            Self::Unsupported { class } => return json!({"__type": class, "__var": {}}),
        };
        json!({"__type": format!("{PREFIX}{class}"), "__var": fields})
    }
}

impl Serialize for Timetable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_encoded().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Timetable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = Value::deserialize(deserializer)?;
        Self::from_encoded(&encoded).map_err(de::Error::custom)
    }
}

impl Fields<'_> {
    fn error(&self, field: &'static str, expected: &'static str) -> TimetableError {
        TimetableError::Field {
            class: self.class.to_owned(),
            field,
            expected,
            found: self.value[field].to_string(),
        }
    }

    fn cron(&self, field: &'static str, value: &Value) -> Result<CronExpression, TimetableError> {
        let text = value
            .as_str()
            .ok_or_else(|| self.error(field, "a cron expression"))?;
        text.parse().map_err(|source| TimetableError::Cron {
            class: self.class.to_owned(),
            source,
        })
    }

    fn cron_trigger(&self, expression: CronExpression) -> Result<CronTrigger, TimetableError> {
        Ok(CronTrigger {
            cron: CronSchedule {
                expression,
                zone: self.zone()?,
            },
            interval: self.delta("interval")?,
            run_immediately: self.run_immediately()?,
        })
    }

    /// A name of the time zone database, or seconds east of UTC.
    fn zone(&self) -> Result<TimeZone, TimetableError> {
        let value = &self.value["timezone"];
        let zone = match (value.as_str(), value.as_i64()) {
            (Some(name), _) => zone(name),
            (None, Some(seconds)) => i32::try_from(seconds)
                .ok()
                .and_then(|seconds| Offset::from_seconds(seconds).ok())
                .map(TimeZone::fixed),
            (None, None) => None,
        };
        zone.ok_or_else(|| self.error("timezone", "a time zone"))
    }

    /// Seconds, or the fields of a `relativedelta`. One that sets fields instead of adding to them is refused.
    fn delta(&self, field: &'static str) -> Result<Delta, TimetableError> {
        let value = &self.value[field];
        if value.is_null() {
            return Ok(Delta::ZERO);
        }
        let read = match value.as_object() {
            None => value.as_f64().and_then(seconds).map(Delta::exact),
            Some(parts) => parts.iter().try_fold(Delta::ZERO, |sum, (name, value)| {
                let value = value.as_f64()?;
                sum.plus(name, value)
            }),
        };
        let expected = "seconds, or the years to microseconds of a relativedelta";
        read.ok_or_else(|| self.error(field, expected))
    }

    fn step(&self, field: &'static str) -> Result<Delta, TimetableError> {
        let delta = self.delta(field)?;
        if delta.is_positive() {
            return Ok(delta);
        }
        Err(self.error(field, "a step forward"))
    }

    fn run_immediately(&self) -> Result<RunImmediately, TimetableError> {
        match &self.value["run_immediately"] {
            Value::Null | Value::Bool(false) => Ok(RunImmediately::IfRecent),
            Value::Bool(true) => Ok(RunImmediately::Always),
            Value::Number(number) => number
                .as_f64()
                .and_then(seconds)
                .map(RunImmediately::Within)
                .ok_or_else(|| self.error("run_immediately", "seconds")),
            Value::String(_) | Value::Array(_) | Value::Object(_) => {
                Err(self.error("run_immediately", "a boolean or seconds"))
            }
        }
    }
}

impl Delta {
    /// With some more of a unit: years, months, weeks, days, hours, minutes, seconds or microseconds.
    pub(crate) fn plus(self, unit: &str, n: f64) -> Option<Self> {
        let months = |each: f64| {
            let more = n * each;
            let is_whole = more.fract() == 0.0 && more.abs() <= 1_200_000.0;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and small, as checked"
            )]
            let months = is_whole.then_some(more as i32)?;
            let months = self.months.checked_add(months)?;
            Some(Self { months, ..self })
        };
        let exact = |each: f64| {
            let rest = self.rest.checked_add(seconds(n * each)?)?;
            Some(Self { rest, ..self })
        };
        match unit {
            "years" => months(12.0),
            "months" => months(1.0),
            "weeks" => exact(604_800.0),
            "days" => exact(86_400.0),
            "hours" => exact(3600.0),
            "minutes" => exact(60.0),
            "seconds" => exact(1.0),
            "microseconds" => exact(1e-6),
            _ => None,
        }
    }
}

/// A time zone by its name in the database.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

/// To the microsecond, as Python has it.
fn seconds(seconds: f64) -> Option<SignedDuration> {
    // A hundred thousand years of microseconds fit into 64 bits.
    let microseconds = (seconds * 1e6).round();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and small, as checked"
    )]
    let exact =
        (microseconds.abs() < 3e18).then(|| SignedDuration::from_micros(microseconds as i64));
    exact
}

fn encode_delta(delta: Delta) -> Value {
    let seconds = delta.rest.as_secs_f64();
    if delta.months == 0 {
        return seconds.into();
    }
    json!({"months": delta.months, "seconds": seconds})
}

fn encode_zone(zone: &TimeZone) -> Value {
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => name.into(),
        (None, Ok(offset)) => offset.seconds().into(),
        (None, Err(_)) => "UTC".into(),
    }
}

fn encode_trigger(trigger: &CronTrigger) -> Value {
    let run_immediately: Value = match trigger.run_immediately {
        RunImmediately::IfRecent => false.into(),
        RunImmediately::Always => true.into(),
        RunImmediately::Within(limit) => limit.as_secs_f64().into(),
    };
    json!({
        "timezone": encode_zone(&trigger.cron.zone),
        "interval": encode_delta(trigger.interval),
        "run_immediately": run_immediately,
    })
}
