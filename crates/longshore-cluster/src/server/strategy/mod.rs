//! What a resource does on its own account when its objects are written: defaults, protected parts, validation.

mod data;
mod namespaces;
mod pod_defaults;
mod pods;

use serde_json::{Value, json};

use super::error::Cause;
use super::meta;
use super::registry::{Resource, Strategy};

/// Completes a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    // Nodes register with their status; all others start without one.
    if resource.has_status() && resource.strategy != Strategy::Node {
        meta::members(object).remove("status");
    }
    match resource.strategy {
        Strategy::Pod => pods::prepare_create(object),
        Strategy::Namespace => namespaces::prepare_create(object),
        Strategy::Claim => object["status"] = json!({"phase": "Pending"}),
        Strategy::Service => object["status"] = json!({"loadBalancer": {}}),
        Strategy::Data => data::prepare(object),
        Strategy::Plain | Strategy::Node => {}
    }
}

/// Completes a changed object, and takes back what an ordinary write may not change.
pub(crate) fn prepare_update(resource: &Resource, new: &mut Value, old: &Value) {
    match resource.strategy {
        Strategy::Pod => pods::prepare_update(new),
        Strategy::Namespace => namespaces::prepare_update(new, old),
        Strategy::Data => data::prepare(new),
        Strategy::Plain | Strategy::Node | Strategy::Claim | Strategy::Service => {}
    }
}

/// What is wrong with an object; `old` is there when it is not a new one.
pub(crate) fn violations(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    match (resource.strategy, old) {
        (Strategy::Pod, None) => pods::create_violations(new),
        (Strategy::Pod, Some(old)) => pods::update_violations(new, old),
        (Strategy::Data, _) => data::violations(new, old),
        (Strategy::Plain | Strategy::Node | Strategy::Namespace, _)
        | (Strategy::Claim | Strategy::Service, _) => Vec::new(),
    }
}
