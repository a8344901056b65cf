//! The interface to the table of an employer.

use std::{collections::BTreeMap, future::Future, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use longshore_core::{Resource, Scope};
use serde_json::Value;

use super::model::{Changes, Readiness};

/// `v1` Service.
pub const SERVICE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    scope: Scope::Namespaced,
};

/// What a table has, by id. Equal values are the same; others are updated.
pub type Entries = BTreeMap<String, Value>;

/// What of a table: what it has of the employer itself, as a listener, or of its employees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The entries of the employer itself.
    Employer,
    /// The entries of its pods.
    Employees,
}

/// Knows what the table of an employer has, and what it should have.
///
/// *Assumptions*: [`current`](Self::current) shows what [`change`](Self::change) did; each change may be repeated. One
/// employer has one table: no other controller writes to it what this one would.
pub trait Table: Send + Sync + 'static {
    /// Why the table cannot be read or written.
    type Error: std::error::Error + Send + Sync + 'static;

    /// A name for logs and metrics.
    fn name(&self) -> &'static str;

    /// What kind of objects have such tables. Those of the label `kusionstack.io/control: "true"` do.
    fn employers(&self) -> Resource {
        SERVICE
    }

    /// Whether a pod is one of an employer's: whether the labels of `spec.selector` are on it, as with a Service.
    fn employs(&self, employer: &Value, pod: &Pod) -> bool {
        let selector = employer["spec"]["selector"].as_object();
        let labels = pod.metadata.labels.as_ref();
        selector.is_some_and(|selector| {
            !selector.is_empty()
                && selector.iter().all(|(key, value)| {
                    let label = labels.and_then(|labels| labels.get(key));
                    label.map(String::as_str) == value.as_str()
                })
        })
    }

    /// What the table is to have of the employer itself.
    fn of_employer(&self, employer: &Value) -> Entries {
        let _ = employer;
        Entries::new()
    }

    /// Under which id a pod is in the table, whether or not it may have traffic; `None` while it can have none.
    fn id(&self, employer: &Value, pod: &Pod) -> Option<String>;

    /// What the table is to have of a pod; `None` where the pod is not to be in it. A pod that may not have traffic is
    /// protected no more as soon as the table has what is said here: nothing, or a weight of 0.
    fn of_pod(&self, employer: &Value, pod: &Pod, readiness: Readiness) -> Option<Value>;

    /// The entries that the table has now.
    fn current(
        &self,
        employer: &Value,
        part: Part,
    ) -> impl Future<Output = Result<Entries, Self::Error>> + Send;

    /// Creates, updates and deletes, in this order, as much as possible. After an error the changes
    /// that were made stay, and a later call has the rest.
    ///
    /// # Errors
    /// Some change could not be made.
    fn change(
        &self,
        employer: &Value,
        part: Part,
        changes: &Changes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// How often an unchanged table is read again: another client may have written it.
    fn resync(&self) -> Duration {
        Duration::from_secs(300)
    }
}
