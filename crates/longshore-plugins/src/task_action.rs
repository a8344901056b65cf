//! The kind of object that starts one action of a Flyte run.

use longshore_api::flyte;
use longshore_core::{Resource, Scope};

/// `flyte.org/v1` TaskAction.
pub const TASK_ACTION: Resource = Resource {
    group: flyte::GROUP,
    version: flyte::VERSION,
    kind: flyte::KIND,
    plural: "taskactions",
    scope: Scope::Namespaced,
};
