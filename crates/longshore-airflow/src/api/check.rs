//! Checks a value against a schema, and finds what Pydantic would find.
//!
//! Stricter than upstream in one way: a number within a text is no number. The task SDK sends none.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    invalid::{InvalidRequest, LocPart, ValidationError},
    schema::{Alternative, Others, Presence, Schema, ValueKind},
    time::{IsoDuration, UtcDateTime},
    version::ApiVersion,
};

/// Checks the body of a request.
///
/// # Errors
/// All problems that the body has.
pub(super) fn check_body(
    kind: &ValueKind,
    body: &Value,
    version: ApiVersion,
) -> Result<(), InvalidRequest> {
    check("body", kind, body, version)
}

/// Checks a query, as an object of its parameters.
///
/// # Errors
/// All problems that the query has.
pub(super) fn check_query(
    schema: &'static Schema,
    query: &Value,
    version: ApiVersion,
) -> Result<(), InvalidRequest> {
    check("query", &ValueKind::Object(schema), query, version)
}

fn check(
    part: &str,
    kind: &ValueKind,
    value: &Value,
    version: ApiVersion,
) -> Result<(), InvalidRequest> {
    let mut check = Check {
        version,
        loc: vec![part.into()],
        errors: Vec::new(),
    };
    check.value(kind, value);
    if check.errors.is_empty() {
        Ok(())
    } else {
        Err(InvalidRequest(check.errors))
    }
}

/// A FastAPI error about one part of a request that has no body to look into.
pub(super) fn single(kind: &str, loc: &[&str], msg: &str, input: Value) -> InvalidRequest {
    InvalidRequest(vec![ValidationError {
        kind: kind.to_owned(),
        loc: loc.iter().map(|it| LocPart::from(*it)).collect(),
        msg: msg.to_owned(),
        input,
        ctx: None,
    }])
}

struct Check {
    version: ApiVersion,
    /// Where the value is that is looked at.
    loc: Vec<LocPart>,
    errors: Vec<ValidationError>,
}

impl Check {
    fn report(&mut self, kind: &str, msg: impl Into<String>, input: &Value) {
        self.errors.push(ValidationError {
            kind: kind.to_owned(),
            loc: self.loc.clone(),
            msg: msg.into(),
            input: input.clone(),
            ctx: None,
        });
    }

    fn report_words(&mut self, kind: &str, words: &[&str], input: &Value) {
        let expected = one_of(words);
        self.report(kind, format!("Input should be {expected}"), input);
        self.explain("expected", expected.into());
    }

    /// Gives the last error a context.
    fn explain(&mut self, name: &str, value: Value) {
        if let Some(last) = self.errors.last_mut() {
            last.ctx = Some(Map::from_iter([(name.to_owned(), value)]));
        }
    }

    fn within(&mut self, place: LocPart, look: impl FnOnce(&mut Self)) {
        self.loc.push(place);
        look(self);
        self.loc.pop();
    }

    fn value(&mut self, kind: &ValueKind, value: &Value) {
        match kind {
            ValueKind::Json => {}
            ValueKind::Text => self.expect(value.is_string(), "string", value),
            ValueKind::TextUpTo(most) => self.text_up_to(*most, value),
            ValueKind::Integer => self.expect(value.is_i64(), "int", value),
            ValueKind::Between(least, most) => self.between(*least, *most, value),
            ValueKind::Number => self.expect(value.is_number(), "float", value),
            ValueKind::Boolean => self.expect(value.is_boolean(), "bool", value),
            ValueKind::Instant => self.instant(value),
            ValueKind::Duration => {
                self.parsed(value, "time_delta", |it| IsoDuration::parse(it).is_some())
            }
            ValueKind::Uuid => self.parsed(value, "uuid", |it| Uuid::try_parse(it).is_ok()),
            ValueKind::Map => self.expect(value.is_object(), "dict", value),
            ValueKind::Words(words) => self.word(words, value),
            ValueKind::List(item) => self.list(item, value),
            ValueKind::SomeOf(item) => self.some_of(item, value),
            ValueKind::Nullable(_) if value.is_null() => {}
            ValueKind::Nullable(kind) => self.value(kind, value),
            ValueKind::Either(one, other) => self.either(one, other, value),
            ValueKind::Pair(first, second) => self.pair(first, second, value),
            ValueKind::Object(schema) => self.object(schema, value),
            ValueKind::ByState(alternatives) => self.by_state(alternatives, value),
        }
    }

    fn expect(&mut self, is_so: bool, name: &str, value: &Value) {
        if !is_so {
            let what = match name {
                "string" => "string",
                "int" => "integer",
                "float" => "number",
                "bool" => "boolean",
                "list" => "list",
                _ => "dictionary",
            };
            let kind = format!("{name}_type");
            self.report(&kind, format!("Input should be a valid {what}"), value);
        }
    }

    fn text_up_to(&mut self, most: usize, value: &Value) {
        self.expect(value.is_string(), "string", value);
        if value.as_str().is_some_and(|it| it.chars().count() > most) {
            let msg = format!("String should have at most {most} characters");
            self.report("string_too_long", msg, value);
            self.explain("max_length", most.into());
        }
    }

    fn between(&mut self, least: i64, most: i64, value: &Value) {
        self.expect(value.is_i64(), "int", value);
        let Some(number) = value.as_i64() else {
            return;
        };
        if number < least {
            let msg = format!("Input should be greater than or equal to {least}");
            self.report("greater_than_equal", msg, value);
            self.explain("ge", least.into());
        } else if number > most {
            let msg = format!("Input should be less than or equal to {most}");
            self.report("less_than_equal", msg, value);
            self.explain("le", most.into());
        }
    }

    fn some_of(&mut self, item: &ValueKind, value: &Value) {
        if value.as_array().is_some_and(Vec::is_empty) {
            let msg = "List should have at least 1 item after validation, not 0";
            self.report("too_short", msg, value);
        }
        self.list(item, value);
    }

    fn instant(&mut self, value: &Value) {
        let Some(text) = value.as_str() else {
            return self.report("datetime_type", "Input should be a valid datetime", value);
        };
        if UtcDateTime::parse(text).is_some() {
            return;
        }
        if text.parse::<jiff::civil::DateTime>().is_ok() {
            return self.report("timezone_aware", "Input should have timezone info", value);
        }
        let msg = "Input should be a valid datetime or date, expected an instant such as 2026-01-01T00:00:00Z";
        self.report("datetime_from_date_parsing", msg, value);
    }

    fn parsed(&mut self, value: &Value, name: &str, is_valid: impl FnOnce(&str) -> bool) {
        let what = if name == "uuid" { "UUID" } else { "timedelta" };
        match value.as_str() {
            Some(text) if is_valid(text) => {}
            Some(_) => self.report(
                &format!("{name}_parsing"),
                format!("Input should be a valid {what}"),
                value,
            ),
            None => self.report(
                &format!("{name}_type"),
                format!("Input should be a valid {what}"),
                value,
            ),
        }
    }

    fn word(&mut self, words: &[&str], value: &Value) {
        let is_known = value.as_str().is_some_and(|it| words.contains(&it));
        if !is_known {
            // Upstream: a `Literal` for a single word, an enumeration for several.
            let kind = if words.len() == 1 {
                "literal_error"
            } else {
                "enum"
            };
            self.report_words(kind, words, value);
        }
    }

    fn list(&mut self, item: &ValueKind, value: &Value) {
        let Some(items) = value.as_array() else {
            return self.expect(false, "list", value);
        };
        for (at, each) in items.iter().enumerate() {
            self.within(LocPart::Item(at), |check| check.value(item, each));
        }
    }

    fn either(&mut self, one: &ValueKind, other: &ValueKind, value: &Value) {
        let before = self.errors.len();
        self.value(one, value);
        if self.errors.len() == before {
            return;
        }
        let of_one = self.errors.split_off(before);
        self.value(other, value);
        if self.errors.len() > before {
            self.errors.splice(before..before, of_one);
        }
    }

    fn pair(&mut self, first: &ValueKind, second: &ValueKind, value: &Value) {
        match value.as_array().map(Vec::as_slice) {
            Some([one, two]) => {
                self.within(LocPart::Item(0), |check| check.value(first, one));
                self.within(LocPart::Item(1), |check| check.value(second, two));
            }
            Some(_) | None => {
                self.report("tuple_type", "Input should be a valid tuple of two", value);
            }
        }
    }

    fn object(&mut self, schema: &'static Schema, value: &Value) {
        let Some(object) = value.as_object() else {
            let msg = "Input should be a valid dictionary or object to extract fields from";
            return self.report("model_attributes_type", msg, value);
        };
        for member in schema.members_in(self.version) {
            match object.get(member.name) {
                Some(found) => {
                    self.within(member.name.into(), |check| check.value(&member.kind, found));
                }
                None if member.presence == Presence::Required => {
                    self.within(member.name.into(), |check| {
                        check.report("missing", "Field required", value);
                    });
                }
                None => {}
            }
        }
        if schema.others == Others::Ignored {
            return;
        }
        let version = self.version;
        for (name, found) in object {
            if !schema.members_in(version).any(|it| it.name == name) {
                self.within(name.as_str().into(), |check| {
                    check.report("extra_forbidden", "Extra inputs are not permitted", found);
                });
            }
        }
    }

    fn by_state(&mut self, alternatives: &'static [Alternative], value: &Value) {
        let state = value.get("state").and_then(Value::as_str);
        let chosen = alternatives
            .iter()
            .find(|it| state.is_some_and(|state| it.states.contains(&state)))
            .or_else(|| alternatives.iter().find(|it| it.states.is_empty()));
        if let Some(Alternative { tag, schema, .. }) = chosen {
            self.within((*tag).into(), |check| check.object(schema, value));
        }
    }
}

/// `'a', 'b' or 'c'`.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The problem of a body that is no JSON.
pub(super) fn invalid_json(error: &serde_json::Error) -> InvalidRequest {
    let mut invalid = single("json_invalid", &["body"], "JSON decode error", json!({}));
    for problem in &mut invalid.0 {
        problem.loc.push(LocPart::Item(error.column()));
        let why = Value::from(error.to_string());
        problem.ctx = Some(Map::from_iter([("error".to_owned(), why)]));
    }
    invalid
}
