//! What a resource does on its own account when its objects are written: defaults, protected parts,
//! validation.

pub(crate) mod access;
mod addresses;
mod budgets;
mod control;
mod data;
mod endpoints;
mod jobs;
mod namespaces;
mod pod_defaults;
mod pod_ephemeral;
mod pod_handlers;
mod pod_rules;
mod pod_sysctls;
mod pods;
mod runtimes;
mod services;
pub(crate) mod signing_requests;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    admission, crd,
    error::Cause,
    meta,
    registry::{Resource, Strategy},
};

pub(crate) use pod_defaults::set_defaults as set_pod_defaults;
pub(crate) use services::{Pool, Refusal, allocate};

/// Upstream's complaint about a text that is no IP address.
const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

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
        Strategy::Service => {
            services::set_defaults(object);
            object["status"] = json!({"loadBalancer": {}});
        }
        Strategy::Workload => {
            workloads::set_defaults(&resource.kind, object);
            object["status"] = workloads::first_status(&resource.kind);
        }
        Strategy::Data => data::prepare(object),
        Strategy::Budget => object["status"] = budgets::first_status(),
        Strategy::Access => access::set_defaults(object),
        Strategy::Webhooks => admission::set_defaults(&resource.kind, object),
        Strategy::Definition => crd::prepare_create(object),
        Strategy::Control => {
            control::set_defaults(&resource.kind, object);
            object["status"] = json!({});
        }
        Strategy::SigningRequest => object["status"] = json!({}),
        Strategy::Plain | Strategy::Node | Strategy::Runtime | Strategy::Custom => {}
        Strategy::Endpoints => {}
    }
}

/// Completes a new object that has its name and its uid.
pub(crate) fn finish_create(resource: &Resource, object: &mut Value) {
    if resource.strategy == Strategy::Workload && resource.kind == "Job" {
        jobs::select_own_pods(object);
    }
}

/// Completes a changed object, and takes back what an ordinary write may not change.
pub(crate) fn prepare_update(resource: &Resource, new: &mut Value, old: &Value) {
    match resource.strategy {
        Strategy::Pod => pods::complete(new, Some(old)),
        Strategy::Namespace => namespaces::prepare_update(new, old),
        Strategy::Data => data::prepare(new),
        Strategy::Service => services::prepare_update(new, old),
        Strategy::Workload => {
            workloads::set_defaults(&resource.kind, new);
            if resource.kind == "Job" {
                jobs::prepare_update(new);
            }
        }
        Strategy::Webhooks => admission::set_defaults(&resource.kind, new),
        Strategy::Access => access::set_defaults(new),
        Strategy::Definition => crd::prepare_update(new),
        Strategy::Control => control::set_defaults(&resource.kind, new),
        Strategy::SigningRequest => signing_requests::prepare_update(new, old),
        Strategy::Plain | Strategy::Node | Strategy::Claim => {}
        Strategy::Budget | Strategy::Runtime | Strategy::Custom | Strategy::Endpoints => {}
    }
}

/// Sets the defaults of an object that the server knows before validation. `old` is the stored
/// object, or `None` for a create.
pub(crate) fn set_defaults(resource: &Resource, object: &mut Value, old: Option<&Value>) {
    match resource.strategy {
        Strategy::Pod => pods::complete(object, old),
        Strategy::Data => data::prepare(object),
        Strategy::Service => services::set_defaults(object),
        Strategy::Workload => workloads::set_defaults(&resource.kind, object),
        Strategy::Access => access::set_defaults(object),
        Strategy::Plain | Strategy::Node | Strategy::Namespace | Strategy::Claim => {}
        Strategy::Budget | Strategy::Runtime | Strategy::Webhooks => {}
        Strategy::Definition | Strategy::Custom | Strategy::Endpoints => {}
        Strategy::Control => control::set_defaults(&resource.kind, object),
        Strategy::SigningRequest => {}
    }
}

/// Completes a changed status.
pub(crate) fn prepare_status(resource: &Resource, new: &mut Value, old: &Value, now: Timestamp) {
    if resource.strategy == Strategy::SigningRequest {
        signing_requests::prepare_status(new, old, now);
    }
}

/// Completes a decision about a request for a certificate.
pub(crate) fn prepare_approval(new: &mut Value, old: &Value, now: Timestamp) {
    signing_requests::prepare_approval(new, old, now);
}

/// What is wrong with an object; `old` is there when it is not a new one.
pub(crate) fn violations(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    match (resource.strategy, old) {
        (Strategy::Pod, None) => pods::create_violations(new),
        (Strategy::Pod, Some(old)) => pods::update_violations(new, old),
        (Strategy::Workload, _) => workloads::violations(&resource.kind, new, old),
        (Strategy::Service, _) => services::violations(new, old),
        (Strategy::Data, _) => data::violations(new, old),
        (Strategy::Budget, _) => budgets::violations(new),
        (Strategy::Endpoints, _) => endpoints::violations(&resource.kind, new, old),
        (Strategy::Runtime, _) => runtimes::violations(new, old),
        (Strategy::Access, _) => access::violations(&resource.kind, new, old),
        (Strategy::Webhooks, _) => admission::violations(&resource.kind, new),
        (Strategy::Definition, _) => crd::violations(new, old),
        (Strategy::Custom, _) => resource
            .custom
            .as_ref()
            .map_or_else(Vec::new, |custom| custom.violations(new, old)),
        (Strategy::Plain | Strategy::Node | Strategy::Namespace | Strategy::Claim, _)
        | (Strategy::Control | Strategy::SigningRequest, _) => Vec::new(),
    }
}

/// What is wrong with the ephemeral containers of a pod; `old` is the stored one.
pub(crate) fn ephemeral_violations(new: &Value, old: &Value) -> Vec<Cause> {
    pod_ephemeral::violations(new, old)
}

/// What is wrong with a new status; `old` is the stored object.
pub(crate) fn status_violations(resource: &Resource, new: &Value, old: &Value) -> Vec<Cause> {
    if resource.strategy == Strategy::Workload && resource.kind == "Job" {
        jobs::status_violations(new, old)
    } else if resource.strategy == Strategy::SigningRequest {
        signing_requests::status_violations(new, old)
    } else {
        Vec::new()
    }
}

/// What is wrong with a decision about a request for a certificate.
pub(crate) fn approval_violations(new: &Value, old: &Value) -> Vec<Cause> {
    signing_requests::approval_violations(new, old)
}
