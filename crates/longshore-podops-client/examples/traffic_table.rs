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
//! `get`, `create` and `patch` of configmaps.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
};
use longshore_kit::SystemClock;
use longshore_podops_client::consist::{
    self, Changes, ConsistConfig, Entries, Part, Readiness, Table,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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
        "traffic-table"
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

    /// Writes what differs, and makes the table where there is none.
    async fn change(&self, service: &Value, _: Part, changes: &Changes) -> Result<(), Error> {
        let (tables, name) = (self.api(service), name(service));
        if tables.get_opt(&name).await?.is_none() {
            let table = new_table(service);
            tables.create(&PostParams::default(), &table).await?;
        }
        let set = changes.create.iter().chain(&changes.update);
        let set = set.map(|(pod, address)| (pod, address.clone()));
        let gone = changes.delete.keys().map(|pod| (pod, Value::Null));
        let data: BTreeMap<&String, Value> = set.chain(gone).collect();
        let patch = Patch::Merge(json!({"data": data}));
        tables.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// An empty table, which goes with its Service.
fn new_table(service: &Value) -> ConfigMap {
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: text("name").to_owned(),
        uid: text("uid").to_owned(),
        ..OwnerReference::default()
    };
    let mut table = ConfigMap::default();
    table.metadata.name = Some(name(service));
    table.metadata.owner_references = Some(vec![owner]);
    table
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
