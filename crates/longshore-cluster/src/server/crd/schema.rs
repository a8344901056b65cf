//! A structural schema, compiled once per version of a definition and shared by every request.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::formats::Format;

/// The type of a value as schemas name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

impl Type {
    /// A type by its name in a schema.
    pub(super) fn named(name: &str) -> Option<Type> {
        Some(match name {
            "array" => Type::Array,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "object" => Type::Object,
            "string" => Type::String,
            _ => return None,
        })
    }

    /// How messages name the type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
            Type::IntOrString => "integer,string",
        }
    }
}

/// What a map may hold besides its named properties.
#[derive(Debug, Clone)]
pub(super) enum Additional {
    Undeclared,
    /// `additionalProperties: true`.
    Anything,
    Like(Box<Schema>),
}

/// How the server identifies the items of a list (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListType {
    Atomic,
    Set,
    /// By these members of each item.
    Map(Vec<String>),
}

/// One node of a schema. Absent parts cost a word each, because large definitions have thousands of
/// nodes that say nothing but their type.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(super) kind: Option<Type>,
    pub(super) is_nullable: bool,
    pub(super) default: Option<Box<Value>>,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Schema>>,
    pub(super) preserves_unknown: bool,
    pub(super) is_embedded: bool,
    pub(super) list: ListType,
    pub(super) rules: Option<Box<Rules>>,
}

/// A number that bounds another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    pub(super) limit: f64,
    pub(super) is_exclusive: bool,
}

/// What a schema demands of a value besides its type.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) format: Option<Format>,
    pub(super) allowed: Vec<Value>,
    pub(super) pattern: Option<Regex>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) required: Vec<String>,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Schema>,
}

impl Schema {
    /// Compiles an `openAPIV3Schema`. What acceptance would have refused is left out here.
    pub(crate) fn compile(source: &Value) -> Schema {
        let empty = Map::new();
        let source = source.as_object().unwrap_or(&empty);
        let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
        let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or("");
        let kind = if flag("x-kubernetes-int-or-string") {
            Some(Type::IntOrString)
        } else {
            Type::named(text("type"))
        };
        let properties = source.get("properties").and_then(Value::as_object);
        Schema {
            kind,
            is_nullable: flag("nullable"),
            default: source.get("default").cloned().map(Box::new),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Schema::compile(schema)))
                .collect(),
            additional: match source.get("additionalProperties") {
                Some(Value::Bool(true)) => Additional::Anything,
                Some(schema @ Value::Object(_)) => {
                    Additional::Like(Box::new(Schema::compile(schema)))
                }
                Some(_) | None => Additional::Undeclared,
            },
            items: source
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Schema::compile(items))),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            is_embedded: flag("x-kubernetes-embedded-resource"),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(texts(source.get("x-kubernetes-list-map-keys"))),
                _ => ListType::Atomic,
            },
            rules: Rules::compile(source, kind),
        }
    }

    /// The schema of a member of an object of this schema; `None` when nothing is said about it.
    pub(super) fn member(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Like(schema) => Some(schema),
            Additional::Undeclared | Additional::Anything => None,
        })
    }

    /// Whether null stands for "not there".
    pub(super) fn refuses(&self, value: &Value) -> bool {
        value.is_null() && !self.is_nullable
    }
}

impl Rules {
    fn compile(source: &Map<String, Value>, kind: Option<Type>) -> Option<Box<Rules>> {
        const KEYWORDS: &[&str] = &[
            "format",
            "enum",
            "pattern",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minimum",
            "maximum",
            "multipleOf",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !KEYWORDS.iter().any(|key| source.contains_key(*key)) {
            return None;
        }
        let count = |key: &str| source.get(key).and_then(Value::as_u64);
        let number = |key: &str| source.get(key).and_then(Value::as_f64);
        let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
        let bound = |key: &str, exclusive: &str| {
            number(key).map(|limit| Bound {
                limit,
                is_exclusive: flag(exclusive),
            })
        };
        let schemas = |key: &str| -> Vec<Schema> {
            let list = source.get(key).and_then(Value::as_array);
            list.into_iter().flatten().map(Schema::compile).collect()
        };
        let mut any_of = schemas("anyOf");
        // The usual way to spell int-or-string; the type says it already.
        if kind == Some(Type::IntOrString) && is_int_or_string(&any_of) {
            any_of.clear();
        }
        let pattern = source.get("pattern").and_then(Value::as_str);
        let format = source.get("format").and_then(Value::as_str);
        let rules = Rules {
            format: format.and_then(Format::named),
            allowed: source
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            pattern: pattern.and_then(|pattern| Regex::new(pattern).ok()),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            required: texts(source.get("required")),
            all_of: schemas("allOf"),
            any_of,
            one_of: schemas("oneOf"),
            not: source.get("not").map(Schema::compile),
        };
        (!rules.are_empty()).then(|| Box::new(rules))
    }

    /// Whether there is nothing to check. A format that the server does not check, or the usual
    /// `anyOf` of int-or-string, counts as nothing.
    fn are_empty(&self) -> bool {
        let limits = [
            self.min_length,
            self.max_length,
            self.min_items,
            self.max_items,
            self.min_properties,
            self.max_properties,
        ];
        let schemas = [&self.all_of, &self.any_of, &self.one_of];
        self.format.is_none()
            && self.allowed.is_empty()
            && self.pattern.is_none()
            && limits.iter().all(Option::is_none)
            && self.minimum.is_none()
            && self.maximum.is_none()
            && self.multiple_of.is_none()
            && self.required.is_empty()
            && schemas.iter().all(|list| list.is_empty())
            && self.not.is_none()
    }
}

fn is_int_or_string(any_of: &[Schema]) -> bool {
    let is_only = |schema: &Schema, kind: Type| schema.kind == Some(kind) && schema.rules.is_none();
    matches!(any_of, [first, second] if is_only(first, Type::Integer) && is_only(second, Type::String))
}

/// The strings of a list.
pub(super) fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
