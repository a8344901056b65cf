//! Values of each kind.

use serde_json::{Map, Value, json};

use super::*;

/// Which members an object has; those within them have all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Members {
    All,
    Required,
}

/// A value of this kind, as the latest version has it.
pub(super) fn of(kind: &ValueKind) -> Value {
    match kind {
        ValueKind::Json => json!({"any": [1, "thing"]}),
        ValueKind::Text | ValueKind::TextUpTo(_) => json!("text"),
        ValueKind::Integer => json!(7),
        ValueKind::Between(least, _) => json!(least),
        ValueKind::Number => json!(1.5),
        ValueKind::Boolean => json!(true),
        ValueKind::Instant => json!("2026-01-02T03:04:05.000006Z"),
        ValueKind::Duration => json!("P1DT2H"),
        ValueKind::Uuid => json!("019aa3f0-0000-7000-8000-0000118489a4"),
        ValueKind::Map => json!({"key": [null]}),
        ValueKind::Words(words) => json!(words.last().unwrap()),
        ValueKind::List(item) | ValueKind::SomeOf(item) => json!([of(item)]),
        ValueKind::Nullable(kind) => of(kind),
        ValueKind::Either(_, other) => of(other),
        ValueKind::Pair(first, second) => json!([of(first), of(second)]),
        ValueKind::Object(schema) => object(schema, Members::All),
        ValueKind::ByState(alternatives) => object(alternatives[0].schema, Members::All),
    }
}

pub(super) fn object(schema: &Schema, members: Members) -> Value {
    let chosen = schema
        .members_in(ApiVersion::LATEST)
        .filter(|it| members == Members::All || it.presence == Presence::Required);
    let object: Map<String, Value> = chosen
        .map(|it| (it.name.to_owned(), of(&it.kind)))
        .collect();
    object.into()
}
