//! A cooperation controller: keeps the addresses of a Service's pods in a traffic table, and no operation touches a pod
//! before it has left the table.
//!
//! The table is a ConfigMap `<service>-traffic` with an address for each pod; it stands for whatever routes traffic: the
//! backends of a load balancer, the records of a name. Services of the label `kusionstack.io/control: "true"` have one:
//!
//! ```text
//! kubectl label service web kusionstack.io/control=true
//! kubectl get configmap web-traffic -o jsonpath='{.data}'
//! ```
//!
//! What is said here is only what the table has and should have. The framework does the rest: pods get a protection
//! finalizer once they are in the table, leave it as soon as they are about to be operated on, and lose the finalizer then.
//! When the Service goes, or loses the label, all of that is taken back.
//!
//! It needs `get`, `list`, `watch` and `patch` of services and pods, `create` and `patch` of Events (`events.k8s.io`), and
//! `get` and `patch` of configmaps (a server-side apply that makes one needs `create` too).

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams},
};
use longshore_kit::SystemClock;
use longshore_podops_client::consist::{
    self, Changes, ConsistConfig, Entries, Part, Readiness, Table,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// As whom we write.
const MANAGER: &str = "traffic-table";

/// Traffic tables in ConfigMaps.
struct ConfigMaps {
    client: Client,
}

impl ConfigMaps {
    fn api(&self, service: &Value) -> Api<ConfigMap> {
        let namespace = service["metadata"]["namespace"].as_str();
        Api::namespaced(self.client.clone(), namespace.unwrap_or_default())
    }
}

/// The ConfigMap of a Service.
fn name(service: &Value) -> String {
    let name = service["metadata"]["name"].as_str();
    format!("{}-traffic", name.unwrap_or_default())
}

impl Table for ConfigMaps {
    type Error = Error;

    fn name(&self) -> &'static str {
        MANAGER
    }

    /// Pods are in the table by their names.
    fn id(&self, _: &Value, pod: &Pod) -> Option<String> {
        pod.metadata.name.clone()
    }

    /// A pod has its address there while it may have traffic.
    fn of_pod(&self, _: &Value, pod: &Pod, readiness: Readiness) -> Option<Value> {
        let address = pod.status.as_ref()?.pod_ip.as_ref()?;
        (readiness == Readiness::Ready).then(|| json!(address))
    }

    async fn current(&self, service: &Value, part: Part) -> Result<Entries, Error> {
        if part == Part::Employer {
            return Ok(Entries::new()); // There is nothing of the Service itself.
        }
        let table = self.api(service).get_opt(&name(service)).await?;
        let data = table.and_then(|table| table.data).unwrap_or_default();
        let entries = data.into_iter();
        Ok(entries
            .map(|(pod, address)| (pod, json!(address)))
            .collect())
    }

    /// Writes the whole table; an entry that is not there any more is removed, because nobody else owns it.
    async fn change(&self, service: &Value, _: Part, changes: &Changes) -> Result<(), Error> {
        let mut entries: BTreeMap<String, Value> = self.current(service, Part::Employees).await?;
        changes.apply(&mut entries);
        let metadata = &service["metadata"];
        let table = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name(service),
                // It goes with its Service.
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service",
                    "name": metadata["name"], "uid": metadata["uid"],
                }],
            },
            "data": entries,
        });
        let (name, params) = (name(service), PatchParams::apply(MANAGER).force());
        let tables = self.api(service);
        tables.patch(&name, &params, &Patch::Apply(table)).await?;
        Ok(())
    }
}

/// Keeps the tables of all namespaces, until `shutdown`.
pub(crate) async fn run(client: Client, shutdown: CancellationToken) {
    let table = ConfigMaps {
        client: client.clone(),
    };
    let (config, clock) = (ConsistConfig::default(), Arc::new(SystemClock));
    consist::run(table, config, client, clock, shutdown).await;
}

#[tokio::main]
async fn main() -> Result<()> {
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    run(Client::try_default().await?, shutdown).await;
    Ok(())
}
