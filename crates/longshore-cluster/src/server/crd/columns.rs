//! `additionalPrinterColumns` as data for tables.

use serde_json::Value;

use super::json_path::JsonPath;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Boolean,
    /// Shown as the time since then.
    Date,
    Integer,
    Number,
    Text,
}

/// One column of a custom resource's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnType,
    pub(crate) format: String,
    pub(crate) description: String,
    /// Above zero: only in wide output.
    pub(crate) priority: i64,
    path: JsonPath,
}

impl ColumnType {
    /// A type by its name in a definition.
    pub(super) fn named(name: &str) -> Option<ColumnType> {
        Some(match name {
            "boolean" => ColumnType::Boolean,
            "date" => ColumnType::Date,
            "integer" => ColumnType::Integer,
            "number" => ColumnType::Number,
            "string" => ColumnType::Text,
            _ => return None,
        })
    }

    /// The type as tables name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ColumnType::Boolean => "boolean",
            ColumnType::Date => "date",
            ColumnType::Integer => "integer",
            ColumnType::Number => "number",
            ColumnType::Text => "string",
        }
    }
}

impl Column {
    /// Reads an `additionalPrinterColumns` entry; `None` when acceptance would have refused it.
    pub(super) fn read(source: &Value) -> Option<Column> {
        let text = |key: &str| {
            source
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        Some(Column {
            name: text("name"),
            kind: ColumnType::named(&text("type"))?,
            format: text("format"),
            description: text("description"),
            priority: source.get("priority").and_then(Value::as_i64).unwrap_or(0),
            path: JsonPath::parse(&text("jsonPath")).ok()?,
        })
    }

    /// The cell of an object: null when there is nothing of the column's type. A date stays the
    /// timestamp it is; the table shows its age.
    pub(crate) fn value_in(&self, object: &Value) -> Value {
        let found = self.path.find(object);
        let Some(first) = found.first() else {
            return Value::Null;
        };
        match (self.kind, first) {
            (ColumnType::Text, _) => {
                let texts: Vec<String> = found.iter().map(|value| printed(value)).collect();
                texts.join(" ").into()
            }
            (ColumnType::Boolean, Value::Bool(_)) | (ColumnType::Date, Value::String(_)) => {
                (*first).clone()
            }
            (ColumnType::Integer, Value::Number(number)) => match number.as_i64() {
                Some(whole) => whole.into(),
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "integer columns cut fractions off"
                )]
                None => number
                    .as_f64()
                    .map_or(Value::Null, |it| (it.trunc() as i64).into()),
            },
            (ColumnType::Number, Value::Number(_)) => (*first).clone(),
            (
                ColumnType::Boolean | ColumnType::Date | ColumnType::Integer | ColumnType::Number,
                _,
            ) => Value::Null,
        }
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
