//! The types of the built-in kinds, compiled to what field validation needs.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value};

use crate::server::openapi::{V2_REFERENCE, definitions};

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// Anything: embedded objects of other types, JSON Schemas, patches.
    Any,
    Text,
    Integer,
    Number,
    Boolean,
    /// A quantity, or a number that may be a percentage.
    TextOrNumber,
    List(Box<Shape>),
    Map(Box<Shape>),
    /// A type with named fields.
    Fields(usize),
}

/// A type with named fields.
pub(super) type Fields = BTreeMap<Box<str>, Shape>;

/// A kind: group, version, kind.
type Kind = (String, String, String);

/// All types.
#[derive(Debug, Default)]
pub(super) struct Types {
    fields: Vec<Fields>,
    kinds: BTreeMap<Kind, usize>,
}

impl Types {
    /// The types of the built-in kinds.
    pub(super) fn known() -> &'static Types {
        static KNOWN: OnceLock<Types> = OnceLock::new();
        KNOWN.get_or_init(|| match definitions() {
            Ok(definitions) => Types::compile(&definitions),
            Err(error) => {
                // Cannot happen with the definitions that this crate was built with.
                tracing::error!(%error, "the built-in types cannot be read: fields go unchecked");
                Types::default()
            }
        })
    }

    /// The fields of a kind.
    pub(super) fn of(&self, group: &str, version: &str, kind: &str) -> Option<&Fields> {
        let kind = (group.to_owned(), version.to_owned(), kind.to_owned());
        self.kinds.get(&kind).map(|index| self.fields(*index))
    }

    pub(super) fn fields(&self, index: usize) -> &Fields {
        &self.fields[index]
    }

    fn compile(definitions: &Map<String, Value>) -> Types {
        let with_fields = definitions
            .iter()
            .filter(|(_, definition)| definition.get("properties").is_some());
        let compiler = Compiler {
            definitions,
            indexes: with_fields
                .clone()
                .enumerate()
                .map(|(index, (name, _))| (name.as_str(), index))
                .collect(),
        };
        let mut types = Types::default();
        for (index, (_, definition)) in with_fields.enumerate() {
            types.fields.push(compiler.fields(definition));
            for kind in definition["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let text = |key: &str| kind[key].as_str().unwrap_or("").to_owned();
                let kind = (text("group"), text("version"), text("kind"));
                types.kinds.insert(kind, index);
            }
        }
        types
    }
}

struct Compiler<'a> {
    definitions: &'a Map<String, Value>,
    /// Types with fields, by name.
    indexes: BTreeMap<&'a str, usize>,
}

impl Compiler<'_> {
    fn fields(&self, definition: &Value) -> Fields {
        let properties = definition["properties"].as_object();
        let fields = properties.into_iter().flatten();
        fields
            .map(|(name, schema)| (name.as_str().into(), self.shape(schema)))
            .collect()
    }

    fn shape(&self, schema: &Value) -> Shape {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.named(reference.strip_prefix(V2_REFERENCE).unwrap_or(reference));
        }
        match schema["type"].as_str() {
            Some("string") if schema["format"] == "int-or-string" => Shape::TextOrNumber,
            Some("string") => Shape::Text,
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            Some("array") => Shape::List(Box::new(self.shape(&schema["items"]))),
            Some("object") => match schema.get("additionalProperties") {
                Some(values) => Shape::Map(Box::new(self.shape(values))),
                None => Shape::Any,
            },
            Some(_) | None => Shape::Any,
        }
    }

    fn named(&self, name: &str) -> Shape {
        match (self.indexes.get(name), self.definitions.get(name)) {
            (Some(index), _) => Shape::Fields(*index),
            (None, Some(_)) if name.ends_with(".Quantity") => Shape::TextOrNumber,
            (None, Some(definition)) => self.shape(definition),
            (None, None) => Shape::Any,
        }
    }
}
