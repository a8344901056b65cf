//! The snapshot that decisions are made on.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use longshore_api::podops::{CONTROLLED, FINALIZER_CLEAN, FINALIZER_CLEAN_BEFORE, LABEL_CONTROL};
use longshore_core::{ObjectRef, Resource, Seen};
use longshore_k8s::metadata::is_deleting;
use serde_json::Value;

use super::table::{Entries, Part};
use crate::cooperation::{holder, lifecycle_finalizer};

/// An employer's name, in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EmployerKey {
    /// The namespace of the employer.
    pub namespace: String,
    /// The name of the employer.
    pub name: String,
}

impl fmt::Display for EmployerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether a pod may have traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The pod may have traffic.
    Ready,
    /// The pod may have no traffic: it is not Ready, is about to be operated on, or goes.
    NotReady,
}

/// An object that has a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Employer {
    /// The address of the object.
    pub target: ObjectRef,
    /// The version that was read: the API server refuses a write when another client was first.
    pub resource_version: Option<String>,
    /// The finalizers of the object.
    pub finalizers: Vec<String>,
    /// Whether it is to have a table: it takes part, and does not go.
    pub is_wanted: bool,
}

impl Employer {
    /// Reads one.
    pub fn of(resource: Resource, object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        let is_controlled = metadata["labels"][LABEL_CONTROL] == CONTROLLED;
        Self {
            target: ObjectRef {
                resource,
                namespace: text("namespace").unwrap_or_default(),
                name: text("name").unwrap_or_default(),
                uid: text("uid"),
            },
            resource_version: text("resourceVersion"),
            finalizers: finalizers
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect(),
            is_wanted: is_controlled && !is_deleting(object),
        }
    }

    /// The finalizer that it has on its pods.
    pub fn finalizer(&self) -> String {
        lifecycle_finalizer(&self.target.name)
    }

    /// As which it is expected by its pods.
    pub fn holder(&self) -> String {
        let ObjectRef {
            resource,
            namespace,
            name,
            ..
        } = &self.target;
        holder(resource.kind, namespace, name)
    }

    /// Whether it waits for its table to be empty before it goes.
    pub fn is_held(&self) -> bool {
        let mut finalizers = self.finalizers.iter();
        finalizers.any(|finalizer| finalizer == FINALIZER_CLEAN)
    }

    /// The finalizers with ours in the place of its earlier form; `None` where there is none of that form.
    pub fn migrated(&self) -> Option<Vec<String>> {
        let before = format!("{FINALIZER_CLEAN_BEFORE}{}", self.target.name);
        let is_before = |finalizer: &&String| **finalizer == before && before != FINALIZER_CLEAN;
        self.finalizers.iter().find(is_before)?;
        let others = self.finalizers.iter();
        let others = others.filter(|it| !is_before(it) && *it != FINALIZER_CLEAN);
        let ours = [FINALIZER_CLEAN.to_owned()];
        Some(others.cloned().chain(ours).collect())
    }
}

/// A pod that an employer selects, or that it has left something on.
#[derive(Clone, Debug, PartialEq)]
pub struct Employee {
    /// The pod.
    pub pod: Pod,
    /// The address of the pod.
    pub target: ObjectRef,
    /// Whether the employer selects the pod.
    pub is_selected: bool,
    /// Under which id it is in the table.
    pub id: Option<String>,
    /// What the table is to have of it, where it is selected.
    pub entry: Option<Value>,
    /// Whether the pod may have traffic.
    pub readiness: Readiness,
}

/// A snapshot of all that a round about an employer reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The employer.
    pub employer: Seen<Employer>,
    /// The pods that it selects, and those that it has left something on.
    pub employees: Seen<Vec<Employee>>,
    /// What the table is to have of the employer.
    pub expected: Entries,
    /// The entries that the table has of the employer.
    pub current_employer: Seen<Entries>,
    /// The entries that the table has of the pods.
    pub current_employees: Seen<Entries>,
    /// The part of the table that could not be written since the last round.
    pub failure: Option<Failure>,
    /// How often an unchanged table is read again.
    pub resync: Duration,
}

/// A part of the table that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The part of the table that could not be written.
    pub part: Part,
    /// The error of the table, for people.
    pub why: String,
}

/// What a table has too little of and too much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// To be created.
    pub create: Entries,
    /// To become this.
    pub update: Entries,
    /// To go; these are the values that they have.
    pub delete: Entries,
}

impl Changes {
    /// The changes that lead from `current` to `expected`.
    pub fn between(current: &Entries, expected: &Entries) -> Self {
        let mut changes = Self::default();
        for (id, value) in expected {
            let of = match current.get(id) {
                None => &mut changes.create,
                Some(current) if current != value => &mut changes.update,
                Some(_) => continue,
            };
            of.insert(id.clone(), value.clone());
        }
        let gone = current.iter().filter(|(id, _)| !expected.contains_key(*id));
        changes.delete = gone
            .map(|(id, value)| (id.clone(), value.clone()))
            .collect();
        changes
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Does them to entries in memory: what a table that is written as a whole needs.
    pub fn apply(&self, entries: &mut BTreeMap<String, Value>) {
        entries.extend(self.create.clone());
        entries.extend(self.update.clone());
        entries.retain(|id, _| !self.delete.contains_key(id));
    }
}

/// The effect of this controller: a table is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The part of the table.
    pub part: Part,
    /// The entries to create, update and delete.
    pub changes: Changes,
}
