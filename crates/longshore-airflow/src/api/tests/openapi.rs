//! Every path and member is in upstream's document of each version, with that name and kind, and none is missing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{sample::Members, *};

fn documents() -> Vec<(ApiVersion, Value)> {
    let texts = [
        include_str!("../../../testdata/execution-api/openapi-2025-11-05.json"),
        include_str!("../../../testdata/execution-api/openapi-2026-04-06.json"),
        include_str!("../../../testdata/execution-api/openapi-2026-06-30.json"),
    ];
    let documents = ApiVersion::ALL.into_iter().zip(texts);
    let documents: Vec<(ApiVersion, Value)> = documents
        .map(|(version, text)| (version, serde_json::from_str(text).unwrap()))
        .collect();
    for (version, document) in &documents {
        assert_eq!(document["info"]["version"], version.as_str());
    }
    documents
}

/// Schemas of the document that no request and no answer holds.
const NOT_BODIES: [&str; 5] = [
    "BundleInfo",
    "TaskInstance",
    "HTTPValidationError",
    "HTTPExceptionResponse",
    "ValidationError",
];

/// A kind in words, as a document has it.
fn documented(document: &Value, schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap();
        let target = &document["components"]["schemas"][name];
        return match name {
            "JsonValue" => "json".to_owned(),
            _ if target.get("properties").is_some() => name.to_owned(),
            _ => documented(document, target),
        };
    }
    if let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) {
        let alternatives = alternatives.iter().map(|it| documented(document, it));
        return joined(alternatives.collect());
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<&str> = words.iter().map(|it| it.as_str().unwrap()).collect();
        return format!("enum({})", words.join(","));
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => documented_list(document, schema),
        Some("object") => "map".to_owned(),
        Some("string") => match (schema.get("format"), schema.get("maxLength")) {
            (Some(format), _) => format.as_str().unwrap().to_owned(),
            (None, Some(most)) => format!("text<={most}"),
            (None, None) => "text".to_owned(),
        },
        Some("integer") if schema.get("minimum").is_some() => {
            let bound = |name: &str| schema.get(name).map_or(String::new(), Value::to_string);
            format!("int[{},{}]", bound("minimum"), bound("maximum"))
        }
        Some("integer") => "int".to_owned(),
        Some(other) => other.to_owned(),
        None => "json".to_owned(),
    }
}

fn documented_list(document: &Value, schema: &Value) -> String {
    if let Some([first, second]) = schema
        .get("prefixItems")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        let (first, second) = (documented(document, first), documented(document, second));
        return format!("({first},{second})");
    }
    let plus = if schema.get("minItems").is_some() {
        "+"
    } else {
        ""
    };
    format!("[{}]{plus}", documented(document, &schema["items"]))
}

/// Alternatives in one order.
fn joined(mut alternatives: Vec<String>) -> String {
    alternatives.sort();
    alternatives.join("|")
}

/// A kind of ours in the same words.
fn ours(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Json => "json".to_owned(),
        ValueKind::Text => "text".to_owned(),
        ValueKind::TextUpTo(most) => format!("text<={most}"),
        ValueKind::Integer => "int".to_owned(),
        ValueKind::Between(least, i64::MAX) => format!("int[{least},]"),
        ValueKind::Between(least, most) => format!("int[{least},{most}]"),
        ValueKind::Number => "number".to_owned(),
        ValueKind::Boolean => "boolean".to_owned(),
        ValueKind::Instant => "date-time".to_owned(),
        ValueKind::Duration => "duration".to_owned(),
        ValueKind::Uuid => "uuid".to_owned(),
        ValueKind::Map => "map".to_owned(),
        ValueKind::Words(words) => format!("enum({})", words.join(",")),
        ValueKind::List(item) => format!("[{}]", ours(item)),
        ValueKind::SomeOf(item) => format!("[{}]+", ours(item)),
        ValueKind::Nullable(ValueKind::Either(one, other)) => {
            joined(vec![ours(one), ours(other), "null".to_owned()])
        }
        ValueKind::Nullable(kind) => joined(vec![ours(kind), "null".to_owned()]),
        ValueKind::Either(one, other) => joined(vec![ours(one), ours(other)]),
        ValueKind::Pair(first, second) => format!("({},{})", ours(first), ours(second)),
        ValueKind::Object(schema) => schema.name.to_owned(),
        ValueKind::ByState(alternatives) => joined(
            alternatives
                .iter()
                .map(|it| it.schema.name.to_owned())
                .collect(),
        ),
    }
}

/// The members of an object of a document: name, kind, whether it is required.
fn documented_members(document: &Value, name: &str) -> BTreeSet<(String, String, bool)> {
    let schema = &document["components"]["schemas"][name];
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|it| it.iter().any(|it| it == name));
    let properties = schema["properties"].as_object().unwrap().iter();
    properties
        .map(|(name, it)| (name.clone(), documented(document, it), is_required(name)))
        .collect()
}

fn our_members(schema: &Schema, version: ApiVersion) -> BTreeSet<(String, String, bool)> {
    let members = schema.members_in(version);
    members
        .map(|it| {
            let is_null_forbidden =
                matches!(it.life, Life::NotNullBefore(first, _) if version < first);
            let kind = ours(&it.kind);
            let kind = if is_null_forbidden {
                kind.replace("|null", "")
            } else {
                kind
            };
            (it.name.to_owned(), kind, it.presence == Presence::Required)
        })
        .collect()
}

#[test]
fn every_member_is_documented_and_none_is_missing() {
    for (version, document) in documents() {
        let components = document["components"]["schemas"].as_object().unwrap();
        let mut found = 0;
        for schema in schemas::ALL {
            let Some(component) = components.get(schema.name) else {
                assert_ne!(version, ApiVersion::LATEST, "{}", schema.name);
                continue;
            };
            let documented = documented_members(&document, schema.name);
            assert_eq!(
                our_members(schema, version),
                documented,
                "{version} {}",
                schema.name
            );
            let is_strict = component.get("additionalProperties") == Some(&Value::Bool(false));
            assert_eq!(
                schema.others == Others::Forbidden,
                is_strict,
                "{}",
                schema.name
            );
            found += 1;
        }
        let bodies = components.iter().filter(|(name, it)| {
            it.get("properties").is_some() && !NOT_BODIES.contains(&name.as_str())
        });
        assert_eq!(bodies.count(), found, "{version}");
    }
}

#[test]
fn answers_have_the_members_of_their_version() {
    for (version, document) in documents() {
        for schema in schemas::ALL {
            if document["components"]["schemas"].get(schema.name).is_none() {
                continue;
            }
            let mut answer = sample::object(schema, Members::All);
            to_version(&ValueKind::Object(schema), &mut answer, version);
            let written: BTreeSet<&String> = answer.as_object().unwrap().keys().collect();
            let documented = documented_members(&document, schema.name);
            let documented: BTreeSet<&String> = documented.iter().map(|(name, ..)| name).collect();
            assert_eq!(written, documented, "{version} {}", schema.name);
        }
    }
}

/// Method, path, query, body, status and answer of each route.
type Operation = (
    String,
    BTreeSet<(String, String, bool)>,
    Option<String>,
    u16,
    Option<String>,
);

fn documented_operations(document: &Value) -> Vec<(String, Operation)> {
    let content = |it: &Value| {
        let schema = it.pointer("/content/application~1json/schema")?;
        Some(documented(document, schema))
    };
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|it| it["in"] == "query").map(|it| {
                let name = it["name"].as_str().unwrap().to_owned();
                (
                    name,
                    documented(document, &it["schema"]),
                    it["required"] == true,
                )
            });
            let (status, success) = operation["responses"]
                .as_object()
                .unwrap()
                .iter()
                .find(|(status, it)| status.starts_with('2') && it["description"] != ALREADY)
                .unwrap();
            let body = operation.get("requestBody").and_then(content);
            let operation = (
                path.clone(),
                query.collect(),
                body,
                status.parse().unwrap(),
                content(success).filter(|it| it != "json"),
            );
            operations.push((method.to_uppercase(), operation));
        }
    }
    operations.sort();
    operations
}

/// The second success of `/state`: nothing was to do.
const ALREADY: &str = "The TI was already in the requested state";

#[test]
fn every_route_is_documented_and_none_is_missing() {
    for (version, document) in documents() {
        let routes = ROUTES.iter().filter(|it| it.life.includes(version));
        let mut ours: Vec<(String, Operation)> = routes
            .map(|route| {
                // Upstream's route for old clients only has no model of its answer.
                let is_modelled = !matches!(route.life, Life::Before(_));
                let answer = route.answer.as_ref().filter(|_| is_modelled);
                let operation = (
                    route.path.to_owned(),
                    our_members(route.query, version),
                    route.body.as_ref().map(ours),
                    route.status,
                    answer.map(ours).filter(|it| it != "json"),
                );
                (route.method.as_str().to_owned(), operation)
            })
            .collect();
        ours.sort();
        let documented = documented_operations(&document);
        for (ours, documented) in ours.iter().zip(&documented) {
            assert_eq!(ours, documented, "{version}");
        }
        assert_eq!(ours.len(), documented.len(), "{version}");
    }
}

#[test]
fn the_head_of_an_xcom_counts_as_documented() {
    let header = "/paths/~1xcoms~1{dag_id}~1{run_id}~1{task_id}~1{key}/head/responses/200/headers/Content-Range";
    for (version, document) in documents() {
        let pattern = &document.pointer(header).unwrap()["schema"]["pattern"];
        assert_eq!(pattern, r"^map_indexes \d+$", "{version}");
    }
    assert_eq!(map_indexes(12), "map_indexes 12");
}
