use std::net::SocketAddr;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use longshore_cluster::Cluster;
use longshore_kit::{Contact, SystemClock};
use longshore_plugins::{ScopeBindings, secret_name};
use longshore_webhook::{Certificates, ClientAuthority, Identity, Measures};
use tokio_util::sync::CancellationToken;

use super::*;

const NAMESPACE: &str = "default";
const HOST: &str = "flyte-pod-webhook.default.svc";

/// The webhook behind TLS, and an API server that knows it.
struct World {
    client: Client,
    cache: Arc<SecretCache>,
    http: reqwest::Client,
    address: SocketAddr,
    registered: Value,
    stopping: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

fn of_cluster(requests: &Requests, plural: &'static str, name: &str) -> ObjectRef {
    assert_eq!(requests.client().default_namespace(), NAMESPACE);
    ObjectRef {
        resource: Resource {
            group: "admissionregistration.k8s.io",
            version: "v1",
            kind: "MutatingWebhookConfiguration",
            plural,
            scope: Scope::Cluster,
        },
        namespace: String::new(),
        name: name.to_owned(),
        uid: None,
    }
}

async fn world() -> World {
    let client = Cluster::in_memory().client();
    let requests = Requests::new(client.clone());
    let settings = WebhookSettings {
        secrets_namespace: NAMESPACE.to_owned(),
        bindings: ScopeBindings {
            organization: "o".to_owned(),
            ..ScopeBindings::default()
        },
        ..WebhookSettings::default()
    };
    let cache = Arc::new(SecretCache::default());
    let webhook: Arc<dyn Admission> = Arc::new(SecretsWebhook::new(
        settings.clone(),
        requests.clone(),
        Arc::clone(&cache),
    ));
    let identity = Identity::of_service(NAMESPACE, &settings.secret_name, &settings.service_name);
    let registration = SecretsWebhook::registration(&settings, NAMESPACE);
    let mut certificates = Certificates::new(requests.clone(), Arc::new(SystemClock), identity)
        .publishing(registration);
    let callers = certificates.callers();
    let tls = certificates.first().await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let router = longshore_webhook::router([(PATH, webhook)], callers, &Measures::default());
    let stopping = CancellationToken::new();
    tokio::spawn(longshore_webhook::serve(
        listener,
        tls.clone(),
        router,
        Contact::default(),
        stopping.clone(),
    ));
    tokio::spawn(
        stopping
            .clone()
            .run_until_cancelled_owned(certificates.keep(tls)),
    );
    let target = of_cluster(
        &requests,
        "mutatingwebhookconfigurations",
        &settings.service_name,
    );
    let registered = loop {
        match requests.get(&target).await.unwrap() {
            Some(registered) => break registered,
            None => tokio::task::yield_now().await,
        }
    };
    // As an API server: it trusts what the configuration says, and asks for the name of the Service.
    let bundle = registered["webhooks"][0]["clientConfig"]["caBundle"]
        .as_str()
        .unwrap();
    let bundle = BASE64_STANDARD.decode(bundle).unwrap();
    let http = reqwest::Client::builder()
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(&bundle).unwrap())
        .resolve(HOST, address)
        .build()
        .unwrap();
    World {
        client,
        cache,
        http,
        address,
        registered,
        stopping,
    }
}

impl World {
    async fn keep(&self, name: &str, data: &[(&str, &str)]) {
        self.keep_as(name, data, "Opaque").await;
    }

    async fn keep_as(&self, name: &str, data: &[(&str, &str)], kind: &str) {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let mut secret = Secret {
            data: Some(data.collect()),
            type_: Some(kind.to_owned()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        // API servers ask those of one type for it.
        let account = (
            "kubernetes.io/service-account.name".to_owned(),
            "default".to_owned(),
        );
        secret.metadata.annotations = Some([account].into());
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
    }

    /// Where API servers are told to ask.
    fn path(&self) -> &str {
        let config = &self.registered["webhooks"][0]["clientConfig"];
        config["service"]["path"].as_str().unwrap()
    }

    async fn ask(&self, body: String) -> (u16, Value) {
        self.ask_at(self.path(), body).await
    }

    async fn ask_at(&self, path: &str, body: String) -> (u16, Value) {
        let url = format!("https://{HOST}:{}{path}?timeout=10s", self.address.port());
        let answer = self
            .http
            .post(url)
            .header("content-type", "application/json")
            .body(body);
        let answer = answer.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// The response to the creation of a pod.
    async fn admit(&self, pod: &Value) -> Value {
        self.admit_in(NAMESPACE, pod).await
    }

    async fn admit_in(&self, namespace: &str, pod: &Value) -> Value {
        let mut review = review(pod);
        review["request"]["namespace"] = namespace.into();
        let (status, answer) = self.ask(review.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            answer["response"]["uid"],
            "705ab4f5-6393-11e8-b7cc-42010a800002"
        );
        answer["response"].clone()
    }
}

/// As an API server 1.34 writes it.
fn review(pod: &Value) -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "r-a0-0",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:longshore:longshore", "groups": ["system:authenticated"]},
            "object": pod,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// It asks for `my-key` as the variable MYVAR, and for `k2` as a file: upstream's vectors.
fn pod() -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "r-a0-0",
            "labels": {"organization": "o", "project": "p", "domain": "d", "inject-flyte-secrets": "true"},
            "annotations": {
                "flyte.secrets/s0": "nnsxsoraejwxslllmv3sectnn41w34c6ojsxc4ljojsw1zlooq4carkokzpvmqksbjsw34s6ozqxeoraejgvsvsbkirau",
                "flyte.secrets/s1": "m4zg54lqhiqcezzcbjvwk5j1eargwmrcbjww54loorpxezlrovuxezlnmvxhioraizeuyrik",
            },
        },
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {}}]},
    })
}

fn patch_of(response: &Value) -> Value {
    assert_eq!(response["patchType"], "JSONPatch", "{response}");
    let patch = BASE64_STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    serde_json::from_slice(&patch).unwrap()
}

#[tokio::test]
async fn a_pod_beside_the_secrets_gets_references_over_tls_and_no_value() {
    let world = world().await;
    let of_project = secret_name("o", "d", "p", "my-key");
    let of_file = secret_name("o", "", "", "k2");
    for (name, value) in [
        (&of_project, "value-of-project"),
        (&secret_name("o", "", "", "my-key"), "value-of-org"),
        (&of_file, "file-of-org"),
    ] {
        world.keep(name, &[("id", value)]).await;
    }
    let response = world.admit(&pod()).await;
    assert_eq!(response["allowed"], true);
    let patch = patch_of(&response);
    let patches = patch.as_array().unwrap();
    // Nothing but the spec is changed.
    assert!(
        patches
            .iter()
            .all(|it| it["path"].as_str().unwrap().starts_with("/spec/")),
        "{patch}"
    );
    let text = patch.to_string();
    for value in ["value-of-project", "value-of-org", "file-of-org"] {
        let encoded = BASE64_STANDARD.encode(value);
        assert!(!text.contains(value) && !text.contains(&encoded), "{text}");
    }
    let reference =
        json!({"name": "MYVAR", "valueFrom": {"secretKeyRef": {"name": of_project, "key": "id"}}});
    assert!(text.contains(&reference.to_string()), "{text}");
    let source = json!({"secret": {"name": of_file, "items": [{"key": "id", "path": "k2"}]}});
    assert!(text.contains(&source.to_string()), "{text}");
    assert_eq!(world.admit(&pod()).await, response);
}

#[tokio::test]
async fn a_pod_in_the_namespace_of_its_project_gets_values_and_in_one_of_others_none() {
    let world = world().await;
    for (key, value) in [("my-key", "value-of-project"), ("k2", "file-of-project")] {
        let name = secret_name("o", "d", "p", key);
        world.keep(&name, &[("id", value)]).await;
    }
    let response = world.admit_in("p-d", &pod()).await;
    let text = patch_of(&response).to_string();
    let variable = r#"{"name":"MYVAR","value":"value-of-project"}"#;
    assert!(text.contains(variable), "{text}");
    let line = format!("k2={}", BASE64_STANDARD.encode("file-of-project"));
    assert!(text.contains(&line), "{text}");
    // What the object says of its namespace counts for nothing.
    let mut pod = pod();
    pod["metadata"]["namespace"] = "p-d".into();
    for namespace in ["q-d", "p-e", "kube-public", ""] {
        let response = world.admit_in(namespace, &pod).await;
        assert_eq!(response["allowed"], false, "{namespace}");
        assert_eq!(response["patch"], Value::Null);
        let message = response["status"]["message"].as_str().unwrap();
        let names_both = message.contains(r#"project "p" in domain "d" of organization "o""#)
            && message.contains(&format!("in namespace {namespace:?}"));
        assert!(names_both, "{message}");
        assert!(!message.contains("value-of-project"), "{message}");
    }
}

#[tokio::test]
async fn a_secret_that_changes_is_known_once_that_is_told() {
    let world = world().await;
    let name = secret_name("o", "d", "", "k2");
    world.keep(&name, &[("id", "old")]).await;
    let mut asking = pod();
    asking["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("flyte.secrets/s0");
    let value = async || {
        // A pod elsewhere: one beside the Secret refers to it.
        let patch = patch_of(&world.admit_in("p-d", &asking).await).to_string();
        [("old", "k2=b2xk"), ("new", "k2=bmV3")]
            .into_iter()
            .find(|(_, line)| patch.contains(line))
            .unwrap()
            .0
    };
    assert_eq!(value().await, "old");
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    secrets.delete(&name, &Default::default()).await.unwrap();
    world.keep(&name, &[("id", "new")]).await;
    assert_eq!(value().await, "old");
    world.cache.forget(&name);
    assert_eq!(value().await, "new");
}

#[tokio::test]
async fn a_pod_without_its_secrets_is_refused_with_the_reason() {
    let world = world().await;
    let unlabelled = {
        let mut pod = pod();
        pod["metadata"]["labels"] = json!({"inject-flyte-secrets": "true"});
        pod
    };
    let undecodable = {
        let mut pod = pod();
        pod["metadata"]["annotations"]["flyte.secrets/s0"] = "!".into();
        pod
    };
    let of_file = secret_name("o", "d", "p", "k2");
    world.keep(&of_file, &[("a", "1"), ("b", "2")]).await;
    let of_variable = secret_name("o", "d", "p", "my-key");
    let tls = [("tls.key", "key-of-somebody")];
    let only_file = {
        let mut pod = pod();
        pod["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("flyte.secrets/s0");
        pod
    };
    for (pod, expected) in [
        (
            pod(),
            "none of the secret managers injected secret \"my-key\"",
        ),
        (unlabelled, "no label organization"),
        (undecodable, "flyte.secrets/s0"),
        (only_file, "expected one value"),
        (pod(), "of type Opaque"),
    ] {
        if expected == "of type Opaque" {
            world
                .keep_as(&of_variable, &tls, "kubernetes.io/service-account-token")
                .await;
        }
        let response = world.admit(&pod).await;
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 400);
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn what_does_not_ask_for_secrets_is_left_alone() {
    let world = world().await;
    let mut plain = pod();
    plain["metadata"]["annotations"] = json!({"other": "x"});
    let allowed = json!({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": true});
    assert_eq!(world.admit(&plain).await, allowed);
    let mut update = review(&pod());
    update["request"]["operation"] = "UPDATE".into();
    let (_, answer) = world.ask(update.to_string()).await;
    assert_eq!(answer["response"], allowed);
    let (status, why) = world.ask("{}".to_owned()).await;
    assert_eq!(status, 400, "{why}");
    let (status, _) = world.ask("x".repeat(5 * 1024 * 1024)).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn only_pods_that_ask_ever_wait_and_never_those_of_the_cluster() {
    let world = world().await;
    let webhook = &world.registered["webhooks"][0];
    assert_eq!(
        webhook["objectSelector"],
        json!({"matchLabels": {"inject-flyte-secrets": "true"}})
    );
    let system = &webhook["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(system["operator"], "NotIn");
    assert!(
        system["values"]
            .as_array()
            .unwrap()
            .contains(&json!("kube-system"))
    );
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE"]));
    let token = world.path().strip_prefix(&format!("{PATH}/")).unwrap();
    assert_eq!(token.len(), 64, "{token}");
    // Another replica serves the same certificate. It replaces the token, which API servers may have told their clients.
    let requests = Requests::new(world.client.clone());
    let identity = Identity::of_service(NAMESPACE, "flyte-pod-webhook", "flyte-pod-webhook");
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let published = async || {
        let secret = secrets.get("flyte-pod-webhook").await.unwrap();
        let tokens = secret.data.as_ref().unwrap()["tokens.json"].0.clone();
        let tokens: Value = serde_json::from_slice(&tokens).unwrap();
        (secret, tokens)
    };
    let (before, tokens) = loop {
        let (secret, tokens) = published().await;
        if tokens["isPublished"] == true {
            break (secret, tokens);
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(tokens["current"], token);
    let registration = SecretsWebhook::registration(
        &WebhookSettings {
            secrets_namespace: NAMESPACE.to_owned(),
            ..WebhookSettings::default()
        },
        NAMESPACE,
    );
    let second = Certificates::new(requests, Arc::new(SystemClock), identity);
    second.publishing(registration).first().await.unwrap();
    let (after, replaced) = published().await;
    assert_eq!(
        after.data.unwrap()["tls.crt"],
        before.data.unwrap()["tls.crt"]
    );
    assert_ne!(replaced["current"], token);
    assert_eq!(
        replaced["previous"],
        json!([{"token": token, "until": null}])
    );
    // The first replica accepts both at once.
    let other = format!("{PATH}/{}", replaced["current"].as_str().unwrap());
    for path in [world.path(), &other] {
        let (status, answer) = world.ask_at(path, review(&pod()).to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }
}

#[tokio::test]
async fn whoever_does_not_name_the_token_gets_401_whatever_it_asks() {
    let world = world().await;
    world
        .keep(&secret_name("o", "d", "p", "my-key"), &[("id", "CANARY")])
        .await;
    world
        .keep(&secret_name("o", "", "", "k2"), &[("id", "CANARY")])
        .await;
    let forged = review(&pod()).to_string();
    let longer = format!("{}0", world.path());
    let shorter = &world.path()[..world.path().len() - 1];
    let guessed = format!("{PATH}/{}", "0".repeat(64));
    let without_name = world.path().strip_prefix(PATH).unwrap();
    for path in [
        PATH,
        "/",
        "",
        "/other",
        &longer,
        shorter,
        &guessed,
        without_name,
        &format!("{PATH}/"),
    ] {
        for body in [forged.clone(), String::new(), "x".repeat(5 * 1024 * 1024)] {
            let url = format!("https://{HOST}:{}{path}", world.address.port());
            // A large body is not read: the connection may end before all of it is sent.
            let Ok(answer) = world.http.post(url).body(body).send().await else {
                continue;
            };
            assert_eq!(answer.status().as_u16(), 401, "{path}");
            assert_eq!(answer.text().await.unwrap(), "", "{path}");
        }
    }
    let (status, _) = world.ask(forged).await;
    assert_eq!(status, 200);
}

/// A client that trusts what an API server is told to trust, and shows no certificate.
fn trusting(config: &Value) -> reqwest::ClientBuilder {
    let bundle = config["caBundle"].as_str().unwrap();
    let bundle = BASE64_STANDARD.decode(bundle).unwrap();
    let authorities = reqwest::Certificate::from_pem_bundle(&bundle).unwrap();
    reqwest::Client::builder().tls_certs_only(authorities)
}

#[tokio::test]
async fn where_an_authority_is_configured_a_client_certificate_is_needed_and_no_token() {
    let cluster = Cluster::in_memory();
    let client = cluster.client();
    let requests = Requests::new(client.clone());
    let settings = WebhookSettings {
        secrets_namespace: NAMESPACE.to_owned(),
        bindings: ScopeBindings {
            organization: "o".to_owned(),
            ..ScopeBindings::default()
        },
        ..WebhookSettings::default()
    };
    let mut identity =
        Identity::of_service(NAMESPACE, &settings.secret_name, &settings.service_name);
    identity.names.push("127.0.0.1".to_owned());
    let cache = Arc::new(SecretCache::default());
    let webhook: Arc<dyn Admission> =
        Arc::new(SecretsWebhook::new(settings, requests.clone(), cache));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let registered = json!({
        "name": NAME, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("{base}{PATH}")},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    });
    let authority = cluster.webhook_client_authority().unwrap();
    let mut certificates = Certificates::new(requests.clone(), Arc::new(SystemClock), identity)
        .publishing(Registration::mutating("secrets", vec![registered]))
        .trusting(Some(ClientAuthority::Pem(authority)));
    let callers = certificates.callers();
    let tls = certificates.first().await.unwrap();
    let stopping = CancellationToken::new();
    let _stop = stopping.clone().drop_guard();
    let router = longshore_webhook::router([(PATH, webhook)], callers, &Measures::default());
    tokio::spawn(longshore_webhook::serve(
        listener,
        tls.clone(),
        router,
        Contact::default(),
        stopping.clone(),
    ));
    tokio::spawn(stopping.run_until_cancelled_owned(certificates.keep(tls)));
    let target = of_cluster(&requests, "mutatingwebhookconfigurations", "secrets");
    let config = loop {
        match requests.get(&target).await.unwrap() {
            Some(registered) => break registered["webhooks"][0]["clientConfig"].clone(),
            None => tokio::task::yield_now().await,
        }
    };
    // What an API server may print is no secret.
    assert_eq!(config["url"], format!("{base}{PATH}"));
    // The API server shows its certificate, and is heard: the pod is refused for want of the secret.
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
    let pod = serde_json::from_value(pod()).unwrap();
    let refused = pods.create(&PostParams::default(), &pod).await.unwrap_err();
    assert!(
        refused.to_string().contains("none of the secret managers"),
        "{refused}"
    );
    // Whoever shows none is not.
    let http = trusting(&config).build().unwrap();
    for path in [PATH.to_owned(), format!("{PATH}/{}", "0".repeat(64))] {
        let answer = http
            .post(format!("{base}{path}"))
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 401);
    }
}
