//! Moments, lengths of time and time zones, as serialized DAGs hold them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Number, Value, json};

use super::{error::Unreadable, record::Json, relativedelta::Relativedelta};
use crate::pointer::Place;

const DATETIME: &str = "datetime";
const TIMEDELTA: &str = "timedelta";

/// How a value is written where both ways are in use: a member of a task has it bare, an argument of a mapped task has
/// it as `{"__type": …, "__var": …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bare,
    Typed,
}

/// A length of time in seconds, to the microsecond: Python's `timedelta`. It may be negative.
#[derive(Clone, Debug, PartialEq)]
pub struct Seconds {
    number: Number,
    duration: SignedDuration,
    form: Form,
}

impl Seconds {
    /// A whole number of seconds, written bare.
    #[must_use]
    pub fn whole(seconds: u32) -> Self {
        Self {
            number: Number::from_f64(f64::from(seconds)).unwrap_or_else(|| seconds.into()),
            duration: SignedDuration::from_secs(seconds.into()),
            form: Form::Bare,
        }
    }

    /// The length.
    #[must_use]
    pub fn duration(&self) -> SignedDuration {
        self.duration
    }

    /// Reads the content of `{"__type": "timedelta", "__var": …}`.
    pub(super) fn read_var(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        Self::read_form(value, at, Form::Typed)
    }

    fn read_form(value: Value, at: &Place<'_>, form: Form) -> Result<Self, Unreadable> {
        let duration = value.as_f64().and_then(microseconds);
        match (value, duration) {
            (Value::Number(number), Some(microseconds)) => Ok(Self {
                number,
                duration: SignedDuration::from_micros(microseconds),
                form,
            }),
            (value, _) => Err(Unreadable::form(at, "a length of time in seconds", &value)),
        }
    }
}

impl Json for Seconds {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match untyped(value, TIMEDELTA) {
            Ok(content) => Self::read_form(content, &at.member("__var"), Form::Typed),
            Err(value) => Self::read_form(value, at, Form::Bare),
        }
    }

    fn write(&self) -> Value {
        typed(self.form, TIMEDELTA, &self.number)
    }
}

/// A moment, as seconds since 1970, to the microsecond: Python's `datetime`.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    number: Number,
    timestamp: Timestamp,
    form: Form,
}

impl Moment {
    /// The moment.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Reads the content of `{"__type": "datetime", "__var": …}`.
    pub(super) fn read_var(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        Self::read_form(value, at, Form::Typed)
    }

    fn read_form(value: Value, at: &Place<'_>, form: Form) -> Result<Self, Unreadable> {
        let timestamp = value.as_f64().and_then(since_1970);
        match (value, timestamp) {
            (Value::Number(number), Some(timestamp)) => Ok(Self {
                number,
                timestamp,
                form,
            }),
            (value, _) => Err(Unreadable::form(
                at,
                "a moment in seconds since 1970",
                &value,
            )),
        }
    }
}

impl Json for Moment {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match untyped(value, DATETIME) {
            Ok(content) => Self::read_form(content, &at.member("__var"), Form::Typed),
            Err(value) => Self::read_form(value, at, Form::Bare),
        }
    }

    fn write(&self) -> Value {
        typed(self.form, DATETIME, &self.number)
    }
}

/// Seconds since 1970 as Python reads them (`datetime.fromtimestamp`): the rest of a second is rounded to the nearest
/// microsecond, half to even.
pub(crate) fn since_1970(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_microsecond(microseconds(seconds)?).ok()
}

/// Seconds as whole microseconds. 64 bits hold three hundred thousand years of them.
pub(crate) fn microseconds(seconds: f64) -> Option<i64> {
    let whole = seconds.trunc();
    let microseconds = whole * 1e6 + ((seconds - whole) * 1e6).round_ties_even();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and small, as checked"
    )]
    let exact = (microseconds.abs() < 9e18).then_some(microseconds as i64);
    exact
}

/// The content of `{"__type": name, "__var": content}`, or the value itself where it is anything else.
fn untyped(mut value: Value, name: &str) -> Result<Value, Value> {
    let object = value.as_object_mut();
    let typed = object.filter(|object| {
        object.len() == 2 && object.get("__type").is_some_and(|found| found == name)
    });
    let content = typed.and_then(|object| object.remove("__var"));
    content.ok_or(value)
}

fn typed(form: Form, name: &str, number: &Number) -> Value {
    match form {
        Form::Bare => number.clone().into(),
        Form::Typed => json!({"__type": name, "__var": number}),
    }
}

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// By its name in the time zone database. Whether there is such a name, who uses it finds out.
    Name(String),
    /// By its seconds east of UTC.
    Offset(i32),
}

impl Json for Zone {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let offset = value.as_i64().and_then(|seconds| seconds.try_into().ok());
        match (value, offset) {
            (Value::String(name), _) => Ok(Self::Name(name)),
            (_, Some(seconds)) => Ok(Self::Offset(seconds)),
            (value, None) => {
                let expected = "the name of a time zone, or seconds east of UTC";
                Err(Unreadable::form(at, expected, &value))
            }
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Name(name) => name.as_str().into(),
            Self::Offset(seconds) => (*seconds).into(),
        }
    }
}

/// A length in a timetable: exact, or by the calendar.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// So many seconds.
    Exact(Seconds),
    /// Months, weekdays and the like.
    Calendar(Box<Relativedelta>),
}

impl Json for Step {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        if value.is_object() {
            return Box::<Relativedelta>::read(value, at).map(Self::Calendar);
        }
        Seconds::read(value, at).map(Self::Exact)
    }

    fn write(&self) -> Value {
        match self {
            Self::Exact(seconds) => seconds.write(),
            Self::Calendar(delta) => delta.write(),
        }
    }
}

/// When a timetable without a start has its first run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunImmediately {
    /// `true`: at the last time that has passed; `false`: there only if it was recent.
    Flag(bool),
    /// At the last time that has passed, if it is no longer ago than this.
    Within(Seconds),
}

impl Json for RunImmediately {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match value {
            Value::Bool(flag) => Ok(Self::Flag(flag)),
            Value::Number(_) => Seconds::read(value, at).map(Self::Within),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                Err(Unreadable::form(at, "true, false or seconds", &value))
            }
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Flag(flag) => (*flag).into(),
            Self::Within(seconds) => seconds.write(),
        }
    }
}
