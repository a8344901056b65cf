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
pub(super) fn of(kind: &Kind) -> Value {
    match kind {
        Kind::Json => json!({"any": [1, "thing"]}),
        Kind::Text | Kind::TextUpTo(_) => json!("text"),
        Kind::Integer => json!(7),
        Kind::Between(least, _) => json!(least),
        Kind::Number => json!(1.5),
        Kind::Boolean => json!(true),
        Kind::Instant => json!("2026-01-02T03:04:05.000006Z"),
        Kind::Duration => json!("P1DT2H"),
        Kind::Uuid => json!("019aa3f0-0000-7000-8000-0000118489a4"),
        Kind::Map => json!({"key": [null]}),
        Kind::Words(words) => json!(words.last().unwrap()),
        Kind::List(item) | Kind::SomeOf(item) => json!([of(item)]),
        Kind::Nullable(kind) => of(kind),
        Kind::Either(_, other) => of(other),
        Kind::Pair(first, second) => json!([of(first), of(second)]),
        Kind::Object(schema) => object(schema, Members::All),
        Kind::ByState(alternatives) => object(alternatives[0].schema, Members::All),
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
