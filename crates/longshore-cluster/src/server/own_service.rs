//! What a cluster says of its API server: the Service `default/kubernetes` with its endpoints. And the addresses of all
//! Services, given out from the objects that have them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, PoisonError},
};

use serde_json::{Value, json};

use super::{
    Server,
    error::{ApiError, Result},
    hub::{Change, Collection, CommitError, Draft, Expected, Key},
    meta,
    registry::{Resource, Served, Strategy},
    strategy::{self, Pool, Refusal},
};

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const PORT: u16 = 443;

/// Attempts at one object against concurrent writers.
const ATTEMPTS: usize = 16;

impl Server {
    /// Gives a Service what it needs; objects of other resources need nothing. `old` is the stored one.
    pub(crate) fn allocate(
        &self,
        collection: &Collection,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let resource = &collection.resource;
        if resource.strategy != Strategy::Service {
            return Ok(());
        }
        let namespace = meta::text(object, "/metadata/namespace").to_owned();
        let name = meta::name(object).to_owned();
        let key = Key::new(Some(&namespace), &name);
        let pool = Pool {
            range: self.service_range,
            is_free: &|claim| collection.is_free(claim, &key),
            random: self.random.next(),
            is_of_server: namespace == NAMESPACE && name == NAME,
        };
        strategy::allocate(&pool, object, old).map_err(|refusal| match refusal {
            Refusal::Invalid(causes) => ApiError::invalid_object(resource, &name, causes),
            Refusal::Full(why) => ApiError::internal(why),
        })
    }

    /// Gives addresses to the Services that an earlier version has stored without. Blocks.
    pub(super) fn give_addresses(&self) {
        let Some(Served { collection, .. }) = self.registry.find("", "v1", "services") else {
            return;
        };
        let (services, _) = collection.snapshot(self.hub.revision());
        for stored in services.values() {
            let old = stored.value();
            let mut new = old.clone();
            if meta::text(&old, "/spec/type") == "ExternalName"
                || old["spec"].get("clusterIPs").is_some()
            {
                continue;
            }
            if let Err(error) = self.allocate(&collection, &mut new, Some(&old)) {
                tracing::warn!(%error, service = stored.key.as_str(), "no address for a Service");
                continue;
            }
            let change = Change::Put(Draft::new(&collection.resource, &new));
            let expected = Expected::At(stored.revision);
            let written = self
                .hub
                .commit_now(&collection, stored.key.clone(), expected, change);
            if let Err(error) = written {
                tracing::warn!(%error, service = stored.key.as_str(), "no address for a Service");
            }
        }
    }

    /// Says in the cluster where its API server listens, from now on. Blocks.
    pub(crate) fn announce(&self, address: SocketAddr) {
        let address = match address.ip() {
            ip if ip.is_unspecified() => {
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => address,
        };
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = Some(address);
        // The caller may be a task that has used up its budget, which would never wake here.
        futures::executor::block_on(tokio::task::unconstrained(self.keep_own_service()));
    }

    /// Makes the Service of the API server again when a client has deleted it or its endpoints.
    pub(super) async fn keep_own_service(&self) {
        let address = *self.address.read().unwrap_or_else(PoisonError::into_inner);
        let Some(address) = address else { return };
        let first = self.service_range.first();
        for (group, plural) in [
            ("", "services"),
            ("", "endpoints"),
            ("discovery.k8s.io", "endpointslices"),
        ] {
            if let Some(served) = self.registry.find(group, "v1", plural) {
                let wanted = wanted(plural, address, first);
                self.keep(&served.collection, &wanted).await;
            }
        }
    }

    /// Makes an object of the server's own, or puts back what it says.
    async fn keep(&self, collection: &Arc<Collection>, wanted: &Value) {
        let key = Key::new(Some(NAMESPACE), NAME);
        for _ in 0..ATTEMPTS {
            let stored = collection.get(&key);
            let (object, expected) = match &stored {
                Some(stored) => {
                    let old = stored.value();
                    let new = restored(&collection.resource, &old, wanted);
                    if new == old {
                        return;
                    }
                    (new, Expected::At(stored.revision))
                }
                None => (self.first(&collection.resource, wanted), Expected::Absent),
            };
            let change = Change::Put(Draft::new(&collection.resource, &object));
            let written = self
                .hub
                .commit(collection, key.clone(), expected, change)
                .await;
            match written {
                Ok(_) => return,
                Err(CommitError::Raced | CommitError::Claimed) => {}
                Err(error @ CommitError::Store(_)) => {
                    return tracing::warn!(%error, "the Service default/kubernetes is not stored");
                }
            }
        }
        let resource = collection.resource.plural.as_str();
        tracing::warn!(
            resource,
            "default/kubernetes cannot be made: another Service has its address"
        );
    }

    fn first(&self, resource: &Resource, wanted: &Value) -> Value {
        let mut object = wanted.clone();
        strategy::prepare_create(resource, &mut object);
        self.stamp(&mut object);
        if resource.has_generation {
            meta::metadata(&mut object).insert("generation".into(), 1.into());
        }
        object
    }
}

/// The stored object with what it has to say.
fn restored(resource: &Resource, old: &Value, wanted: &Value) -> Value {
    let mut new = old.clone();
    let mut said = wanted.clone();
    let labels = meta::metadata(&mut said).remove("labels");
    meta::members(&mut said).remove("metadata");
    json_patch::merge(&mut new, &said);
    if let Some(labels) = labels {
        let metadata = meta::metadata(&mut new);
        let present = metadata.entry("labels").or_insert_with(|| json!({}));
        json_patch::merge(present, &labels);
    }
    if resource.has_generation && meta::spec_differs(&new, old) {
        meta::count_generation(&mut new);
    }
    new
}

/// What the three objects say, by their resource.
fn wanted(plural: &str, address: SocketAddr, first: Ipv4Addr) -> Value {
    let metadata = |labels: Value| json!({"namespace": NAMESPACE, "name": NAME, "labels": labels});
    let (ip, port) = (address.ip(), address.port());
    match plural {
        "services" => json!({
            "metadata": metadata(json!({"component": "apiserver", "provider": NAME})),
            "spec": {
                "clusterIP": first, "clusterIPs": [first], "type": "ClusterIP", "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "ports": [{"name": "https", "protocol": "TCP", "port": PORT, "targetPort": port}],
            },
        }),
        "endpoints" => json!({
            "metadata": metadata(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
            "subsets": [{
                "addresses": [{"ip": ip}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }],
        }),
        _ => json!({
            "metadata": metadata(json!({"kubernetes.io/service-name": NAME})),
            "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }),
    }
}

/// Whether objects of a resource may be the server's own.
pub(super) fn may_be_own(resource: &Resource) -> bool {
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    matches!(
        (group, plural),
        ("", "services" | "endpoints") | ("discovery.k8s.io", "endpointslices")
    )
}
