//! What a cluster has acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use serde_json::{Value, json};

use super::load::{MAPS, SERVICES, get};
use crate::pod_network::create;

/// A token, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) token: String,
    pub(super) user: String,
}

/// A Service as it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownService {
    pub(super) uid: String,
    pub(super) cluster_ip: String,
}

/// Everything that was acknowledged, and what was asked for without an answer.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) services: BTreeMap<String, KnownService>,
    /// Services whose deletion was asked for.
    pub(super) leaving: BTreeSet<String>,
    /// Services whose deletion was acknowledged.
    pub(super) gone: BTreeSet<String>,
    /// ConfigMaps with their uids.
    pub(super) maps: BTreeMap<String, String>,
    /// ConfigMaps that count, with the newest number that was acknowledged.
    pub(super) counters: BTreeMap<String, u64>,
    /// Jobs that have not been counted.
    pub(super) jobs: BTreeSet<String>,
    /// Jobs that have been counted.
    pub(super) n_jobs: u64,
    pub(super) tokens: Vec<Token>,
    pub(super) n_acknowledged: u64,
}

impl Known {
    /// A Service that is there for certain.
    pub(super) fn newest_service(&self) -> Option<&str> {
        let mut names = self.services.keys().rev();
        let certain = names.find(|name| !self.leaving.contains(*name));
        certain.map(String::as_str)
    }

    /// Everything acknowledged is there, and nothing has changed.
    pub(super) async fn check(&self, client: &Client) {
        self.check_services(client).await;
        let maps = by_name(&get(client, MAPS).await);
        for (name, uid) in &self.maps {
            let found = maps.get(name).map(|map| &map["metadata"]["uid"]);
            assert_eq!(found, Some(&json!(uid)), "config map {name}");
        }
        for (name, acknowledged) in &self.counters {
            let found = maps.get(name).and_then(|map| map["data"]["n"].as_str());
            let found: u64 = found.unwrap().parse().unwrap();
            // The write that was on its way may have been done.
            let expected = [*acknowledged, acknowledged + 1];
            assert!(
                expected.contains(&found),
                "{name}: {found} after {acknowledged}"
            );
        }
        for Token { token, user } in &self.tokens {
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                "spec": {"token": token},
            });
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let review = create(client, path, &review).await.unwrap();
            let status = &review["status"];
            assert_eq!(status["authenticated"], true, "a token of {user}: {status}");
            assert_eq!(status["user"]["username"], user.as_str());
        }
    }

    async fn check_services(&self, client: &Client) {
        let found = by_name(&get(client, SERVICES).await);
        for (name, expected) in &self.services {
            let Some(service) = found.get(name) else {
                assert!(self.leaving.contains(name), "the Service {name} is lost");
                continue;
            };
            assert_eq!(&known_service(service), expected, "{name}");
        }
        let back = self.gone.iter().find(|name| found.contains_key(*name));
        assert_eq!(back, None, "a Service is back");
        let all = get(client, "/api/v1/services").await;
        let mut owners: BTreeMap<&str, &Value> = BTreeMap::new();
        for service in all["items"].as_array().unwrap() {
            let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
            if !["", "None"].contains(&address) {
                let other = owners.insert(address, &service["metadata"]["name"]);
                assert_eq!(other, None, "{address} was given out twice");
            }
        }
    }
}

pub(super) fn known_service(service: &Value) -> KnownService {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    KnownService {
        uid: text(&service["metadata"]["uid"]),
        cluster_ip: text(&service["spec"]["clusterIP"]),
    }
}

/// The objects of a list.
pub(super) fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap();
            (name.to_owned(), item.clone())
        })
        .collect()
}
