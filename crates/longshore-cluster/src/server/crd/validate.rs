//! Validation of a value against a schema, with the words of kube-apiserver.
//!
//! Values that did not change since the stored object are not judged again: a schema that became
//! stricter must not freeze the objects it finds.

use serde_json::{Map, Value};

use super::schema::{Additional, ListType, Rules, Schema, Type};
use crate::server::error::Cause;

/// The field of complaints that name none.
const NO_FIELD: &str = "<nil>";

impl Schema {
    /// What is wrong with an object; `old` is its stored state, if there is one.
    pub(crate) fn violations(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        judge(self, object, old, "").causes
    }
}

/// Complaints about a value, and how many checks were made: of several alternatives that all fail,
/// the one that got furthest is reported.
#[derive(Default)]
struct Judgement {
    causes: Vec<Cause>,
    n_checks: usize,
}

impl Judgement {
    fn add(&mut self, other: Judgement) {
        self.causes.extend(other.causes);
        self.n_checks += other.n_checks;
    }

    fn is_good(&self) -> bool {
        self.causes.is_empty()
    }
}

/// A complaint about the value at a path.
pub(super) fn cause(reason: &'static str, path: &str, message: String) -> Cause {
    let field = path.trim_start_matches('.');
    Cause {
        reason,
        message,
        field: if field.is_empty() { NO_FIELD } else { field }.to_owned(),
    }
}

fn invalid(path: &str, value: &Value, demand: &str) -> Cause {
    let message = format!("Invalid value: {}: {path} in body {demand}", shown(value));
    cause("FieldValueInvalid", path, message)
}

fn wrong_type(path: &str, value: &str, expected: &str) -> Cause {
    let message =
        format!("Invalid value: {value:?}: {path} in body must be of type {expected}: {value:?}");
    cause("FieldValueTypeInvalid", path, message)
}

fn composition(path: &str, demand: &str) -> Cause {
    let message = format!("Invalid value: \"\": {path:?} {demand}");
    cause("FieldValueInvalid", "", message)
}

/// A value inside a message: whole numbers without a fraction, everything else as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .map_or_else(String::new, |it| it.to_string()),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.to_string(),
    }
}

fn judge(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Judgement {
    let mut result = Judgement::default();
    if old == Some(value) {
        return result;
    }
    let rules = schema.rules.as_deref();
    judge_type(schema, value, path, &mut result);
    if value.is_null() {
        judge_enum(rules, value, path, &mut result);
        return result;
    }
    if let Some(rules) = rules {
        judge_composition(rules, value, old, path, &mut result);
        match value {
            Value::String(text) => judge_text(rules, text, value, path, &mut result),
            Value::Number(_) => judge_number(rules, value, path, &mut result),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
    if let Value::Array(items) = value {
        judge_items(schema, items, old, path, &mut result);
    }
    judge_enum(rules, value, path, &mut result);
    if let Value::Object(members) = value {
        judge_members(schema, members, old, path, &mut result);
    }
    result.n_checks += 1;
    result
}

fn judge_type(schema: &Schema, value: &Value, path: &str, result: &mut Judgement) {
    let Some(expected) = schema.kind else { return };
    result.n_checks += 1;
    let found = match value {
        Value::Null if schema.is_nullable => return,
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = match expected {
        Type::IntOrString => matches!(found, "integer" | "string"),
        Type::Number => matches!(found, "integer" | "number"),
        Type::Array | Type::Boolean | Type::Integer | Type::Object | Type::String => {
            found == expected.name()
        }
    };
    if fits {
        result.n_checks += 1;
        return;
    }
    // A format that is checked takes the place of the type, unless a text or a list was found.
    let format = schema
        .rules
        .as_ref()
        .and_then(|rules| rules.format.as_ref());
    match format {
        Some(format) if matches!(value, Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            let found = match value.as_number() {
                Some(number) if number.is_f64() => "double",
                Some(_) => "int64",
                None => "",
            };
            result.causes.push(wrong_type(path, found, &format.name));
        }
        Some(_) if matches!(value, Value::Array(_)) => {}
        _ => result.causes.push(wrong_type(path, found, expected.name())),
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|it| it.fract() == 0.0)
}

fn judge_composition(
    rules: &Rules,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    result: &mut Judgement,
) {
    let try_all = |schemas: &[Schema]| -> Vec<Judgement> {
        schemas
            .iter()
            .map(|schema| judge(schema, value, old, path))
            .collect()
    };
    if !rules.any_of.is_empty() {
        let tried = try_all(&rules.any_of);
        if !tried.iter().any(Judgement::is_good) {
            result.causes.push(composition(
                path,
                "must validate at least one schema (anyOf)",
            ));
            result.add(furthest(tried));
        }
    }
    if !rules.one_of.is_empty() {
        let tried = try_all(&rules.one_of);
        let n_good = tried.iter().filter(|it| it.is_good()).count();
        if n_good == 0 {
            let demand = "must validate one and only one schema (oneOf). Found none valid";
            result.causes.push(composition(path, demand));
            result.add(furthest(tried));
        } else if n_good > 1 {
            let demand = format!(
                "must validate one and only one schema (oneOf). Found {n_good} valid alternatives"
            );
            result.causes.push(composition(path, &demand));
        }
    }
    if !rules.all_of.is_empty() {
        let tried = try_all(&rules.all_of);
        let n_good = tried.iter().filter(|it| it.is_good()).count();
        let n_tried = tried.len();
        tried.into_iter().for_each(|it| result.add(it));
        if n_good < n_tried {
            let end = if n_good == 0 { ". None validated" } else { "" };
            let demand = format!("must validate all the schemas (allOf){end}");
            result.causes.push(composition(path, &demand));
        }
    }
    if let Some(not) = &rules.not
        && judge(not, value, None, path).is_good()
    {
        result
            .causes
            .push(composition(path, "must not validate the schema (not)"));
    }
    result.n_checks += 2;
}

/// Of alternatives that all failed, the first of those that passed the most checks.
fn furthest(tried: Vec<Judgement>) -> Judgement {
    tried
        .into_iter()
        .reduce(|best, next| {
            if next.n_checks > best.n_checks {
                next
            } else {
                best
            }
        })
        .unwrap_or_default()
}

fn judge_text(rules: &Rules, text: &str, value: &Value, path: &str, result: &mut Judgement) {
    let length = || text.chars().count() as u64;
    if let Some(limit) = rules.max_length
        && length() > limit
    {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {limit} {unit}");
        result
            .causes
            .push(cause("FieldValueTooLong", path, message));
    } else if let Some(limit) = rules.min_length
        && length() < limit
    {
        let demand = format!("should be at least {limit} chars long");
        result.causes.push(invalid(path, value, &demand));
    } else if let Some(pattern) = &rules.pattern
        && !pattern.is_match(text)
    {
        let demand = format!("should match '{pattern}'");
        result.causes.push(invalid(path, value, &demand));
    }
    if let Some(format) = &rules.format
        && !format.accepts(text)
    {
        result.causes.push(wrong_type(path, text, &format.name));
    }
    result.n_checks += 1;
}

fn judge_number(rules: &Rules, value: &Value, path: &str, result: &mut Judgement) {
    result.n_checks += 2;
    let Some(number) = value.as_f64() else { return };
    // The limit of a whole number is shown as one.
    let limit_shown = |limit: f64| {
        let limit = if value.is_f64() { limit } else { limit.trunc() };
        limit.to_string()
    };
    if let Some(factor) = rules.multiple_of
        && factor > 0.0
        && (number / factor).fract() != 0.0
    {
        let demand = format!("should be a multiple of {}", limit_shown(factor));
        result.causes.push(invalid(path, value, &demand));
    }
    if let Some(bound) = rules.maximum {
        let limit = limit_shown(bound.limit);
        if bound.is_exclusive && number >= bound.limit {
            let demand = format!("should be less than {limit}");
            result.causes.push(invalid(path, value, &demand));
        } else if number > bound.limit {
            let demand = format!("should be less than or equal to {limit}");
            result.causes.push(invalid(path, value, &demand));
        }
    }
    if let Some(bound) = rules.minimum {
        let limit = limit_shown(bound.limit);
        if bound.is_exclusive && number <= bound.limit {
            let demand = format!("should be greater than {limit}");
            result.causes.push(invalid(path, value, &demand));
        } else if number < bound.limit {
            let demand = format!("should be greater than or equal to {limit}");
            result.causes.push(invalid(path, value, &demand));
        }
    }
}

fn judge_enum(rules: Option<&Rules>, value: &Value, path: &str, result: &mut Judgement) {
    result.n_checks += 1;
    let Some(rules) = rules else { return };
    if rules.allowed.is_empty() || (!value.is_null() && rules.allowed.contains(value)) {
        return;
    }
    let allowed: Vec<String> = rules
        .allowed
        .iter()
        .map(|value| match value {
            Value::String(text) => format!("{text:?}"),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => format!("{:?}", shown(value)),
        })
        .collect();
    let message = format!(
        "Unsupported value: {}: supported values: {}",
        shown(value),
        allowed.join(", ")
    );
    result
        .causes
        .push(cause("FieldValueNotSupported", path, message));
}

fn judge_items(
    schema: &Schema,
    items: &[Value],
    old: Option<&Value>,
    path: &str,
    result: &mut Judgement,
) {
    if let Some(like) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let before = old.and_then(|old| stored_item(&schema.list, old, item));
            result.add(judge(like, item, before, &format!("{path}[{index}]")));
        }
    }
    let Some(rules) = &schema.rules else { return };
    let n_items = items.len() as u64;
    if let Some(limit) = rules.min_items
        && n_items < limit
    {
        let demand = format!("should have at least {limit} items");
        result.causes.push(invalid(path, &n_items.into(), &demand));
    }
    if let Some(limit) = rules.max_items
        && n_items > limit
    {
        result.causes.push(too_many(path, n_items, limit));
    }
    result.n_checks += 2;
}

fn too_many(path: &str, found: u64, limit: u64) -> Cause {
    let unit = if limit == 1 { "item" } else { "items" };
    let message = format!("Too many: {found}: must have at most {limit} {unit}");
    cause("FieldValueTooMany", path, message)
}

/// The stored state of an item; `None` for lists whose items have no keys.
fn stored_item<'a>(list: &ListType, old: &'a Value, item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = list else {
        return None;
    };
    let mut stored = old.as_array()?.iter();
    stored.find(|it| keys.iter().all(|key| it.get(key) == item.get(key)))
}

fn judge_members(
    schema: &Schema,
    members: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    result: &mut Judgement,
) {
    result.n_checks += 1;
    let n_members = members.len() as u64;
    let rules = schema.rules.as_deref();
    if let Some(limit) = rules.and_then(|rules| rules.min_properties)
        && n_members < limit
    {
        let demand = format!("should have at least {limit} properties");
        return result
            .causes
            .push(invalid(path, &n_members.into(), &demand));
    }
    if let Some(limit) = rules.and_then(|rules| rules.max_properties)
        && n_members > limit
    {
        return result.causes.push(too_many(path, n_members, limit));
    }
    for (name, member) in members {
        let before = old.and_then(|old| old.get(name));
        let like = schema.properties.get(name).or(match &schema.additional {
            Additional::Like(like) => Some(like),
            Additional::Undeclared | Additional::Anything => None,
        });
        if let Some(like) = like {
            result.add(judge(like, member, before, &join(path, name)));
        }
    }
    for name in rules.into_iter().flat_map(|rules| &rules.required) {
        if !members.contains_key(name) {
            let message = "Required value".to_owned();
            result
                .causes
                .push(cause("FieldValueRequired", &join(path, name), message));
        }
    }
}

/// The path of a member.
fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
