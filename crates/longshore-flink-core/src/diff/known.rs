//! Parts of specs as they are compared: without fields of other versions, which ask for nothing.

use crate::{
    json::{Json, Object},
    spec::{IngressSpec, JobManagerSpec, ResourceRequirements, ResourceSpec},
};

pub(super) fn ingress(it: &IngressSpec) -> IngressSpec {
    IngressSpec {
        other: Object::default(),
        ..it.clone()
    }
}

pub(super) fn job_manager(it: &JobManagerSpec) -> JobManagerSpec {
    JobManagerSpec {
        resource: it.resource.as_ref().map(resource),
        resources: it.resources.as_ref().map(requirements),
        replicas: it.replicas,
        pod_template: it.pod_template.as_ref().map(|it| template(Some(it))),
        other: Object::default(),
    }
}

pub(super) fn resource(it: &ResourceSpec) -> ResourceSpec {
    ResourceSpec {
        other: Object::default(),
        ..it.clone()
    }
}

pub(super) fn requirements(it: &ResourceRequirements) -> ResourceRequirements {
    ResourceRequirements {
        other: Object::default(),
        ..it.clone()
    }
}

/// A pod template without what upstream once let users write beside metadata and spec, and without nulls.
pub(super) fn template(template: Option<&Json>) -> Json {
    let Some(Json::Object(template)) = template else {
        return template.cloned().unwrap_or_default();
    };
    let known = template
        .iter()
        .filter(|(key, _)| matches!(*key, "metadata" | "spec"));
    let known = known.map(|(key, value)| (key, value.clone()));
    without_nulls(&Json::Object(known.collect()))
}

fn without_nulls(json: &Json) -> Json {
    match json {
        Json::Object(object) => {
            let entries = object.iter().filter(|(_, value)| **value != Json::Null);
            let entries = entries.map(|(key, value)| (key, without_nulls(value)));
            Json::Object(entries.collect())
        }
        Json::Array(elements) => Json::Array(elements.iter().map(without_nulls).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => json.clone(),
    }
}
