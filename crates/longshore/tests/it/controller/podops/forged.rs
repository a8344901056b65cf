//! Only API servers may call the webhooks; every other client of the port is refused.

use std::{fs, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::{Client, Config};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, LABEL_TO_DELETE};
use longshore_podops::webhooks::SECRET;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::join;

use super::{
    http::{self, Asked},
    place::Place,
    scenarios::QUIET,
    world::{CONFIGURATIONS, CONFIGURED, World},
};
use crate::{cluster::config, service_process::Service};

/// A token is refused this long after the webhook configurations had the next one: a minute,
/// another one until the last replica has read that, and something for a busy machine.
const BOUND: Duration = Duration::from_secs(150);

/// The webhooks as their configurations describe them to API servers.
pub(super) struct Door {
    pub(super) client: Client,
    /// The last part of their paths.
    pub(super) token: String,
}

impl Door {
    /// Waits until webhooks at this address are registered.
    pub(super) async fn find(admin: &Client, address: &str) -> Self {
        let (plural, name) = CONFIGURED[0];
        let path = format!("{CONFIGURATIONS}/{plural}/{name}");
        let base = format!("https://{address}");
        loop {
            let found = http::get(admin, &path).await.unwrap_or_default();
            let config = &found["webhooks"][0]["clientConfig"];
            let url = config["url"].as_str().unwrap_or_default();
            if let Some(path) = url.strip_prefix(&base) {
                // Without one where client certificates are needed.
                let token = path.trim_start_matches('/').split('/').nth(1);
                return Self {
                    client: client(&base, config["caBundle"].as_str().unwrap()),
                    token: token.unwrap_or_default().to_owned(),
                };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asks with a token, or without; the status, and the answer where it is 200.
    pub(super) async fn ask(&self, path: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
        let path = match token {
            Some(token) => format!("{path}/{token}?timeout=10s"),
            None => format!("{path}?timeout=10s"),
        };
        match http::create(&self.client, &path, body).await {
            Ok(answer) => (200, answer),
            Err(kube::Error::Api(status)) => (status.code, Value::Null),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A client that trusts the authorities in `bundle`, as API servers do.
fn client(base: &str, bundle: &str) -> Client {
    let bundle = BASE64_STANDARD.decode(bundle).unwrap();
    let authorities = CertificateDer::pem_slice_iter(&bundle);
    let authorities = authorities
        .map(|authority| authority.unwrap().to_vec())
        .collect();
    let mut config = Config::new(base.parse().unwrap());
    config.root_cert = Some(authorities);
    Client::try_from(config).unwrap()
}

/// A review as an API server sends it.
fn review(operation: &str, resource: &str, object: &Value, old_object: &Value) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let metadata = if object.is_null() { old_object } else { object };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "forged", "operation": operation, "dryRun": false,
            "resource": {"group": "", "version": "v1", "resource": resource},
            "subResource": subresource, "namespace": metadata["metadata"]["namespace"],
            "name": metadata["metadata"]["name"], "object": object, "oldObject": old_object,
            "options": {},
        },
    })
}

/// Every kind of review, of a pod that is there.
fn forged(pod: &Value) -> Vec<(&'static str, Value)> {
    let mut changed = pod.clone();
    changed["metadata"]["labels"]["operating.podopslifecycle.kusionstack.io/x"] = json!("1");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
    });
    let hook = json!({"name": "a", "webhook": {"clientConfig": {"url": "http://127.0.0.1:1/"}}});
    let rule = json!({
        "metadata": {"name": "ptr", "namespace": pod["metadata"]["namespace"]},
        "spec": {"selector": {}, "rules": [hook]},
    });
    let none = Value::Null;
    let mutating = "/mutating-generic";
    let validating = "/validating-generic";
    vec![
        (mutating, review("CREATE", "pods", pod, &none)),
        (mutating, review("UPDATE", "pods", &changed, pod)),
        (mutating, review("UPDATE", "pods/status", &changed, pod)),
        (
            mutating,
            review("CREATE", "podtransitionrules", &rule, &none),
        ),
        (validating, review("CREATE", "pods", pod, &none)),
        (validating, review("UPDATE", "pods", &changed, pod)),
        (validating, review("DELETE", "pods", &none, pod)),
        (
            validating,
            review("CREATE", "pods/eviction", &eviction, &none),
        ),
        (
            validating,
            review("CREATE", "podtransitionrules", &rule, &none),
        ),
    ]
}

/// Where client certificates are required, the paths hold no secret, and a client without certificate gets 401.
pub(super) async fn only_certificates_count(world: &World) {
    let door = world.door().await;
    assert_eq!(door.token, "");
    let pod = world.pod("web-0");
    for (path, review) in forged(&pod) {
        for token in [None, Some("0".repeat(64))] {
            let (code, _) = door.ask(path, token.as_deref(), &review).await;
            assert_eq!(code, 401, "{path}: {review}");
        }
    }
}

/// A client without credentials gets 401, and the pod stays as it is.
pub(super) async fn a_forged_review_of_every_kind_gets_401_and_nothing_happens(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    let path = place.core("pods/web-0");
    let pod = http::get(place.client(), &path).await.unwrap();
    let before = place.pod("web-0").await;
    let guessed = "0".repeat(64);
    for (path, review) in forged(&pod) {
        // A connection without credentials is closed after 10 s, and a guess may be compared a second later.
        let door = place.world.door().await;
        for token in [None, Some(""), Some("x"), Some(guessed.as_str())] {
            let (code, _) = door.ask(path, token, &review).await;
            assert_eq!(code, 401, "{path} {token:?}: {review}");
        }
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(place.pod("web-0").await.labels, before.labels);
    for webhook in ["/mutating-generic", "/validating-generic"] {
        let line =
            format!("longshore_webhook_unauthenticated_requests_total{{webhook=\"{webhook}\"}}");
        let value = place.world.metric(&line).await;
        assert!(
            value.is_some_and(|value| value >= 16.0),
            "{line}: {value:?}"
        );
    }
}

/// Not even an API server begins the deletion of a pod by what it says of an earlier one.
pub(super) async fn a_replayed_review_of_a_pod_that_is_gone_does_not_delete_the_next_one(
    place: &Place<'_>,
) {
    place.serving(&["web-0"]).await;
    let path = place.core("pods/web-0");
    let earlier = http::get(place.client(), &path).await.unwrap();
    assert!(place.delete("web-0").await.is_err(), "it is an operation");
    place.until_gone("web-0").await;
    place.serving(&["web-0"]).await;
    let before = place.pod("web-0").await;
    let door = place.world.door().await;
    let replayed = review("DELETE", "pods", &Value::Null, &earlier);
    let (code, answer) = door
        .ask("/validating-generic", Some(&door.token), &replayed)
        .await;
    assert_eq!(code, 200);
    let response = &answer["response"];
    assert_eq!(response["allowed"], false, "{response}");
    let reason = response["status"]["reason"].as_str().unwrap();
    assert!(reason.contains("it was replaced"), "{reason}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(place.pod("web-0").await.labels, before.labels);
}

/// While no controller ran, API servers may have printed the path: it ends, and pods come and go meanwhile.
pub(super) async fn a_token_ends_after_a_restart(place: &Place<'_>, printed: &str) {
    let door = place.world.door().await;
    assert_eq!((door.token.len(), printed.len()), (64, 64));
    assert_ne!(door.token, printed, "replaced at the start");
    // About nothing that the webhook acts upon.
    let harmless = review(
        "CREATE",
        "configmaps",
        &json!({"metadata": {}}),
        &Value::Null,
    );
    let refused = async {
        let mut n = 0;
        loop {
            let (code, _) = door
                .ask("/validating-generic", Some(printed), &harmless)
                .await;
            let name = format!("web-{n}");
            let pod = place.world.pod(&name);
            let made = http::create(place.client(), &place.core("pods"), &pod).await;
            assert!(made.unwrap()["spec"]["readinessGates"].is_array());
            match place.delete(&name).await {
                Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{status:?}"),
                other => panic!("{other:?}"),
            }
            if code == 401 {
                return;
            }
            assert_eq!(code, 200);
            n += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let waiting = async {
        if !place.world.cluster.is_real() {
            end_earlier_tokens(place.world).await;
            // A caller whom nobody knows makes the replica read the Secret.
            let guessed = "0".repeat(64);
            door.ask("/validating-generic", Some(&guessed), &harmless)
                .await;
        }
    };
    let in_time = tokio::time::timeout(BOUND, async { join!(waiting, refused) }).await;
    assert!(in_time.is_ok(), "a printed token is accepted for ever");
}

/// Moves the end of the earlier tokens into the past, once the controller has set it a minute ahead. So the test on the
/// embedded cluster waits for no minute; the test on a real cluster waits for it.
async fn end_earlier_tokens(world: &World) {
    let namespace = &world.cluster.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{SECRET}");
    loop {
        let secret = http::get(world.client(), &path).await.unwrap();
        let tokens = secret["data"]["tokens.json"].as_str().unwrap();
        let mut tokens: Value =
            serde_json::from_slice(&BASE64_STANDARD.decode(tokens).unwrap()).unwrap();
        let earlier = tokens["previous"].as_array_mut().unwrap();
        if !earlier.is_empty() && earlier.iter().all(|it| it["until"].is_string()) {
            for token in earlier {
                token["until"] = json!("2000-01-01T00:00:00Z");
            }
            let patch = json!({
                "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
                "data": {"tokens.json": BASE64_STANDARD.encode(tokens.to_string())},
            });
            let patched = http::patch(world.client(), &path, Asked::Merge, &patch).await;
            if patched.is_ok() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nothing that people see has a token.
pub(super) async fn no_token_is_in_a_log_a_metric_or_a_process_list(
    world: &World,
    tokens: &[String],
) {
    let mut seen = vec![("metrics".to_owned(), world.metrics().await)];
    for entry in fs::read_dir(world.cluster.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "log") {
            seen.push((
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    assert!(seen.len() > 3, "there are logs");
    for file in ["cmdline", "environ"] {
        let path = format!("/proc/{}/{file}", world.process());
        let bytes = fs::read(&path).unwrap();
        seen.push((path, String::from_utf8_lossy(&bytes).into_owned()));
    }
    for (place, text) in seen {
        for token in tokens {
            assert!(!text.contains(token.as_str()), "{place} has a token");
        }
    }
}

/// There the embedded API server shows a client certificate from the start, and the paths have no secret.
#[tokio::test(flavor = "multi_thread")]
async fn standalone_hears_its_own_api_server_and_refuses_whoever_shows_no_certificate() {
    let dags = TempDir::new().unwrap();
    let service = Service::start_ephemeral(dags.path());
    let kubeconfig = service.ready("kubeconfig");
    let admin = Client::try_from(config(kubeconfig.as_ref()).await).unwrap();
    let (plural, name) = CONFIGURED[1];
    let found = loop {
        let path = format!("{CONFIGURATIONS}/{plural}/{name}");
        match http::get(&admin, &path).await {
            Ok(found) => break found["webhooks"][0]["clientConfig"].clone(),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let url = found["url"].as_str().unwrap();
    let base = url.strip_suffix("/validating-generic").unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "labels": {LABEL_CONTROL: CONTROLLED}},
        "spec": {"containers": [{"name": "c", "image": "host", "command": ["sleep", "600"]}]},
    });
    let pod = http::create(&admin, pods, &pod).await.unwrap();
    assert!(
        pod["spec"]["readinessGates"].is_array(),
        "its webhook was heard: {pod}"
    );
    let door = Door {
        client: client(base, found["caBundle"].as_str().unwrap()),
        token: String::new(),
    };
    for (path, review) in forged(&pod) {
        for token in [None, Some("0".repeat(64))] {
            let (code, _) = door.ask(path, token.as_deref(), &review).await;
            assert_eq!(code, 401, "{path}: {review}");
        }
    }
    let pod = http::get(&admin, &format!("{pods}/web-0")).await.unwrap();
    assert_eq!(pod["metadata"]["labels"][LABEL_TO_DELETE], Value::Null);
    // The API server itself begins it.
    let refused = http::delete(&admin, &format!("{pods}/web-0"), json!({})).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        status.message.contains("pod deletion process is underway"),
        "{status:?}"
    );
}
