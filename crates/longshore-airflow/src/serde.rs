//! Values of XCom and of triggers, as Airflow's `airflow.sdk.serde` encodes them, as far as a scheduler reads them.
//!
//! JSON is as it is. A value of another class is `{"__classname__": class, "__version__": number, "__data__": content}`.
//! Workers before Airflow 3.2 send arguments of triggers in the encoding of serialized DAGs, `{"__type": …, "__var": …}`;
//! both are read here, as upstream reads both. What a value means to a task is the business of its worker.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::serialized;

/// The key of the XCom value by which a task says what it skips.
pub const SKIP_MARK_KEY: &str = "skipmixin_key";

/// The newest version of an encoded tuple.
const TUPLE_VERSION: i64 = 1;

/// A value that cannot be read as what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value cannot be read: expected {expected}, found {found}")]
pub struct Undecodable {
    expected: &'static str,
    found: String,
}

impl Undecodable {
    fn new(expected: &'static str, found: &Value) -> Self {
        Self {
            expected,
            found: serialized::shortened(&found.to_string()),
        }
    }
}

/// A value, seen as what Python makes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'v> {
    /// JSON. What is in it may be encoded again.
    Plain(&'v Value),
    /// An object of a class.
    Object {
        /// Import path of the class.
        class: &'v str,
        /// Version of what the class wrote.
        version: i64,
        /// What it wrote.
        data: &'v Value,
    },
}

/// What a value is (upstream: `deserialize`, `_convert`).
///
/// # Errors
/// It names a class, but not by a text, or its version is not a whole number.
pub fn decode(value: &Value) -> Result<Decoded<'_>, Undecodable> {
    if let (Some(name), Some(content)) = (value.get("__type"), value.get("__var")) {
        return match name.as_str() {
            Some("dict") => Ok(Decoded::Plain(content)),
            Some(class) => Ok(Decoded::Object {
                class,
                version: 0,
                data: content,
            }),
            None => Err(Undecodable::new("the name of a type", name)),
        };
    }
    let (Some(class), Some(version)) = (value.get("__classname__"), value.get("__version__"))
    else {
        return Ok(Decoded::Plain(value));
    };
    match (class.as_str(), version.as_i64()) {
        (Some(class), Some(version)) => Ok(Decoded::Object {
            class,
            version,
            data: value.get("__data__").unwrap_or(&Value::Null),
        }),
        _ => Err(Undecodable::new("a class and its version", value)),
    }
}

/// How many instances a task has that is mapped over a value: what Python's `len` says of a list, tuple or dict. `None`:
/// nothing can be mapped over it, as over a set, which has no order (upstream: `is_mappable_value`). Also for a
/// collection of a class of the user's: there, the worker knows.
///
/// # Errors
/// The value is no encoded value, or of a newer version than Airflow 3.3 knows.
pub fn mapped_length(value: &Value) -> Result<Option<u64>, Undecodable> {
    let length = match decode(value)? {
        Decoded::Plain(Value::Array(items)) => Some(items.len()),
        Decoded::Plain(Value::Object(members)) => Some(members.len()),
        Decoded::Plain(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => None,
        Decoded::Object {
            class,
            version,
            data,
        } => match class {
            "tuple" | "builtins.tuple" => {
                if version > TUPLE_VERSION {
                    return Err(Undecodable::new("a tuple of version 1", value));
                }
                let items = data.as_array();
                Some(items.ok_or_else(|| Undecodable::new("a list", data))?.len())
            }
            _ => None,
        },
    };
    Ok(length.and_then(|length| u64::try_from(length).ok()))
}

/// The moment that a value is: a `datetime` of Python or pendulum. Its time zone does not change the moment.
///
/// # Errors
/// It is none.
pub fn moment(value: &Value) -> Result<Timestamp, Undecodable> {
    let seconds = match decode(value)? {
        Decoded::Object { class, data, .. } => match class {
            "pendulum.datetime.DateTime" | "datetime.datetime" => {
                data.get("timestamp").unwrap_or(data).as_f64()
            }
            "datetime" => data.as_f64(),
            _ => None,
        },
        Decoded::Plain(_) => None,
    };
    let moment = seconds.and_then(serialized::since_1970);
    moment.ok_or_else(|| Undecodable::new("a moment", value))
}

/// The length of time that a value is: a `timedelta` of Python.
///
/// # Errors
/// It is none.
pub fn duration(value: &Value) -> Result<SignedDuration, Undecodable> {
    let seconds = match decode(value)? {
        Decoded::Object { class, data, .. } => match class {
            "datetime.timedelta" | "timedelta" => data.as_f64(),
            _ => None,
        },
        Decoded::Plain(_) => None,
    };
    let microseconds = seconds.and_then(serialized::microseconds);
    microseconds
        .map(SignedDuration::from_micros)
        .ok_or_else(|| Undecodable::new("a length of time", value))
}

/// A member of a `dict`, as of the arguments of a trigger.
///
/// # Errors
/// The value is no `dict`, or has no such member.
pub fn member<'v>(value: &'v Value, name: &str) -> Result<&'v Value, Undecodable> {
    match decode(value)? {
        Decoded::Plain(Value::Object(members)) => members.get(name),
        Decoded::Plain(_) | Decoded::Object { .. } => None,
    }
    .ok_or_else(|| Undecodable::new("a dict with the member", value))
}

/// What a branch, or another task that can skip tasks, has decided: its XCom value [`SKIP_MARK_KEY`] (spec section 6.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkipMark {
    followed: Option<Vec<String>>,
    skipped: Option<Vec<String>>,
}

impl SkipMark {
    /// Reads the value.
    ///
    /// # Errors
    /// It is no `dict`, or `followed` or `skipped` is no list.
    pub fn read(value: &Value) -> Result<Self, Undecodable> {
        let Decoded::Plain(Value::Object(members)) = decode(value)? else {
            return Err(Undecodable::new("`followed` or `skipped`", value));
        };
        let list = |name: &str| {
            let Some(value) = members.get(name) else {
                return Ok(None);
            };
            let items = value.as_array();
            let items = items.ok_or_else(|| Undecodable::new("a list of task ids", value))?;
            // What is no text is no task id, and matches none.
            let ids = items.iter().filter_map(Value::as_str);
            Ok(Some(ids.map(str::to_owned).collect()))
        };
        Ok(Self {
            followed: list("followed")?,
            skipped: list("skipped")?,
        })
    }

    /// Whether a task directly after it is skipped.
    #[must_use]
    pub fn skips(&self, task_id: &str) -> bool {
        let has = |ids: &Vec<String>| ids.iter().any(|id| id == task_id);
        let is_left_out = self.followed.as_ref().is_some_and(|ids| !has(ids));
        is_left_out || self.skipped.as_ref().is_some_and(has)
    }
}

#[cfg(test)]
mod tests;
