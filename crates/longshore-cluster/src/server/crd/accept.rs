//! Which definitions are taken: defaults, protected parts, and complaints about everything but the
//! schemas.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    columns::ColumnType,
    definition::{has_condition, members, stored_version},
    json_path::JsonPath,
    names::set_condition,
    settle::FINALIZER,
    structural,
};
use crate::server::{error::Cause, meta, names::NameRule};

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
     start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
     regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Completes a new definition.
pub(crate) fn prepare_create(definition: &mut Value) {
    set_defaults(definition);
    let stored = stored_version(&definition["spec"]).to_owned();
    definition["status"] = json!({
        "acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": [stored],
    });
}

/// Completes a changed definition: a new stored version joins those that objects may be stored in.
pub(crate) fn prepare_update(definition: &mut Value) {
    set_defaults(definition);
    let stored = Value::from(stored_version(&definition["spec"]));
    let status = meta::member(definition, "status");
    if let Some(versions) = status
        .entry("storedVersions")
        .or_insert_with(|| json!([]))
        .as_array_mut()
        && !versions.contains(&stored)
    {
        versions.push(stored);
    }
}

/// The state of a definition whose deletion begins.
pub(crate) fn mark_deleted(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = meta::finalizers(definition)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    meta::metadata(definition).insert("finalizers".into(), finalizers.into());
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let pending = ("True", "InstanceDeletionPending", message.to_owned());
    let mut status = definition["status"].take();
    set_condition(&mut status, "Terminating", pending, now);
    definition["status"] = status;
}

fn set_defaults(definition: &mut Value) {
    drop_nulls(definition);
    let spec = meta::member(definition, "spec");
    spec.entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = names
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    if !kind.is_empty() {
        names
            .entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        names
            .entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }
    names.retain(|_, value| value != &json!([]));
}

/// Null counts as absent, but for values that a schema speaks of.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                !member.is_null() || matches!(name.as_str(), "default" | "example")
            });
            for (name, member) in members {
                if !matches!(name.as_str(), "default" | "example" | "enum") || member.is_object() {
                    drop_nulls(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is wrong with a definition; `old` is its stored state, if there is one.
pub(crate) fn violations(definition: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &definition["spec"];
    let mut causes = Vec::new();
    check_name(definition, &mut causes);
    check_group_and_scope(spec, &mut causes);
    check_versions(spec, &mut causes);
    check_names(&spec["names"], &mut causes);
    if spec["preserveUnknownFields"] == Value::Bool(true) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid(
            "spec.preserveUnknownFields",
            &true.into(),
            why,
        ));
    }
    check_conversion(spec, &mut causes);
    let is_schema_known = old.is_some_and(|old| old["spec"]["versions"] == spec["versions"]);
    for (index, version) in list(spec, "versions").enumerate() {
        let path = format!("spec.versions[{index}]");
        if !is_schema_known {
            causes.extend(structural::violations(version, &path));
        }
        check_subresources(version, &path, &mut causes);
        check_columns(version, &path, &mut causes);
        check_selectable_fields(version, &path, &mut causes);
    }
    if let Some(old) = old {
        check_update(definition, old, &mut causes);
    }
    causes
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn check_name(definition: &Value, causes: &mut Vec<Cause>) {
    let spec = &definition["spec"];
    let required = format!(
        "{}.{}",
        meta::text(spec, "/names/plural"),
        meta::text(spec, "/group")
    );
    let name = meta::name(definition);
    if name != required {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), why));
    }
}

fn check_group_and_scope(spec: &Value, causes: &mut Vec<Cause>) {
    let group = meta::text(spec, "/group");
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if let [why, ..] = NameRule::Subdomain.violations(group).as_slice() {
        causes.push(Cause::invalid("spec.group", &group.into(), why));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", &group.into(), why));
    }
    match meta::text(spec, "/scope") {
        "" => causes.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => causes.push(Cause::unsupported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
}

fn check_versions(spec: &Value, causes: &mut Vec<Cause>) {
    let mut names = BTreeSet::new();
    let mut is_unique = true;
    let mut n_stored = 0;
    for (index, version) in list(spec, "versions").enumerate() {
        let name = meta::text(version, "/name");
        is_unique &= names.insert(name);
        n_stored += usize::from(version["storage"] == Value::Bool(true));
        if !is_label_1035(name) {
            let field = format!("spec.versions[{index}].name");
            causes.push(Cause::invalid(&field, &name.into(), LABEL_1035));
        }
    }
    let versions = &spec["versions"];
    if !is_unique {
        causes.push(Cause::invalid(
            "spec.versions",
            versions,
            "must contain unique version names",
        ));
    }
    if n_stored != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", versions, why));
    }
}

/// A label that starts with a letter.
fn is_label_1035(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.contains('.')
        && NameRule::Label.violations(text).is_empty()
}

fn check_names(names: &Value, causes: &mut Vec<Cause>) {
    for (key, is_kind) in [
        ("plural", false),
        ("singular", false),
        ("kind", true),
        ("listKind", true),
    ] {
        let field = format!("spec.names.{key}");
        let name = names.get(key).and_then(Value::as_str).unwrap_or("");
        if name.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if is_kind && !is_label_1035(&name.to_lowercase()) {
            let why = format!("may have mixed case, but should otherwise match: {LABEL_1035}");
            causes.push(Cause::invalid(&field, &name.into(), &why));
        } else if !is_kind && !is_label_1035(name) {
            causes.push(Cause::invalid(&field, &name.into(), LABEL_1035));
        }
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in list(names, key).enumerate() {
            if !name.as_str().is_some_and(is_label_1035) {
                let field = format!("spec.names.{key}[{index}]");
                causes.push(Cause::invalid(&field, name, LABEL_1035));
            }
        }
    }
    let kind = &names["kind"];
    if !kind.is_null() && *kind == names["listKind"] {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid("spec.names.listKind", kind, why));
    }
}

fn check_conversion(spec: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.conversion.strategy";
    match meta::text(spec, "/conversion/strategy") {
        "" => causes.push(Cause::required(field, "")),
        "None" => {}
        "Webhook" => {
            let why = "this server converts between versions by name only; use None";
            causes.push(Cause::invalid(field, &"Webhook".into(), why));
        }
        other => causes.push(Cause::unsupported(field, other, &["None", "Webhook"])),
    }
}

fn check_subresources(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale") else {
        return;
    };
    let rules = [
        ("specReplicasPath", &["spec"][..], ".spec", true),
        ("statusReplicasPath", &["status"][..], ".status", true),
        (
            "labelSelectorPath",
            &["spec", "status"][..],
            "either .spec or .status",
            false,
        ),
    ];
    for (key, roots, shown, is_required) in rules {
        let field = format!("{path}.subresources.scale.{key}");
        let text = scale.get(key).and_then(Value::as_str).unwrap_or("");
        if text.is_empty() {
            if is_required {
                causes.push(Cause::required(&field, ""));
            }
            continue;
        }
        let is_below = members(text)
            .is_some_and(|members| members.len() > 1 && roots.contains(&members[0].as_str()));
        if !is_below {
            let why = format!("should be a json path under {shown}");
            causes.push(Cause::invalid(&field, &text.into(), &why));
        }
    }
}

fn check_columns(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, column) in list(version, "additionalPrinterColumns").enumerate() {
        let field = format!("{path}.additionalPrinterColumns[{index}]");
        let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or("");
        for key in ["name", "type", "jsonPath"] {
            if text(key).is_empty() {
                causes.push(Cause::required(&format!("{field}.{key}"), ""));
            }
        }
        let kind = text("type");
        if !kind.is_empty() && ColumnType::named(kind).is_none() {
            let kinds = ["boolean", "date", "integer", "number", "string"];
            causes.push(Cause::unsupported(&format!("{field}.type"), kind, &kinds));
        }
        let json_path = text("jsonPath");
        if !json_path.is_empty()
            && let Err(error) = JsonPath::parse(json_path)
        {
            let why = format!("is an invalid path: {error}");
            let field = format!("{field}.jsonPath");
            causes.push(Cause::invalid(&field, &json_path.into(), &why));
        }
    }
}

fn check_selectable_fields(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    let fields: Vec<&Value> = list(version, "selectableFields").collect();
    if fields.len() > 8 {
        let message = format!("Too many: {}: must have at most 8 items", fields.len());
        let field = format!("{path}.selectableFields");
        causes.push(Cause::new("FieldValueTooMany", &field, message));
    }
    for (index, declared) in fields.into_iter().enumerate() {
        let field = format!("{path}.selectableFields[{index}].jsonPath");
        let text = meta::text(declared, "/jsonPath");
        let schema = &version["schema"]["openAPIV3Schema"];
        let described = members(text).and_then(|members| {
            members
                .iter()
                .try_fold(schema, |schema, name| schema.get("properties")?.get(name))
        });
        let is_scalar = described
            .is_some_and(|it| matches!(meta::text(it, "/type"), "string" | "boolean" | "integer"));
        if text.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if text.starts_with(".metadata") {
            let why = "must not point to fields in metadata";
            causes.push(Cause::invalid(&field, &text.into(), why));
        } else if !is_scalar {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.push(Cause::invalid(&field, &text.into(), why));
        } else if !seen.insert(text) {
            let message = format!("Duplicate value: {text:?}");
            causes.push(Cause::new("FieldValueDuplicate", &field, message));
        }
    }
}

fn check_update(definition: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let mut fixed = vec!["group", "names/plural"];
    if has_condition(&old["status"], "Established") {
        fixed.extend(["scope", "names/kind"]);
    }
    for pointer in fixed {
        let at = format!("/spec/{pointer}");
        let (new, before) = (definition.pointer(&at), old.pointer(&at));
        if new != before {
            let field = format!("spec.{}", pointer.replace('/', "."));
            let value = new.unwrap_or(&Value::Null);
            causes.push(Cause::invalid(&field, value, "field is immutable"));
        }
    }
    let versions: Vec<&str> = list(&definition["spec"], "versions")
        .map(|version| meta::text(version, "/name"))
        .collect();
    for (index, stored) in list(&definition["status"], "storedVersions").enumerate() {
        if !stored
            .as_str()
            .is_some_and(|stored| versions.contains(&stored))
        {
            let field = format!("status.storedVersions[{index}]");
            causes.push(Cause::invalid(
                &field,
                stored,
                "must appear in spec.versions",
            ));
        }
    }
}
