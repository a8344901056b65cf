//! The mark of a role that was uninstalled: its Lease, held without end by a holder that is no process.
//!
//! A controller that holds the lease loses it at its next renewal. A controller that waits for the
//! lease keeps waiting, and one without leases reads the mark from time to time. Writes that the
//! holder has sent before it noticed the mark may arrive for as long as its lease lasts.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_api::uninstall::{HOLDER_UNINSTALLED, UNINSTALLED_FOR_SECONDS};
use longshore_core::{ObjectRef, PatchKind};
use longshore_kit::{
    Clock, Requests, SystemClock,
    lease::{LEASE, is_uninstalled},
};
use serde_json::{Value, json};

use super::objects;
use crate::{
    controller::{mark::LOOK_AGAIN, roles::Role},
    error::UninstallError,
};

pub(super) use crate::controller::mark::undo;

/// The name of the mark in reports.
pub(super) const WHAT: &str = "mark that stops the controllers";
/// The longest duration of a lease that the command waits for.
const LONGEST: Duration = Duration::from_secs(60);

/// The Lease of a role.
pub(super) struct Mark {
    requests: Requests,
    target: ObjectRef,
    /// Whether the role writes anything that the mark has to stop.
    has_lease: bool,
}

/// A mark that is set.
pub(super) struct Set {
    /// How long controllers may act still.
    pub(super) wait: Duration,
    /// The name of the Lease, if this command has set the mark.
    pub(super) objects: Vec<String>,
}

impl Mark {
    pub(super) fn new(requests: Requests, namespace: &str, role: &Role) -> Self {
        Self {
            requests,
            target: target(namespace, role),
            has_lease: role.lease.is_some(),
        }
    }

    pub(super) fn name(&self) -> String {
        objects::name(&self.target)
    }

    pub(super) async fn is_set(&self) -> Result<bool, UninstallError> {
        let found = self.requests.get(&self.target).await?;
        Ok(found.is_some_and(|lease| is_uninstalled(&lease)))
    }

    /// Sets the mark, also when a controller holds the lease.
    pub(super) async fn set(&self) -> Result<Set, UninstallError> {
        loop {
            let found = self.requests.get(&self.target).await?;
            let now = SystemClock.now();
            if let Some(lease) = found.as_ref().filter(|lease| is_uninstalled(lease)) {
                let wait = self.left_to_wait(lease, now);
                return Ok(Set {
                    wait,
                    objects: Vec::new(),
                });
            }
            match self.write(found.as_ref(), now).await {
                Ok(()) => {
                    let holder = found.as_ref().map_or(Duration::ZERO, promised);
                    return Ok(Set {
                        wait: self.wait(holder),
                        objects: vec![self.name()],
                    });
                }
                Err(error) if error.code() == Some(409) => {}
                // The namespace is gone, or goes: no controller has a lease there.
                Err(error) if found.is_none() && matches!(error.code(), Some(403 | 404)) => {
                    let (wait, objects) = (Duration::ZERO, Vec::new());
                    return Ok(Set { wait, objects });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn write(
        &self,
        found: Option<&Value>,
        now: Timestamp,
    ) -> Result<(), longshore_kit::ApiError> {
        let now = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let transitions = found.and_then(|lease| lease["spec"]["leaseTransitions"].as_i64());
        let spec = json!({
            "holderIdentity": HOLDER_UNINSTALLED,
            "leaseDurationSeconds": UNINSTALLED_FOR_SECONDS,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions.unwrap_or_default() + 1,
        });
        let Some(found) = found else {
            let lease = json!({
                "apiVersion": LEASE.api_version(),
                "kind": LEASE.kind,
                "metadata": {"name": self.target.name, "namespace": self.target.namespace},
                "spec": spec,
            });
            return self.requests.create(&self.target, &lease).await.map(drop);
        };
        let version = &found["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let patched = self
            .requests
            .patch(&self.target, None, PatchKind::Merge, patch);
        patched.await.map(drop)
    }

    /// Removes the mark. Returns whether the mark was set.
    pub(super) async fn remove(&self) -> Result<bool, UninstallError> {
        let found = self.requests.get(&self.target).await?;
        let Some(lease) = found.filter(is_uninstalled) else {
            return Ok(false);
        };
        let target = ObjectRef {
            uid: lease["metadata"]["uid"].as_str().map(str::to_owned),
            ..self.target.clone()
        };
        self.requests.delete(&target, None).await?;
        Ok(true)
    }

    /// How long to wait for a mark that an earlier command has set: the lease of the former holder
    /// is not known any more.
    fn left_to_wait(&self, lease: &Value, now: Timestamp) -> Duration {
        let since = lease["spec"]["acquireTime"].as_str();
        let since = since.and_then(|text| text.parse::<Timestamp>().ok());
        let is_recent = since.is_none_or(|at| {
            now.duration_since(at) < SignedDuration::try_from(LONGEST).unwrap_or_default()
        });
        if is_recent {
            self.wait(Duration::from_secs(15))
        } else {
            Duration::ZERO
        }
    }

    /// How long to wait until no controller acts any more: a second more than the holder or a poll
    /// of the mark may take.
    fn wait(&self, holder: Duration) -> Duration {
        if self.has_lease {
            holder.clamp(LOOK_AGAIN, LONGEST) + Duration::from_secs(1)
        } else {
            Duration::ZERO
        }
    }
}

/// How long the holder of the lease may act without a renewal; zero for a lease without holder.
fn promised(lease: &Value) -> Duration {
    let spec = &lease["spec"];
    let is_held = spec["holderIdentity"]
        .as_str()
        .is_some_and(|it| !it.is_empty());
    match spec["leaseDurationSeconds"].as_u64() {
        Some(seconds) if is_held => Duration::from_secs(seconds),
        Some(_) | None => Duration::ZERO,
    }
}

/// The Lease that is the mark of a role.
pub(super) fn target(namespace: &str, role: &Role) -> ObjectRef {
    ObjectRef {
        resource: LEASE,
        namespace: namespace.to_owned(),
        name: role.mark.to_owned(),
        uid: None,
    }
}
