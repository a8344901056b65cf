//! A Service in front of the pods, and the controller that writes its EndpointSlice some time after the pods have
//! changed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use longshore_podops::model::Pod;
use longshore_test::Place;
use serde_json::{Value, json};

const SLICE: &str = "web-1";

/// The uids of the pods that the slice has as ready.
pub(crate) type Routed = Arc<Mutex<BTreeSet<String>>>;

/// The Service, and what its slice says.
pub(crate) struct Front {
    slices: Api<EndpointSlice>,
    written: Mutex<Value>,
    routed: Routed,
}

impl Front {
    /// Makes the Service, with a slice without endpoints.
    pub(crate) async fn open(place: &Place, routed: Routed) -> Self {
        let services: Api<Service> = Api::namespaced(place.client(), place.namespace());
        let service = json!({
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        });
        let service = serde_json::from_value(service).unwrap();
        let params = PostParams::default();
        services.create(&params, &service).await.unwrap();
        let slices: Api<EndpointSlice> = Api::namespaced(place.client(), place.namespace());
        let labels = json!({"kubernetes.io/service-name": "web"});
        let slice = json!({
            "metadata": {"name": SLICE, "labels": labels}, "addressType": "IPv4", "endpoints": [],
        });
        let slice = serde_json::from_value(slice).unwrap();
        slices.create(&params, &slice).await.unwrap();
        Self {
            slices,
            written: Mutex::new(json!([])),
            routed,
        }
    }

    /// Brings the slice up to date. Traffic may come before that is written, and goes after it.
    pub(crate) async fn route(&self, pods: &[Pod]) {
        let is_ready = |pod: &Pod| pod.is_ready && !pod.is_deleting;
        let endpoint = |pod: &Pod| {
            let (name, uid) = (&pod.target.name, &pod.target.uid);
            json!({
                "addresses": ["10.0.0.1"], "conditions": {"ready": is_ready(pod)},
                "targetRef": {"kind": "Pod", "name": name, "uid": uid},
            })
        };
        let endpoints: Value = pods.iter().map(endpoint).collect();
        if *self.written.lock().unwrap() == endpoints {
            return;
        }
        let ready = pods.iter().filter(|pod| is_ready(pod));
        let ready: BTreeSet<String> = ready.filter_map(|pod| pod.target.uid.clone()).collect();
        self.routed.lock().unwrap().extend(ready.clone());
        let patch = Patch::Merge(json!({"endpoints": endpoints}));
        let params = PatchParams::default();
        self.slices.patch(SLICE, &params, &patch).await.unwrap();
        *self.written.lock().unwrap() = endpoints;
        *self.routed.lock().unwrap() = ready;
    }
}
