//! A stored definition, compiled: the resources of its versions.

use std::sync::Arc;

use serde_json::Value;

use super::{
    columns::Column,
    custom::{Custom, ScalePaths},
    json_path::JsonPath,
    names::Names,
    rules::n_rules,
    schema::{Schema, texts},
};
use crate::server::{
    meta,
    names::NameRule,
    registry::{DeletionAnswer, Field, Resource, Scope, StatusWrites, Strategy},
};

/// A definition as the server uses it.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) group: String,
    pub(super) asked: Names,
    /// The status as it is stored.
    pub(super) status: Value,
    pub(super) is_terminating: bool,
    /// The resource of each version, and whether it is served.
    pub(super) versions: Vec<(Arc<Resource>, bool)>,
    /// The resource of the stored version.
    pub(super) stored: Arc<Resource>,
}

impl Definition {
    /// Compiles a definition that was accepted. `known` is its compiled form before this write: the
    /// schemas of an unchanged spec are kept.
    pub(super) fn read(object: &Value, revision: u64, known: Option<&Definition>) -> Definition {
        let uid = meta::text(object, "/metadata/uid").to_owned();
        let generation = object
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let is_terminating = meta::is_deleting(object);
        let spec = &object["spec"];
        let same = known.filter(|known| known.uid == uid && known.generation == generation);
        let resources: Vec<(Resource, bool, bool)> = match same {
            Some(known) => known
                .versions
                .iter()
                .map(|(resource, is_served)| {
                    let is_stored = resource.version == known.stored.version;
                    ((**resource).clone(), *is_served, is_stored)
                })
                .collect(),
            None => compile_versions(spec, revision),
        };
        let mut versions = Vec::new();
        let mut stored = None;
        for (mut resource, is_served, is_stored) in resources {
            if let Some(custom) = &mut resource.custom {
                custom.is_terminating = is_terminating;
            }
            let resource = Arc::new(resource);
            if is_stored {
                stored = Some(Arc::clone(&resource));
            }
            versions.push((resource, is_served));
        }
        let stored = stored
            .or_else(|| versions.first().map(|(resource, _)| Arc::clone(resource)))
            .unwrap_or_else(|| Arc::new(resource_of(spec, &Value::Null, "", revision)));
        Definition {
            uid,
            generation,
            group: meta::text(spec, "/group").to_owned(),
            asked: Names::read(&spec["names"]),
            status: object["status"].clone(),
            is_terminating,
            versions,
            stored,
        }
    }

    /// Whether its status says that it is served.
    pub(super) fn is_established(&self) -> bool {
        has_condition(&self.status, "Established")
    }
}

/// Whether a condition is `True`.
pub(super) fn has_condition(status: &Value, kind: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == kind && it["status"] == "True")
}

/// Name of the version that objects are stored in.
pub(super) fn stored_version(spec: &Value) -> &str {
    let versions = spec.get("versions").and_then(Value::as_array);
    versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == Value::Bool(true))
        .map_or("", |version| meta::text(version, "/name"))
}

fn compile_versions(spec: &Value, revision: u64) -> Vec<(Resource, bool, bool)> {
    let stored = stored_version(spec);
    let versions = spec.get("versions").and_then(Value::as_array);
    versions
        .into_iter()
        .flatten()
        .map(|version| {
            let resource = resource_of(spec, version, stored, revision);
            let is_stored = resource.version == stored;
            (resource, version["served"] == Value::Bool(true), is_stored)
        })
        .collect()
}

fn resource_of(spec: &Value, version: &Value, stored: &str, revision: u64) -> Resource {
    let text = |pointer: &str| meta::text(spec, pointer).to_owned();
    let group = text("/group");
    let name = meta::text(version, "/name").to_owned();
    let has_status = version.pointer("/subresources/status").is_some();
    let scale = version.pointer("/subresources/scale").and_then(scale_paths);
    let custom = Custom {
        schema: Arc::new(Schema::compile(&version["schema"]["openAPIV3Schema"])),
        published: version["schema"]["openAPIV3Schema"].to_string().into(),
        columns: columns(version),
        list_kind: text("/names/listKind"),
        api_version: format!("{group}/{name}"),
        stored_api_version: format!("{group}/{stored}"),
        scale,
        deprecation: deprecation(spec, version, &group, &name),
        n_rules: n_rules(&version["schema"]["openAPIV3Schema"]),
        is_terminating: false,
        since: revision,
    };
    Resource {
        version: name,
        plural: text("/names/plural"),
        kind: text("/names/kind"),
        singular: text("/names/singular"),
        short_names: texts(spec.pointer("/names/shortNames")),
        categories: texts(spec.pointer("/names/categories")),
        scope: match meta::text(spec, "/scope") {
            "Cluster" => Scope::Cluster,
            _ => Scope::Namespaced,
        },
        status: if has_status {
            StatusWrites::StatusOnly
        } else {
            StatusWrites::Nothing
        },
        has_generation: true,
        has_scale: custom.scale.is_some(),
        creates_on_update: false,
        deletion_answer: DeletionAnswer::Status,
        names: NameRule::Subdomain,
        strategy: Strategy::Custom,
        fields: selectable_fields(spec),
        expires: false,
        conversion: None,
        custom: Some(custom),
        group,
    }
}

fn columns(version: &Value) -> Arc<[Column]> {
    let declared = version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array);
    let columns: Vec<Column> = declared
        .into_iter()
        .flatten()
        .filter_map(Column::read)
        .collect();
    if columns.is_empty() {
        let age = serde_json::json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "Time since the object was created.",
        });
        return Column::read(&age).into_iter().collect();
    }
    columns.into()
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let path = |key: &str| members(scale.get(key)?.as_str()?);
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

/// The members of a plain JSON path.
pub(super) fn members(path: &str) -> Option<Vec<String>> {
    JsonPath::parse(path).ok()?.members()
}

/// The fields of all versions: they have the same places, whatever version an object is read in.
fn selectable_fields(spec: &Value) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    let versions = spec.get("versions").and_then(Value::as_array);
    for version in versions.into_iter().flatten() {
        let declared = version.get("selectableFields").and_then(Value::as_array);
        for declared in declared.into_iter().flatten() {
            let Some(members) = members(meta::text(declared, "/jsonPath")) else {
                continue;
            };
            let field = Field::at(&members);
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
    fields
}

fn deprecation(spec: &Value, version: &Value, group: &str, name: &str) -> Option<String> {
    if version["deprecated"] != Value::Bool(true) {
        return None;
    }
    let own = meta::text(version, "/deprecationWarning");
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let kind = meta::text(spec, "/names/kind");
    Some(format!("{group}/{name} {kind} is deprecated"))
}
