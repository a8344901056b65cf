//! Custom resources for a test's API server.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::Client;
use serde_json::Value;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates the CustomResourceDefinition of this YAML, unless it is there.
///
/// # Panics
///
/// If the YAML is broken, or the API server refuses.
#[expect(clippy::unwrap_used, reason = "the test ends here")]
pub async fn install_definition(client: &Client, yaml: &'static str) {
    let request = http::Request::post(PATH)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(as_json(yaml))
        .unwrap();
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        made => drop(made.unwrap()),
    }
}

/// Each text is read once in a process: the laws make hundreds of API servers.
#[expect(clippy::unwrap_used, reason = "the test ends here")]
fn as_json(yaml: &'static str) -> Vec<u8> {
    static KNOWN: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let read = || {
        let definition: Value = serde_saphyr::from_str(yaml).unwrap();
        definition.to_string().into_bytes()
    };
    known.entry(yaml).or_insert_with(read).clone()
}
