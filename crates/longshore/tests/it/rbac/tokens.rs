//! What an intruder can do with the token of a role and nothing else: on a real API server with RBAC.

use std::{collections::BTreeSet, path::Path, process::Stdio, time::Duration};

use http::Method;
use kube::Client;
use longshore_api::podops::LABEL_CONTROL;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use super::{LIMIT, is_skipped};
use crate::{
    cluster::{TestCluster, config},
    longshore,
};

pub(super) const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: [&str; 4] = ["dags", "tasks", "webhook", "podops"];
/// Both kinds of configurations of webhooks.
const CONFIGURATIONS: [(&str, &str); 2] = [
    (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
];

/// An intruder with a kubeconfig.
pub(super) struct Somebody(pub(super) Client);

impl Somebody {
    pub(super) async fn with(kubeconfig: &Path) -> Self {
        Self(Client::try_from(config(kubeconfig).await).unwrap())
    }

    /// The answer, or its status code and what it says.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, (u16, String)> {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body);
        match self.0.request(request.unwrap()).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err((status.code, status.message)),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn is_refused(&self, what: &str, method: Method, path: &str, body: &Value) {
        match self.ask(method.clone(), path, body).await {
            Err((403, _)) => {}
            other => panic!("{what}: {method} {path}: {other:?}"),
        }
    }
}

/// What an intruder tries, how, where, and with which body.
type Way = (&'static str, Method, String, Value);

/// Ways to more rights, each refused before it is looked at what there is.
fn ways_to_more(namespace: &str, foreign: &str) -> Vec<Way> {
    let mut ways = reading(namespace, foreign);
    ways.extend(creating(namespace, foreign));
    ways.extend(changing_roles(namespace));
    ways.extend(changing_webhooks(foreign));
    ways
}

fn reading(namespace: &str, foreign: &str) -> Vec<Way> {
    let own = format!("/api/v1/namespaces/{namespace}");
    let reading = |what, path| (what, Method::GET, path, Value::Null);
    vec![
        reading("reads a Secret", format!("{own}/secrets/{foreign}")),
        reading("lists Secrets", format!("{own}/secrets")),
        reading("lists all Secrets", "/api/v1/secrets".to_owned()),
        reading(
            "reads a Secret of the cluster",
            format!("/api/v1/namespaces/kube-system/secrets/{foreign}"),
        ),
        reading("asks a node", format!("/api/v1/nodes/{foreign}/proxy/pods")),
        reading(
            "runs something in a pod",
            format!("{own}/pods/{foreign}/exec?command=id"),
        ),
    ]
}

fn creating(namespace: &str, foreign: &str) -> Vec<Way> {
    let own = format!("/api/v1/namespaces/{namespace}");
    let admin = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "longshore", "namespace": namespace}]);
    let binding = |kind: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": foreign},
               "roleRef": admin, "subjects": subjects})
    };
    // The token of any service account is written into it.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": foreign, "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": foreign},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let of_cluster = "/api/v1/namespaces/kube-system/pods".to_owned();
    let everywhere = format!("{RBAC}/clusterrolebindings");
    let here = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    let creating = |what, path, body| (what, Method::POST, path, body);
    vec![
        creating("creates a Secret", format!("{own}/secrets"), secret),
        creating(
            "takes a token",
            format!("{own}/serviceaccounts/default/token"),
            token,
        ),
        creating("binds itself", everywhere, binding("ClusterRoleBinding")),
        creating("binds itself here", here, binding("RoleBinding")),
        creating("creates a pod of the cluster", of_cluster, pod),
    ]
}

fn changing_roles(namespace: &str) -> Vec<Way> {
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let changing = |path| ("widens a role", Method::PATCH, path, everything.clone());
    let mut ways = Vec::new();
    for role in ROLES {
        let role = format!("longshore-{role}");
        ways.push(changing(format!(
            "{RBAC}/namespaces/{namespace}/roles/{role}"
        )));
        ways.push(changing(format!("{RBAC}/clusterroles/{role}:{namespace}")));
    }
    ways
}

fn changing_webhooks(foreign: &str) -> Vec<Way> {
    let mut ways = Vec::new();
    for (kind, plural) in CONFIGURATIONS {
        let path = format!("{ADMISSION}/{plural}");
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                                   "metadata": {"name": format!("{foreign}-new")}});
        let none = json!({"webhooks": []});
        let named = format!("{path}/{foreign}");
        ways.extend([
            (
                "creates a webhook",
                Method::POST,
                path.clone(),
                configuration,
            ),
            (
                "reads a webhook of others",
                Method::GET,
                named.clone(),
                Value::Null,
            ),
            (
                "changes a webhook of others",
                Method::PATCH,
                named.clone(),
                none,
            ),
            (
                "deletes a webhook of others",
                Method::DELETE,
                named,
                Value::Null,
            ),
            ("deletes all webhooks", Method::DELETE, path, Value::Null),
        ]);
    }
    ways
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_a_role_nobody_reads_what_is_not_named_or_changes_what_is_of_others() {
    if is_skipped() {
        return;
    }
    for role in ROLES {
        let cluster = TestCluster::start().await;
        let namespace = cluster.namespace.as_str();
        let foreign = format!("foreign-{namespace}");
        let admin = Somebody(cluster.admin.clone());
        for (kind, plural) in CONFIGURATIONS {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                                "metadata": {"name": foreign}});
            let path = format!("{ADMISSION}/{plural}");
            admin.ask(Method::POST, &path, &object).await.unwrap();
        }
        let account = Somebody::with(&cluster.account(role).await).await;
        for (what, method, path, body) in ways_to_more(namespace, &foreign) {
            let what = format!("{role} {what}");
            account.is_refused(&what, method, &path, &body).await;
        }
        // The configurations and certificates of another role are refused too.
        for (of, plural, name) in [
            ("webhook", CONFIGURATIONS[0].1, "flyte-pod-webhook"),
            (
                "podops",
                CONFIGURATIONS[0].1,
                "kusionstack-controller-manager-mutating",
            ),
            (
                "podops",
                CONFIGURATIONS[1].1,
                "kusionstack-controller-manager-validating",
            ),
        ] {
            let path = format!("{ADMISSION}/{plural}/{name}");
            if of == role {
                // Another test may have removed it.
                let found = account.ask(Method::GET, &path, &Value::Null).await;
                assert!(!matches!(found, Err((403, _))), "{role}: {found:?}");
            } else {
                let patch = json!({"metadata": {"annotations": {"a": "b"}}});
                account.is_refused(role, Method::PATCH, &path, &patch).await;
            }
        }
        for (of, name) in [
            ("webhook", "flyte-pod-webhook"),
            ("podops", "longshore-podops-certs"),
        ] {
            let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
            if of == role {
                account.ask(Method::GET, &path, &Value::Null).await.unwrap();
            } else {
                let nothing = Value::Null;
                account.is_refused(role, Method::GET, &path, &nothing).await;
            }
        }
        for (_, plural) in CONFIGURATIONS {
            let path = format!("{ADMISSION}/{plural}/{foreign}");
            admin
                .ask(Method::DELETE, &path, &Value::Null)
                .await
                .unwrap();
        }
    }
}

/// A write that succeeds until the API server has heard of a policy; what it says then.
pub(super) async fn refused_at_last(
    account: &Somebody,
    method: Method,
    path: &str,
    bodies: &[Value],
) -> String {
    let deadline = tokio::time::Instant::now() + LIMIT;
    for body in bodies.iter().cycle() {
        match account.ask(method.clone(), path, body).await {
            Err((_, why)) if why.contains("ValidatingAdmissionPolicy") => return why,
            Err(other) => panic!("{path}: {other:?}"),
            Ok(_) => assert!(tokio::time::Instant::now() < deadline, "{path}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("there are bodies")
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_changes_what_pods_run() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = Somebody::with(&cluster.account("podops").await).await;
    let admin = Somebody(cluster.admin.clone());
    let pods = "/api/v1/namespaces/kube-system/pods";
    let name = format!("of-the-cluster-{}", cluster.namespace);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false, "nodeName": "nobody",
        "containers": [{"name": "c", "image": "example.test/image:1"}],
    }});
    admin.ask(Method::POST, pods, &pod).await.unwrap();
    let path = format!("{pods}/{name}");
    let image = |n: u32| json!([{"name": "c", "image": format!("example.test/theirs:{n}")}]);
    let images = [2, 3].map(|n| json!({"spec": {"containers": image(n)}}));
    let why = refused_at_last(&account, Method::PATCH, &path, &images).await;
    assert!(why.contains("nothing of their spec"), "{why}");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    account.ask(Method::PATCH, &path, &label).await.unwrap();

    let status = format!("{path}/status");
    let addresses = ["127.9.9.8", "127.9.9.9"]
        .map(|ip| json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}));
    let why = refused_at_last(&account, Method::PATCH, &status, &addresses).await;
    assert!(why.contains("changes conditions of pods"), "{why}");
    let condition =
        json!({"status": {"conditions": [{"type": "example.test/a", "status": "True"}]}});
    account
        .ask(Method::PATCH, &status, &condition)
        .await
        .unwrap();
    let now = json!({"gracePeriodSeconds": 0});
    let pod = format!("{pods}/{name}");
    admin.ask(Method::DELETE, &pod, &now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_podops_nobody_deletes_pods_that_do_not_take_part() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = Somebody::with(&cluster.account("podops").await).await;
    let admin = Somebody(cluster.admin.clone());
    let pods = "/api/v1/namespaces/kube-system/pods";
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "automountServiceAccountToken": false, "nodeName": "nobody",
            "containers": [{"name": "c", "image": "example.test/image:1"}],
        }})
    };
    let control = |value: &str| json!({"metadata": {"labels": {LABEL_CONTROL: value}}});
    let free = format!("free-{}", cluster.namespace);
    let path = format!("{pods}/{free}");
    admin.ask(Method::POST, pods, &pod(&free)).await.unwrap();
    let tried = format!("{path}?dryRun=All");
    for labels in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        control("false"),
    ] {
        admin.ask(Method::PATCH, &path, &labels).await.unwrap();
        let why = refused_at_last(&account, Method::DELETE, &tried, &[Value::Null]).await;
        assert!(why.contains("deletes only pods with the label"), "{why}");
        let why = refused_at_last(&account, Method::PATCH, &tried, &[control("true")]).await;
        assert!(why.contains("gives no pod the label"), "{why}");
    }
    // The controller removes a pod whose eviction was requested by an eviction, and others by a delete.
    admin
        .ask(Method::PATCH, &path, &control("true"))
        .await
        .unwrap();
    account
        .ask(Method::DELETE, &tried, &Value::Null)
        .await
        .unwrap();
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": free, "namespace": "kube-system"},
        "deleteOptions": {"gracePeriodSeconds": 0},
    });
    let evict = format!("{path}/eviction");
    account.ask(Method::POST, &evict, &eviction).await.unwrap();

    // Other roles of the same account delete the pods of its own namespace.
    let own = format!("/api/v1/namespaces/{}/pods", cluster.namespace);
    admin.ask(Method::POST, &own, &pod("own")).await.unwrap();
    let path = format!("{own}/own");
    account
        .ask(Method::DELETE, &path, &Value::Null)
        .await
        .unwrap();
    let now = json!({"gracePeriodSeconds": 0});
    // Its node, which exists only in the test, may have removed it.
    let _ = admin.ask(Method::DELETE, &path, &now).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secrets_of_tasks_are_read_in_their_namespace_and_nowhere_else() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let of_tasks = format!("{}-tasks", cluster.namespace);
    let admin = Somebody(cluster.admin.clone());
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": of_tasks}});
    admin
        .ask(Method::POST, "/api/v1/namespaces", &namespace)
        .await
        .unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    for namespace in [&cluster.namespace, &of_tasks] {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        admin.ask(Method::POST, &path, &secret).await.unwrap();
    }
    let arguments = ["--enable", "webhook", "--secrets-namespace", &of_tasks];
    cluster.grant(&arguments).await;
    let account = Somebody::with(&cluster.token().await).await;
    let secret = |namespace: &str| format!("/api/v1/namespaces/{namespace}/secrets/s");
    let (own, nothing) = (secret(&cluster.namespace), Value::Null);
    account
        .ask(Method::GET, &secret(&of_tasks), &nothing)
        .await
        .unwrap();
    account
        .is_refused("its own namespace", Method::GET, &own, &nothing)
        .await;
    let list = format!("/api/v1/namespaces/{of_tasks}/secrets");
    account
        .is_refused("all at once", Method::GET, &list, &nothing)
        .await;
    let patch = json!({"data": {}});
    account
        .is_refused("a change", Method::PATCH, &secret(&of_tasks), &patch)
        .await;
}

/// Applies a manifest as people do it, with kubectl where there is one.
async fn apply(cluster: &TestCluster, arguments: &[&str]) -> Vec<Value> {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(kubectl) = std::env::var_os("LONGSHORE_TEST_KUBECTL") else {
        return cluster.grant(arguments).await;
    };
    let mut command = longshore();
    command.args(["controller", "rbac", "-o", "json", "-n", &cluster.namespace]);
    let printed = command.args(arguments).output().unwrap().stdout;
    let mut applying = Command::new(kubectl)
        .args(["apply", "-f", "-", "--kubeconfig"])
        .arg(cluster.admin_kubeconfig())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = applying.stdin.take().unwrap();
    stdin.write_all(&printed).await.unwrap();
    drop(stdin);
    assert!(applying.wait().await.unwrap().success());
    let list: Value = serde_json::from_slice(&printed).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Questions about all that the roles of a manifest grant.
fn rights(objects: &[Value], namespace: &str) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    for object in objects {
        let namespace = match object["kind"].as_str().unwrap() {
            "Role" => namespace,
            "ClusterRole" => "",
            _ => continue,
        };
        for rule in object["rules"].as_array().unwrap() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for name in names {
                for resource in texts(&rule["resources"]) {
                    let (resource, part) = resource.split_once('/').unwrap_or((&resource, ""));
                    for verb in texts(&rule["verbs"]) {
                        let right = json!({
                            "group": rule["apiGroups"][0], "resource": resource, "subresource": part,
                            "verb": verb, "name": name, "namespace": namespace,
                        });
                        rights.insert(right.to_string());
                    }
                }
            }
        }
    }
    rights
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_are_applied_one_after_another_take_no_rights_away_in_any_order() {
    if is_skipped() {
        return;
    }
    let (default, podops, webhook): (&[&str], &[&str], &[&str]) =
        (&[], &["--enable", "podops"], &["--enable", "webhook"]);
    for order in [[default, podops, webhook], [webhook, podops, default]] {
        let cluster = TestCluster::start().await;
        let mut expected = BTreeSet::new();
        for arguments in order {
            let objects = apply(&cluster, arguments).await;
            expected.extend(rights(&objects, &cluster.namespace));
        }
        assert!(expected.len() > 80, "{expected:?}");
        let account = Somebody::with(&cluster.token().await).await;
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for right in expected {
            let attributes: Value = serde_json::from_str(&right).unwrap();
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            });
            let answer = account.ask(Method::POST, path, &review).await.unwrap();
            assert_eq!(answer["status"]["allowed"], true, "{order:?}: {right}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_applied_again_leaves_certificates_and_registrations_as_they_are() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let name = format!("again-{}", cluster.namespace);
    let names = [
        format!("--webhook.serviceName={name}"),
        format!("--webhook.secretName={name}"),
    ];
    let mut arguments = vec!["--enable", "webhook"];
    arguments.extend(names.iter().map(String::as_str));
    apply(&cluster, &arguments).await;
    let account = Somebody::with(&cluster.token().await).await;
    let secret = format!("/api/v1/namespaces/{}/secrets/{name}", cluster.namespace);
    let configuration = format!("{ADMISSION}/mutatingwebhookconfigurations/{name}");
    let webhook = json!({"webhooks": [{
        "name": "a.example.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": cluster.namespace, "name": name}}, "failurePolicy": "Ignore",
        "objectSelector": {"matchLabels": {"example.test/nobody": "has"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }]});
    for (path, content) in [
        (&secret, json!({"data": {"tls.key": "a2V5"}})),
        (&configuration, webhook),
    ] {
        account.ask(Method::PATCH, path, &content).await.unwrap();
    }
    apply(&cluster, &arguments).await;
    let nothing = Value::Null;
    let secret = account.ask(Method::GET, &secret, &nothing).await.unwrap();
    assert_eq!(secret["data"], json!({"tls.key": "a2V5"}));
    let found = account.ask(Method::GET, &configuration, &nothing).await;
    assert_eq!(found.unwrap()["webhooks"][0]["name"], "a.example.test");
    let admin = Somebody(cluster.admin.clone());
    admin
        .ask(Method::DELETE, &configuration, &nothing)
        .await
        .unwrap();
}
