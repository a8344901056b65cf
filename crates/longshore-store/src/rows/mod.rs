//! Converts the model to columns and back.

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    changes::StoreError,
    engine::{Cell, Row},
};

pub(crate) mod airflow;
pub(crate) mod dag;
pub(crate) mod document;
pub(crate) mod run;
pub(crate) mod task_instance;

/// What every table of versioned rows has in common.
pub(crate) struct Table {
    /// The name of the table.
    pub(crate) name: &'static str,
    /// The columns of the table, in the order of the cells.
    pub(crate) columns: &'static [&'static str],
    /// The columns that address a row.
    pub(crate) key: &'static [&'static str],
    /// Columns that an update never touches, beside those of the key and `version`.
    pub(crate) fixed: &'static [&'static str],
    /// Which rows can be addressed, as a condition; empty for all.
    pub(crate) addressable: &'static str,
}

/// Why a column cannot be read: one sentence.
pub(crate) type Unreadable = String;

/// An instant as text that sorts in the order of time.
pub(crate) fn instant(at: Option<Timestamp>) -> Cell {
    Cell::Text(at.map(|at| format!("{at:.9}")))
}

/// A state as its one word.
pub(crate) fn word<T: Serialize>(state: &T) -> Cell {
    match serde_json::to_value(state) {
        Ok(Value::String(word)) => word.into(),
        // A unit variant serialises to a string; were it not so, the column's NOT NULL would refuse the row.
        Ok(_) | Err(_) => Cell::Text(None),
    }
}

/// A text from outside. Postgres cannot store a NUL byte: without this one of them would refuse a whole commit for ever.
pub(crate) fn free_text(text: &str) -> Cell {
    text.replace('\0', "\u{fffd}").into()
}

/// A text from outside that may be missing.
pub(crate) fn opt_free_text(text: Option<&str>) -> Cell {
    text.map_or(Cell::Text(None), free_text)
}

/// A document as JSON text.
pub(crate) fn json(document: &Value) -> Cell {
    document.to_string().into()
}

/// An instant that is always there.
pub(crate) fn read_instant(row: &Row, column: &str) -> Result<Timestamp, Unreadable> {
    parse_instant(&row.text(column)?, column)
}

/// An instant that may be missing.
pub(crate) fn read_opt_instant(row: &Row, column: &str) -> Result<Option<Timestamp>, Unreadable> {
    let text = row.opt_text(column)?;
    text.map(|text| parse_instant(&text, column)).transpose()
}

fn parse_instant(text: &str, column: &str) -> Result<Timestamp, Unreadable> {
    text.parse()
        .map_err(|e| format!("column {column}: expected an RFC 3339 instant, found {text:?}: {e}"))
}

/// A state from its one word.
pub(crate) fn parse_word<T: DeserializeOwned>(word: String, column: &str) -> Result<T, Unreadable> {
    serde_json::from_value(Value::String(word)).map_err(|e| format!("column {column}: {e}"))
}

/// Anything from its JSON text.
pub(crate) fn parse_json<T: DeserializeOwned>(text: &str, column: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|e| format!("column {column}: expected JSON: {e}"))
}

/// A row whose columns `read` reads. `what` names it in the error.
pub(crate) fn read_row<T>(
    what: &str,
    read: impl FnOnce() -> Result<T, Unreadable>,
) -> Result<T, StoreError> {
    read().map_err(|why| StoreError::Corrupt {
        what: what.to_owned(),
        why: why.into(),
    })
}

/// A uuid from its text.
pub(crate) fn read_uuid(text: &str, column: &str) -> Result<Uuid, Unreadable> {
    text.parse()
        .map_err(|e| format!("column {column}: expected a uuid, found {text:?}: {e}"))
}

/// An interval: both ends, or neither.
pub(crate) fn read_interval(
    row: &Row,
    [start, end]: [&str; 2],
) -> Result<Option<(Timestamp, Timestamp)>, Unreadable> {
    let start = read_opt_instant(row, start)?;
    Ok(start.zip(read_opt_instant(row, end)?))
}

/// An integer of the model's type that may be missing.
pub(crate) fn read_opt_int<T: TryFrom<i64>>(
    row: &Row,
    column: &str,
) -> Result<Option<T>, Unreadable> {
    match row.opt_int(column)? {
        None => Ok(None),
        Some(_) => read_int(row, column).map(Some),
    }
}

/// An integer of the model's type.
pub(crate) fn read_int<T: TryFrom<i64>>(row: &Row, column: &str) -> Result<T, Unreadable> {
    let stored = row.int(column)?;
    T::try_from(stored).map_err(|_| format!("column {column}: {stored} is out of range"))
}
