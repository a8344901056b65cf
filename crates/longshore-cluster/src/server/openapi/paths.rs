//! Paths of resources, as far as clients read them: which kind a path is about, which options and
//! patch languages a PATCH takes.

use serde_json::{Map, Value, json};

use super::{V2_REFERENCE, document::kinds};
use crate::server::registry::Resource;

/// Generation of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Two,
    Three,
}

/// Languages of patches to built-in kinds.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Verbs on collections and on objects: HTTP method, action.
const ON_COLLECTION: &[(&str, &str)] = &[
    ("get", "list"),
    ("post", "post"),
    ("delete", "deletecollection"),
];
const ON_OBJECT: &[(&str, &str)] = &[
    ("get", "get"),
    ("put", "put"),
    ("patch", "patch"),
    ("delete", "delete"),
];

/// The paths of these resources.
pub(super) fn describe(
    resources: &[&Resource],
    definitions: &Map<String, Value>,
    version: Version,
) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let describer = Describer {
            resource,
            type_name: type_name(resource, definitions),
            version,
        };
        let root = match resource.group.as_str() {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let collection = if resource.is_namespaced() {
            let everywhere = format!("{root}/{}", resource.plural);
            let list = &ON_COLLECTION[..1];
            paths.insert(everywhere, describer.path(list, "ForAllNamespaces"));
            format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
        } else {
            format!("{root}/{}", resource.plural)
        };
        let object = format!("{collection}/{{name}}");
        if resource.has_status() {
            let on_status = &ON_OBJECT[..3];
            let path = describer.path(on_status, "Status");
            paths.insert(format!("{object}/status"), path);
        }
        paths.insert(collection, describer.path(ON_COLLECTION, "Collection"));
        paths.insert(object, describer.path(ON_OBJECT, ""));
    }
    Value::Object(paths)
}

/// The definition of a resource's kind.
fn type_name(resource: &Resource, definitions: &Map<String, Value>) -> Option<String> {
    let is_it = |kind: &Value| {
        kind["group"] == resource.group
            && kind["version"] == resource.version
            && kind["kind"] == resource.kind
    };
    definitions
        .iter()
        .find(|(_, definition)| kinds(definition).iter().any(is_it))
        .map(|(name, _)| name.clone())
}

/// Describes the paths of one resource.
struct Describer<'a> {
    resource: &'a Resource,
    type_name: Option<String>,
    version: Version,
}

impl Describer<'_> {
    fn path(&self, verbs: &[(&str, &str)], suffix: &str) -> Value {
        let operations = verbs.iter().map(|(method, action)| {
            let operation = self.operation(method, action, suffix);
            ((*method).to_owned(), operation)
        });
        Value::Object(operations.collect())
    }

    fn operation(&self, method: &str, action: &str, suffix: &str) -> Value {
        let resource = self.resource;
        let writes = matches!(method, "post" | "put" | "patch");
        let options: &[&str] = match action {
            "list" | "deletecollection" => &["labelSelector", "fieldSelector", "limit", "continue"],
            "get" => &["pretty"],
            "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
            "patch" => &[
                "pretty",
                "dryRun",
                "fieldManager",
                "fieldValidation",
                "force",
            ],
            _ => &["pretty", "dryRun", "fieldManager", "fieldValidation"],
        };
        let mut parameters: Vec<Value> = options.iter().map(|name| self.option(name)).collect();
        let mut operation = json!({
            "operationId": format!("{action}{}{}{}{suffix}", resource.group, resource.version, resource.kind),
            "responses": {"200": self.answer()},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": resource.group, "version": resource.version, "kind": resource.kind,
            },
        });
        if writes {
            match self.version {
                Version::Three => operation["requestBody"] = self.request_body(method),
                Version::Two => {
                    parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": {"type": "object"}}));
                    if method == "patch" {
                        operation["consumes"] = self.patches().into();
                    }
                }
            }
        }
        operation["parameters"] = parameters.into();
        operation
    }

    /// The patch languages of the resource: only built-in kinds have merge keys.
    fn patches(&self) -> &'static [&'static str] {
        match self.resource.custom {
            Some(_) => &PATCHES[..2],
            None => PATCHES,
        }
    }

    fn option(&self, name: &str) -> Value {
        let schema = json!({"type": "string", "uniqueItems": true});
        match self.version {
            Version::Three => json!({"name": name, "in": "query", "schema": schema}),
            Version::Two => {
                json!({"name": name, "in": "query", "type": "string", "uniqueItems": true})
            }
        }
    }

    fn schema(&self) -> Value {
        match (&self.type_name, self.version) {
            (None, _) => json!({"type": "object"}),
            (Some(name), Version::Two) => json!({"$ref": format!("{V2_REFERENCE}{name}")}),
            (Some(name), Version::Three) => {
                json!({"$ref": format!("#/components/schemas/{name}")})
            }
        }
    }

    fn answer(&self) -> Value {
        match self.version {
            Version::Two => json!({"description": "OK", "schema": self.schema()}),
            Version::Three => json!({
                "description": "OK", "content": {"application/json": {"schema": self.schema()}},
            }),
        }
    }

    /// The media types of a body; those of a patch list the patch types that clients may use.
    fn request_body(&self, method: &str) -> Value {
        let content: Map<String, Value> = match method {
            "patch" => self
                .patches()
                .iter()
                .map(|language| {
                    (
                        (*language).to_owned(),
                        json!({"schema": {"type": "object"}}),
                    )
                })
                .collect(),
            _ => [("*/*".to_owned(), json!({"schema": self.schema()}))]
                .into_iter()
                .collect(),
        };
        json!({"required": true, "content": content})
    }
}
