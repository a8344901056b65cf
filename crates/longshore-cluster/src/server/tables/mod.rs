//! Objects as rows of a table for people: what `kubectl get` shows. Columns and their order are
//! upstream's.

mod age;
mod cluster;
mod config;
mod control;
mod custom;
mod pods;
mod view;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::view::View;
use super::{
    error::{ApiError, Result},
    http::query::Query,
    registry::Resource,
};

/// What each row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowObject {
    None,
    Metadata,
    Whole,
}

impl RowObject {
    /// Reads the option `includeObject`.
    pub(crate) fn asked(query: &Query) -> Result<RowObject> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(RowObject::Metadata),
            "None" => Ok(RowObject::None),
            "Object" => Ok(RowObject::Whole),
            other => Err(ApiError::bad_request(format!(
                "expected includeObject to be None, Metadata or Object, found {other:?}"
            ))),
        }
    }
}

/// A column.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    /// JSON type of its cells.
    cells: &'static str,
    /// Only in wide output.
    is_wide: bool,
}

/// A column of text.
const fn text(name: &'static str) -> Column {
    Column {
        name,
        cells: "string",
        is_wide: false,
    }
}

/// A column of whole numbers.
const fn integer(name: &'static str) -> Column {
    Column {
        cells: "integer",
        ..text(name)
    }
}

/// A column of text in wide output.
const fn wide(name: &'static str) -> Column {
    Column {
        is_wide: true,
        ..text(name)
    }
}

/// How the objects of one kind are shown. There are as many cells as columns.
#[derive(Clone, Copy)]
struct Printer {
    columns: &'static [Column],
    cells: fn(&View<'_>) -> Vec<Value>,
}

/// Name and age, for kinds without columns of their own.
const GENERIC: Printer = Printer {
    columns: &[text("Name"), text("Age")],
    cells: |view| vec![view.name(), view.age()],
};

fn printer(resource: &Resource) -> Printer {
    let qualified = resource.qualified();
    pods::printer(&qualified)
        .or_else(|| workloads::printer(&qualified))
        .or_else(|| cluster::printer(&qualified))
        .or_else(|| config::printer(&qualified))
        .or_else(|| control::printer(&qualified))
        .unwrap_or(GENERIC)
}

/// The columns of a resource, as a table describes them.
pub(crate) fn columns(resource: &Resource) -> Value {
    if let Some(own) = custom::columns_of(resource) {
        return custom::describe(&resource.kind, own);
    }
    let columns = printer(resource).columns.iter().map(|column| {
        let is_name = column.name == "Name";
        json!({
            "name": column.name,
            "type": column.cells,
            "format": if is_name { "name" } else { "" },
            "description": format!("{} of the {}", column.name, resource.kind),
            "priority": i32::from(column.is_wide),
        })
    });
    columns.collect()
}

/// The cells of an object in its stored form.
pub(crate) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let view = View { object, now };
    match custom::columns_of(resource) {
        Some(own) => custom::cells(&view, own),
        None => (printer(resource).cells)(&view),
    }
}

#[cfg(test)]
mod tests;
