//! The role `webhook` on a real API server, with the rights that it declares and no others. The embedded one asks it
//! nothing that another test does not.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    core::v1::{Namespace, Pod, Secret, Service, ServiceAccount},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use longshore_kit::{Clock, SystemClock};
use longshore_plugins::secret_name;
use longshore_tasks::WebhookSettings;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::{
    ONE_WEBHOOK,
    replica::{Plan, Replica, free_port, until},
    requests::counted,
};
use crate::{
    cluster::{TestCluster, real},
    rbac::granted,
};

/// What the executor writes to each pod.
const ORGANIZATION: &str = "flyte";
/// The Secret of the certificates.
const CERTIFICATES: &str = "webhook-certificates";
const INVALIDATION_TOKEN: &str = "CANARY-of-the-invalidation-0123456789";
/// Longer than the webhook takes to look at its certificates again.
const LOOKS_AGAIN: Duration = Duration::from_secs(90);
/// Between two pods.
const PAUSE: Duration = Duration::from_millis(100);

/// A namespace with secrets, and the replica of the role that is to serve it.
struct World {
    cluster: TestCluster,
    plan: Plan,
    /// The name of the Service and of the webhook configuration.
    name: String,
    port: u16,
    invalidation_port: u16,
    used: BTreeSet<(String, String)>,
}

impl World {
    async fn start() -> Self {
        let cluster = TestCluster::start().await;
        let name = format!("secrets-{}", cluster.namespace);
        let port = free_port();
        let invalidation_port = free_port();
        let token_file = cluster.folder.path().join("invalidation-token");
        fs::write(&token_file, format!("{INVALIDATION_TOKEN}\n")).unwrap();
        let config = json!({"webhook": {
            "secretName": CERTIFICATES, "serviceName": name, "servicePort": port, "listenPort": port,
            "cacheInvalidationPort": invalidation_port, "cacheInvalidationTokenFile": token_file,
            "embeddedSecretManagerConfig": {"k8sConfig": {"namespace": cluster.namespace}},
        }});
        let file: PathBuf = cluster.folder.path().join("config.yaml");
        fs::write(&file, config.to_string()).unwrap();
        let mut plan = Plan::of(&cluster, "webhook");
        let config = file.to_str().unwrap();
        let namespace = cluster.namespace.as_str();
        let granted = ["--enable", "webhook", "--config", config];
        let with_secrets = ["--secrets-namespace", namespace];
        cluster
            .grant(&[granted.as_slice(), &with_secrets].concat())
            .await;
        plan.kubeconfig = cluster.token().await;
        plan.config = Some(file);
        let world = Self {
            plan,
            name,
            port,
            invalidation_port,
            used: BTreeSet::new(),
            cluster,
        };
        // The API server runs on this machine, outside of the cluster's network.
        let service = json!({
            "metadata": {"name": world.name},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let services: Api<Service> = world.api();
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        world.keep("as-variable", "value of the variable").await;
        world.keep("as-file", "value of the file").await;
        world
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.admin.clone(), &self.cluster.namespace)
    }

    /// A secret of the project, as the peer's secret service keeps it.
    async fn keep(&self, key: &str, value: &str) {
        let name = secret_name(ORGANIZATION, "d", "p", key);
        self.keep_as(&name, value).await;
    }

    async fn keep_as(&self, name: &str, value: &str) {
        let secret = json!({"metadata": {"name": name}, "stringData": {name: value}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let secrets: Api<Secret> = self.api();
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
    }

    /// Starts the role, and waits until it serves and the webhook configuration is written.
    async fn serve(&mut self, name: &str) -> (Replica, String) {
        let mut replica = self.plan.spawn(name);
        let ready = replica.ready();
        until("it serves", || replica.leads()).await;
        let metrics = ready["metrics"].as_str().unwrap().to_owned();
        (replica, metrics)
    }

    /// Stops it, and keeps in mind what it asked for.
    async fn stop(&mut self, mut replica: Replica, metrics: &str) {
        for (verb, resource, code, _) in counted(metrics, "webhook").await {
            assert_ne!(code, "403", "{verb} {resource}");
            self.used.insert((verb, resource));
        }
        assert_eq!(replica.stop(), Some(0), "{}", replica.log());
    }

    /// The authorities that API servers trust.
    async fn bundle(&self) -> String {
        let registered: Api<MutatingWebhookConfiguration> = Api::all(self.cluster.admin.clone());
        let found = registered.get_opt(&self.name).await.unwrap();
        let webhooks = found.and_then(|it| it.webhooks).unwrap_or_default();
        let bundle = webhooks
            .into_iter()
            .find_map(|it| it.client_config.ca_bundle);
        bundle.map_or_else(String::new, |bundle| String::from_utf8(bundle.0).unwrap())
    }

    /// What the Secret of the certificates says under a key.
    async fn certificate(&self, key: &str) -> Option<String> {
        let secrets: Api<Secret> = self.api();
        let secret = secrets.get(CERTIFICATES).await.unwrap();
        let value = secret.data.unwrap_or_default().remove(key)?;
        Some(String::from_utf8(value.0).unwrap())
    }

    /// Changes what the Secret says of the ages of certificates.
    async fn age(&self, change: impl FnOnce(&mut Value)) {
        let state = self.certificate("state.json").await.unwrap();
        let mut state: Value = serde_json::from_str(&state).unwrap();
        change(&mut state);
        let state = BASE64_STANDARD.encode(state.to_string());
        let patch = Patch::Merge(json!({"data": {"state.json": state}}));
        let secrets: Api<Secret> = self.api();
        secrets
            .patch(CERTIFICATES, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// Waits until it holds, for a little longer than the webhook takes to look.
async fn until_so(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    assert!(
        tokio::time::timeout(LOOKS_AGAIN, held).await.is_ok(),
        "not in time: {what}"
    );
}

/// A pod of a task that asks for both secrets; made as the executor makes it.
fn asking(name: &str) -> Pod {
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": {"organization": ORGANIZATION, "project": "p", "domain": "d", "inject-flyte-secrets": "true"},
            "annotations": {
                "flyte.secrets/s0": annotation("key: \"as-variable\"\nmount_requirement: ENV_VAR\n"),
                "flyte.secrets/s1": annotation("key: \"as-file\"\nmount_requirement: FILE\n"),
            },
        },
        "spec": {"containers": [{"name": "main", "image": "example.test/image:1"}]},
    });
    serde_json::from_value(pod).unwrap()
}

/// As the executor encodes it.
fn annotation(text: &str) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz123456";
    let bits: Vec<u8> = text
        .bytes()
        .flat_map(|byte| (0..8).rev().map(move |at| (byte >> at) & 1))
        .collect();
    let digit = |bits: &[u8]| {
        let padded = bits.iter().chain([0; 4].iter()).take(5);
        char::from(DIGITS[padded.fold(0, |number, bit| number * 2 + usize::from(*bit))])
    };
    bits.chunks(5).map(digit).collect()
}

/// Whether a pod has both of its secrets, as references: it is beside them.
fn has_secrets(pod: &Pod) -> bool {
    let pod = serde_json::to_value(&pod.spec).unwrap();
    let refers = |list: &Value, at: &str, key: &str| {
        let name = secret_name(ORGANIZATION, "d", "p", key);
        let mut list = list.as_array().into_iter().flatten();
        list.any(|it| it.pointer(at) == Some(&json!(name)))
    };
    let container = &pod["containers"][0];
    let has_variable = refers(
        &container["env"],
        "/valueFrom/secretKeyRef/name",
        "as-variable",
    );
    let has_source = refers(
        &pod["volumes"],
        "/projected/sources/0/secret/name",
        "as-file",
    );
    let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let has_file =
        mounts.any(|mount| mount["mountPath"] == "/etc/flyte/secrets" && mount["readOnly"] == true);
    let text = pod.to_string();
    for value in ["value of the variable", "value of the file"] {
        let encoded = BASE64_STANDARD.encode(value);
        assert!(!text.contains(value) && !text.contains(&encoded), "{text}");
    }
    has_variable && has_source && has_file
}

/// Creates pods until `stop` is set, and counts them in `n_created`.
async fn create_pods(pods: Api<Pod>, stop: Arc<AtomicBool>, n_created: Arc<AtomicUsize>) {
    while !stop.load(Ordering::Relaxed) {
        let n = n_created.load(Ordering::Relaxed);
        let pod = asking(&format!("under-load-{n}"));
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        assert!(has_secrets(&pod), "{pod:?}");
        n_created.fetch_add(1, Ordering::Relaxed);
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name_any(), &now).await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_their_secrets_while_certificates_are_replaced_and_all_rights_are_used() {
    if real().is_none() {
        println!("skipped: LONGSHORE_TEST_KUBECONFIG names no real server, which alone has RBAC");
        return;
    }
    let _alone = ONE_WEBHOOK.lock().await;
    let mut world = World::start().await;
    let pods: Api<Pod> = world.api();
    let (first, metrics) = world.serve("first").await;
    let mut n = 0;
    // The API server hears of a webhook a moment after that was written.
    until_so("pods have secrets", async || {
        n += 1;
        let pod = asking(&format!("first-{n}"));
        let created = pods.create(&PostParams::default(), &pod).await;
        created.is_ok_and(|pod| has_secrets(&pod))
    })
    .await;
    refuses_what_is_not_there(&pods).await;
    binds_projects_to_namespaces(&world).await;
    refuses_whoever_is_no_api_server(&world, &first).await;
    let old = world.certificate("ca.crt").await.unwrap();
    world.stop(first, &metrics).await;

    world
        .age(|state| state["notAfter"] = json!(in_hours(10 * 24)))
        .await;
    let (second, metrics) = world.serve("second").await;
    let new = world.certificate("next-ca.crt").await.unwrap();
    until_so("both authorities are trusted", async || {
        let bundle = world.bundle().await;
        bundle.contains(&old) && bundle.contains(&new) && has_told_patch(&metrics).await
    })
    .await;
    world.stop(second, &metrics).await;

    let (third, metrics) = world.serve("third").await;
    let (stop, n_created) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let creating = create_pods(pods.clone(), stop.clone(), n_created.clone());
    let creating = tokio::spawn(creating);
    until_so("pods are created", async || {
        creating.is_finished() || n_created.load(Ordering::Relaxed) > 5
    })
    .await;
    // As if it had been known for long enough.
    world
        .age(|state| state["next"]["madeAt"] = json!(in_hours(-1)))
        .await;
    until_so("the new certificate is served", async || {
        creating.is_finished() || world.certificate("ca.crt").await.as_ref() == Some(&new)
    })
    .await;
    let n_before = n_created.load(Ordering::Relaxed);
    until_so("pods are created after that", async || {
        creating.is_finished() || n_created.load(Ordering::Relaxed) > n_before + 20
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    creating.await.unwrap();
    world.stop(third, &metrics).await;

    // A client with a new connection trusts the new certificate.
    let (fourth, metrics) = world.serve("fourth").await;
    let pod = pods.create(&PostParams::default(), &asking("last")).await;
    assert!(has_secrets(&pod.unwrap()));
    world.stop(fourth, &metrics).await;
    let grants = longshore_tasks::secrets::grants(&WebhookSettings::default());
    let rules: Vec<_> = grants.into_iter().map(|grant| grant.rule).collect();
    assert_eq!(world.used, granted(&rules), "used and declared");
    println!(
        "real server: {} pods got their secrets while the certificate was replaced",
        n_created.load(Ordering::Relaxed)
    );
    let registered: Api<MutatingWebhookConfiguration> = Api::all(world.cluster.admin.clone());
    let now = DeleteParams::default();
    registered.delete(&world.name, &now).await.unwrap();
}

/// Without the token of the webhook configuration no client gets a secret, and without the token of
/// the configuration file no client can invalidate one.
async fn refuses_whoever_is_no_api_server(world: &World, replica: &Replica) {
    let mut config = Config::new(format!("https://127.0.0.1:{}", world.port).parse().unwrap());
    config.tls_server_name = Some(format!("{}.{}.svc", world.name, world.cluster.namespace));
    let bundle = world.bundle().await;
    let authorities = CertificateDer::pem_slice_iter(bundle.as_bytes());
    config.root_cert = Some(authorities.map(|it| it.unwrap().to_vec()).collect());
    let client = Client::try_from(config).unwrap();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "forged", "operation": "CREATE", "namespace": world.cluster.namespace, "name": "forged",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": asking("forged"),
        },
    });
    let ask = async |path: String| {
        let request = http::Request::post(path).header("content-type", "application/json");
        let body = review.to_string().into_bytes();
        client.request_text(request.body(body).unwrap()).await
    };
    let path = longshore_tasks::secrets::PATH;
    for path in [
        path.to_owned(),
        format!("{path}/"),
        format!("{path}/{}", "0".repeat(64)),
    ] {
        let refused = ask(path.clone()).await;
        let Err(kube::Error::Api(status)) = &refused else {
            panic!("{path}: {refused:?}");
        };
        assert_eq!(status.code, 401, "{path}");
    }
    let tokens: Value =
        serde_json::from_str(&world.certificate("tokens.json").await.unwrap()).unwrap();
    let token = tokens["current"].as_str().unwrap();
    let answer = ask(format!("{path}/{token}")).await.unwrap();
    assert!(
        answer.contains("JSONPatch"),
        "an API server is heard: {answer}"
    );

    let url = format!("http://127.0.0.1:{}", world.invalidation_port);
    let http = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
    let post = async |token: Option<&str>| {
        let body = r#"{"org":"o","domain":"d","project":"p","name":"as-file"}"#;
        let mut request = http::Request::post("/invalidate-secret");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match http.request_text(request.body(body.into()).unwrap()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(post(None).await, 401);
    assert_eq!(post(Some("0123456789")).await, 401);
    assert_eq!(post(Some(INVALIDATION_TOKEN)).await, 200);
    let log = replica.log();
    assert!(
        !log.contains(token) && !log.contains(INVALIDATION_TOKEN),
        "{log}"
    );
}

/// Whether it has counted that it patched the registration: it does when it has the answer, which may be after others
/// see what came of it.
async fn has_told_patch(metrics: &str) -> bool {
    let counted = counted(metrics, "webhook").await;
    let is_it =
        |verb: &str, resource: &str| verb == "patch" && resource == "mutatingwebhookconfigurations";
    counted
        .iter()
        .any(|(verb, resource, _, _)| is_it(verb, resource))
}

fn in_hours(hours: i64) -> Timestamp {
    SystemClock.now() + SignedDuration::from_hours(hours)
}

/// By default the namespace of project `p` in domain `d` is `p-d`; the namespace here has another name, and one of its
/// own. What the pod itself says of its namespace does not count.
async fn binds_projects_to_namespaces(world: &World) {
    let admin = world.cluster.admin.clone();
    let project = format!("p{}", world.cluster.namespace.trim_start_matches("test-"));
    let (its, of_others) = (format!("{project}-d"), format!("{project}-other"));
    for namespace in [&its, &of_others] {
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let object = json!({"metadata": {"name": namespace}});
        let object = serde_json::from_value(object).unwrap();
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        // Admission of pods waits for it.
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        let _ = accounts.create(&PostParams::default(), &account).await;
    }
    for key in ["as-variable", "as-file"] {
        let name = secret_name(ORGANIZATION, "d", &project, key);
        world.keep_as(&name, &format!("canary of {key}")).await;
    }
    let mut pod = asking("claims");
    pod.labels_mut()
        .insert("project".to_owned(), project.clone());
    let at_home: Api<Pod> = Api::namespaced(admin.clone(), &its);
    let made = at_home.create(&PostParams::default(), &pod).await.unwrap();
    let text = serde_json::to_string(&made.spec).unwrap();
    assert!(text.contains("canary of as-variable"), "{text}");
    let elsewhere: Api<Pod> = Api::namespaced(admin, &of_others);
    let error = elsewhere
        .create(&PostParams::default(), &pod)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(&format!("project {project:?}")), "{error}");
    assert!(
        error.contains(&format!("namespace {of_others:?}")),
        "{error}"
    );
    assert!(!error.contains("canary"), "{error}");
}

async fn refuses_what_is_not_there(pods: &Api<Pod>) {
    let mut pod = asking("refused");
    let unknown = annotation("key: \"nobody-knows\"\nmount_requirement: ENV_VAR\n");
    pod.annotations_mut()
        .insert("flyte.secrets/s0".to_owned(), unknown);
    let error = pods.create(&PostParams::default(), &pod).await.unwrap_err();
    let kube::Error::Api(status) = &error else {
        panic!("{error}");
    };
    assert_eq!(status.code, 400, "{status:?}");
    let expected = "none of the secret managers injected secret \"nobody-knows\"";
    assert!(status.message.contains(expected), "{status:?}");
}
