//! Tables of custom resources: the name, then the columns that their definition names.

use serde_json::{Value, json};

use super::view::View;
use crate::server::{
    crd::{Column, ColumnType},
    registry::Resource,
};

/// The columns that a definition names; none when it names none, and for built-in kinds.
pub(super) fn columns_of(resource: &Resource) -> Option<&[Column]> {
    resource.columns().filter(|columns| !columns.is_empty())
}

/// The columns as a table describes them.
pub(super) fn describe(kind: &str, columns: &[Column]) -> Value {
    let name = json!({
        "name": "Name", "type": "string", "format": "name", "description": format!("Name of the {kind}"),
        "priority": 0,
    });
    let own = columns.iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.kind.name(),
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    std::iter::once(name).chain(own).collect()
}

/// The cells of an object.
pub(super) fn cells(view: &View<'_>, columns: &[Column]) -> Vec<Value> {
    let own = columns.iter().map(|column| cell(view, column));
    std::iter::once(view.name()).chain(own).collect()
}

/// Dates are shown as the time since then.
fn cell(view: &View<'_>, column: &Column) -> Value {
    let value = column.value_in(view.object);
    match (column.kind, &value) {
        (ColumnType::Date, Value::String(date)) => view.since_text(date).into(),
        _ => value,
    }
}
