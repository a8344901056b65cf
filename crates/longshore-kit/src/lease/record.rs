//! A Lease on the wire.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::uninstall::HOLDER_UNINSTALLED;
use longshore_core::{Resource, Scope};
use serde_json::{Value, json};

use crate::events::micro_time;

/// `coordination.k8s.io/v1` Lease.
pub const LEASE: Resource = Resource {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    scope: Scope::Namespaced,
};

/// What is assumed of a lease that does not say how long it lasts.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its holder; `None` where no process holds it.
    pub(super) holder: Option<String>,
    /// How long others are to wait after a renewal.
    pub(super) duration: Duration,
    /// As its holder wrote it. Only ever compared for being another one.
    pub(super) renew_time: String,
    /// How often the holder changed.
    pub(super) transitions: i64,
    /// The version that says so.
    pub(super) resource_version: String,
}

/// Whether this Lease says that its role was uninstalled.
pub fn is_uninstalled(lease: &Value) -> bool {
    lease["spec"]["holderIdentity"] == HOLDER_UNINSTALLED
}

impl Record {
    /// Reads a Lease. What is missing counts as not said.
    pub(super) fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let holder = text(&spec["holderIdentity"]);
        let seconds = spec["leaseDurationSeconds"].as_u64();
        Self {
            holder: Some(holder).filter(|holder| !holder.is_empty()),
            duration: seconds.map_or(DEFAULT_DURATION, Duration::from_secs),
            renew_time: text(&spec["renewTime"]),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
            resource_version: text(&lease["metadata"]["resourceVersion"]),
        }
    }

    /// Whether both say the same about the lease's holder, and since when it holds the lease.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let said = |record: &Self| {
            (
                record.holder.clone(),
                record.duration,
                record.renew_time.clone(),
                record.transitions,
            )
        };
        said(self) == said(other)
    }
}

/// `spec` of a lease that `holder` takes now.
pub(super) fn taken(holder: &str, duration: Duration, transitions: i64, now: Timestamp) -> Value {
    json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": duration.as_secs().max(1),
        "acquireTime": micro_time(now),
        "renewTime": micro_time(now),
        "leaseTransitions": transitions,
    })
}

/// The change of `spec` that renews it.
pub(super) fn renewed(duration: Duration, now: Timestamp) -> Value {
    json!({"leaseDurationSeconds": duration.as_secs().max(1), "renewTime": micro_time(now)})
}

/// The change of `spec` that lets the lease go: the next candidate that looks may take it at once.
pub(super) fn released(now: Timestamp) -> Value {
    json!({"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": micro_time(now)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_client_go_is_read() {
        let lease = json!({
            "metadata": {"name": "x", "resourceVersion": "42"},
            "spec": {
                "holderIdentity": "pod-1_ab", "leaseDurationSeconds": 30, "leaseTransitions": 2,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:09.000000Z",
            },
        });
        let record = Record::of(&lease);
        assert_eq!(record.holder.as_deref(), Some("pod-1_ab"));
        assert_eq!(record.duration, Duration::from_secs(30));
        assert_eq!(
            (record.transitions, record.resource_version.as_str()),
            (2, "42")
        );
    }

    #[test]
    fn a_lease_without_a_holder_is_free_however_that_is_written() {
        for spec in [
            json!({}),
            json!({"holderIdentity": ""}),
            json!({"holderIdentity": null}),
        ] {
            assert_eq!(Record::of(&json!({"spec": spec})).holder, None);
        }
    }
}
