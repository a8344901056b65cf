//! Names of custom resources: first come, first served, within a group.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    definition::{Definition, has_condition},
    schema::texts,
};
use crate::server::meta;

/// The names that a definition requests, or has got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    plural: String,
    singular: String,
    kind: String,
    list_kind: String,
    short_names: Vec<String>,
    source: Value,
}

impl Names {
    pub(super) fn read(source: &Value) -> Names {
        let text = |key: &str| {
            source
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        Names {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: texts(source.get("shortNames")),
            source: source.clone(),
        }
    }

    fn resources(&self) -> impl Iterator<Item = &str> {
        let own = [self.plural.as_str(), self.singular.as_str()];
        own.into_iter()
            .chain(self.short_names.iter().map(String::as_str))
            .filter(|name| !name.is_empty())
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        let own = [self.kind.as_str(), self.list_kind.as_str()];
        own.into_iter().filter(|name| !name.is_empty())
    }
}

/// A requested name that another definition of the group already uses.
struct Conflict {
    reason: &'static str,
    name: String,
}

/// The status that a definition should have, given the others; `Value::Null` members never occur.
pub(super) fn status_of(definition: &Definition, others: &[&Definition], now: Timestamp) -> Value {
    let taken: Vec<Names> = others
        .iter()
        .filter(|other| other.group == definition.group && other.uid != definition.uid)
        .map(|other| Names::read(&other.status["acceptedNames"]))
        .collect();
    let conflict = conflict(&definition.asked, &taken);
    let mut status = definition.status.clone();
    if conflict.is_none() {
        status["acceptedNames"] = definition.asked.source.clone();
    }
    let accepted = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some(Conflict { reason, name }) => {
            ("False", *reason, format!("{name:?} is already in use"))
        }
    };
    set_condition(&mut status, "NamesAccepted", accepted, now);
    // Once established it stays so: its objects need their resource.
    if !has_condition(&status, "Established") {
        let established = if conflict.is_none() {
            let message = "the initial names have been accepted".to_owned();
            ("True", "InitialNamesAccepted", message)
        } else {
            (
                "False",
                "NotAccepted",
                "not all names are accepted".to_owned(),
            )
        };
        set_condition(&mut status, "Established", established, now);
    }
    status
}

fn conflict(asked: &Names, taken: &[Names]) -> Option<Conflict> {
    let resources: BTreeSet<&str> = taken.iter().flat_map(Names::resources).collect();
    let kinds: BTreeSet<&str> = taken.iter().flat_map(Names::kinds).collect();
    let resource_conflict = |reason: &'static str, name: &str| {
        resources.contains(name).then(|| Conflict {
            reason,
            name: name.to_owned(),
        })
    };
    let kind_conflict = |reason: &'static str, name: &str| {
        kinds.contains(name).then(|| Conflict {
            reason,
            name: name.to_owned(),
        })
    };
    let short = |name: &String| resource_conflict("ShortNamesConflict", name);
    resource_conflict("PluralConflict", &asked.plural)
        .or_else(|| resource_conflict("SingularConflict", &asked.singular))
        .or_else(|| asked.short_names.iter().find_map(short))
        .or_else(|| kind_conflict("KindConflict", &asked.kind))
        .or_else(|| kind_conflict("ListKindConflict", &asked.list_kind))
}

/// Sets a condition; its time stands still while its status does.
pub(super) fn set_condition(
    status: &mut Value,
    kind: &str,
    (state, reason, message): (&str, &str, String),
    now: Timestamp,
) {
    let conditions = meta::members(status)
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let mut condition = Map::new();
    let present = conditions.iter().position(|it| it["type"] == kind);
    let since = present
        .map(|at| &conditions[at])
        .filter(|it| it["status"] == state)
        .map_or_else(
            || meta::seconds(now).into(),
            |it| it["lastTransitionTime"].clone(),
        );
    condition.insert("lastTransitionTime".into(), since);
    condition.insert("message".into(), message.into());
    condition.insert("reason".into(), reason.into());
    condition.insert("status".into(), state.into());
    condition.insert("type".into(), kind.into());
    match present {
        Some(at) => conditions[at] = Value::Object(condition),
        None => conditions.push(Value::Object(condition)),
    }
}
