//! Who holds the leases of one name in all namespaces: a controller that works in all of them must not act beside one
//! that works in some of them, whose leases it does not take.

use std::{collections::BTreeMap, time::Duration};

use kube::{Api, Client, api::ListParams, core::DynamicObject};
use longshore_api::tasks::ANNOTATION_ALL_NAMESPACES;
use longshore_core::ObjectRef;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    decide::Sighting,
    record::{self, LEASE, Record},
};
use crate::{
    kind::api_resource,
    requests::{ApiError, Cause},
};

/// A list that is not answered within this time counts as lost.
const LIMIT: Duration = Duration::from_secs(10);

/// A process that holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherHolder {
    /// The namespace of the lease.
    pub namespace: String,
    /// Its name, or that of the mark of a role that was uninstalled.
    pub holder: String,
    /// Whether the lease is the mark of a role that was uninstalled.
    pub is_uninstalled: bool,
    /// Whether it works in all namespaces.
    pub is_everywhere: bool,
}

/// The leases of one name, as they were seen.
///
/// As for an elector, what the clock of a holder says is of no interest: a lease counts as held for as long as it says
/// it lasts, from when it was seen to change.
#[derive(Debug)]
pub struct Survey {
    leases: Api<DynamicObject>,
    name: &'static str,
    started: Instant,
    /// By namespace.
    seen: BTreeMap<String, (Sighting, OtherHolder)>,
}

impl Survey {
    /// Nothing is seen yet.
    pub fn new(client: Client, name: &'static str) -> Self {
        Self {
            leases: Api::all_with(client, &api_resource(LEASE)),
            name,
            started: Instant::now(),
            seen: BTreeMap::new(),
        }
    }

    /// Looks at all of them. Returns those that are held, our own included. One that is seen for the first time counts
    /// as held, unless no process is its holder.
    ///
    /// # Errors
    /// They cannot be listed: nothing is known then.
    pub async fn look(&mut self) -> Result<Vec<OtherHolder>, ApiError> {
        let leases = self.list().await?;
        let now = self.started.elapsed();
        let mut before = std::mem::take(&mut self.seen);
        for lease in &leases {
            let Some((record, holder)) = held(lease, self.name) else {
                continue;
            };
            let before = before.remove(&holder.namespace);
            let before = before.map(|(sighting, _)| sighting);
            let sighting = Sighting::of(record, now, before);
            self.seen
                .insert(holder.namespace.clone(), (sighting, holder));
        }
        let held = self.seen.values().filter(|(it, _)| it.is_held(now));
        Ok(held.map(|(_, holder)| holder.clone()).collect())
    }

    async fn list(&self) -> Result<Vec<Value>, ApiError> {
        let target = ObjectRef {
            resource: LEASE,
            namespace: String::new(),
            name: self.name.to_owned(),
            uid: None,
        };
        let fail = |cause| ApiError::new("list", &target, cause);
        let params = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let list = match timeout(LIMIT, self.leases.list(&params)).await {
            Ok(list) => list.map_err(|error| fail(Cause::from(error)))?,
            Err(_elapsed) => return Err(ApiError::timeout("list", &target, LIMIT)),
        };
        let leases = list.items.into_iter().map(serde_json::to_value);
        leases
            .collect::<Result<_, _>>()
            .map_err(|source| fail(Cause::Unreadable(source)))
    }
}

/// What a lease of this name says, where a process holds it.
fn held(lease: &Value, name: &str) -> Option<(Record, OtherHolder)> {
    let metadata = &lease["metadata"];
    if metadata["name"] != json!(name) {
        return None;
    }
    let record = Record::of(lease);
    let holder = OtherHolder {
        namespace: metadata["namespace"].as_str()?.to_owned(),
        holder: record.holder.clone()?,
        is_uninstalled: record::is_uninstalled(lease),
        is_everywhere: metadata["annotations"][ANNOTATION_ALL_NAMESPACES] == "true",
    };
    Some((record, holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: &Value, annotations: &Value) -> Value {
        json!({
            "metadata": {
                "name": "longshore-tasks", "namespace": "a", "resourceVersion": "7", "annotations": annotations,
            },
            "spec": spec,
        })
    }

    #[test]
    fn who_holds_a_lease_is_read_from_it() {
        let spec = json!({"holderIdentity": "pod-1_ab", "leaseDurationSeconds": 15});
        let found = |lease: &Value, name| held(lease, name).map(|(_, holder)| holder);
        let holder = OtherHolder {
            namespace: "a".to_owned(),
            holder: "pod-1_ab".to_owned(),
            is_uninstalled: false,
            is_everywhere: false,
        };
        let plain = lease(&spec, &Value::Null);
        assert_eq!(found(&plain, "longshore-tasks"), Some(holder.clone()));
        assert_eq!(found(&plain, "longshore-dags"), None);
        for free in [json!({}), json!({"holderIdentity": ""})] {
            let free = lease(&free, &Value::Null);
            assert_eq!(found(&free, "longshore-tasks"), None);
        }
        let everywhere = lease(&spec, &json!({ANNOTATION_ALL_NAMESPACES: "true"}));
        let expected = OtherHolder {
            is_everywhere: true,
            ..holder.clone()
        };
        assert_eq!(found(&everywhere, "longshore-tasks"), Some(expected));
        let mark = json!({"holderIdentity": longshore_api::uninstall::HOLDER_UNINSTALLED});
        let mark = found(&lease(&mark, &Value::Null), "longshore-tasks");
        assert!(mark.unwrap().is_uninstalled);
    }
}
