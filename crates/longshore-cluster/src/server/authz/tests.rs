//! Requests of users who may do some things and not others.

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Authorization, Cluster};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A cluster that checks permissions.
struct Checked(Cluster);

impl Checked {
    fn new() -> Checked {
        Checked(builder().build())
    }

    /// Sends a request of the administrator, in the name of another user if one is given.
    async fn send(&self, who: &str, request: &str, body: Value) -> (u16, Value) {
        let (method, path) = request.split_once(' ').unwrap();
        let mut sent = Request::builder().method(method).uri(path);
        if !who.is_empty() {
            sent = sent.header("impersonate-user", who);
        }
        if method == "PATCH" {
            sent = sent.header("content-type", "application/merge-patch+json");
        }
        let bytes: Bytes = if body.is_null() {
            Bytes::new()
        } else {
            body.to_string().into()
        };
        let sent = sent.body(Full::new(bytes)).unwrap();
        let response = self.0.service().oneshot(sent).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        (code, body)
    }

    async fn make(&self, path: &str, object: Value) {
        let (code, answer) = self.send("", &format!("POST {path}"), object).await;
        assert_eq!(code, 201, "{answer}");
    }

    /// The answer to a request without body.
    async fn code(&self, who: &str, request: &str) -> u16 {
        self.send(who, request, Value::Null).await.0
    }

    /// A ClusterRole `name` that is bound to the user of the same name in the whole cluster.
    async fn grant(&self, name: &str, rules: Value) {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.make(&format!("{RBAC}/clusterroles"), role).await;
        let binding = json!({
            "metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": name}],
        });
        self.make(&format!("{RBAC}/clusterrolebindings"), binding)
            .await;
    }
}

fn builder() -> crate::ClusterBuilder {
    Cluster::builder().authorization(Authorization::Rbac)
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn a_right_more_and_a_right_less_are_both_seen() {
    let cluster = Checked::new();
    cluster.make(MAPS, map("a")).await;
    let get = format!("GET {MAPS}/a");
    assert_eq!(cluster.code("jane", &get).await, 403);
    let rules = json!([rule(&["get"], "", &["configmaps"])]);
    cluster.grant("jane", rules).await;
    assert_eq!(cluster.code("jane", &get).await, 200);
    assert_eq!(cluster.code("joe", &get).await, 403);
    let list = format!("GET {MAPS}");
    let (code, refused) = cluster.send("jane", &list, Value::Null).await;
    let words = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
                 namespace \"default\"";
    assert_eq!((code, &refused["message"]), (403, &words.into()));
    let details = json!({"kind": "configmaps"});
    assert_eq!(
        (&refused["reason"], &refused["details"]),
        (&"Forbidden".into(), &details)
    );
    // What was allowed is not after the next write.
    let binding = format!("DELETE {RBAC}/clusterrolebindings/jane");
    assert_eq!(cluster.code("", &binding).await, 200);
    assert_eq!(cluster.code("jane", &get).await, 403);
}

#[tokio::test]
async fn more_bindings_than_a_watch_remembers_count_all_the_same() {
    let cluster = Checked(builder().watch_window(2).build());
    assert_eq!(cluster.code("jane", &format!("GET {MAPS}")).await, 403);
    for name in ["a", "b", "c", "jane", "e"] {
        let rules = json!([rule(&["list"], "", &["configmaps"])]);
        cluster.grant(name, rules).await;
    }
    assert_eq!(cluster.code("jane", &format!("GET {MAPS}")).await, 200);
    cluster.0.expire_watches();
    assert_eq!(cluster.code("jane", &format!("GET {MAPS}")).await, 200);
}

#[tokio::test]
async fn everybody_may_discover_and_ask_about_himself() {
    let cluster = Checked::new();
    for (request, expected) in [
        ("GET /api", 200),
        ("GET /apis/apps/v1", 200),
        ("GET /openapi/v2", 200),
        ("GET /version", 200),
        ("GET /metrics", 403),
        ("GET /api/v1/namespaces", 403),
        ("GET /api/v1/namespaces/default", 403),
    ] {
        assert_eq!(cluster.code("jane", request).await, expected, "{request}");
    }
    let review = format!("POST {REVIEWS}/selfsubjectaccessreviews");
    let asked = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let (code, answer) = cluster.send("jane", &review, asked.clone()).await;
    assert_eq!((code, &answer["status"]), (201, &json!({"allowed": false})));
    let any = format!("POST {REVIEWS}/subjectaccessreviews");
    assert_eq!(cluster.send("jane", &any, asked).await.0, 403);
}

#[tokio::test]
async fn nobody_grants_what_he_does_not_hold() {
    let cluster = Checked::new();
    let roles = ["create", "update", "patch"];
    let all = ["roles", "rolebindings"];
    let rules = json!([
        rule(&roles, "rbac.authorization.k8s.io", &all),
        rule(&["get"], "", &["pods"]),
    ]);
    cluster.grant("jane", rules).await;
    let create = format!("POST {RBAC}/namespaces/default/roles");
    let role = |name: &str, verbs: &[&str]| json!({"metadata": {"name": name}, "rules": [rule(verbs, "", &["pods"])]});
    assert_eq!(
        cluster.send("jane", &create, role("r", &["get"])).await.0,
        201
    );
    let (code, refused) = cluster
        .send("jane", &create, role("s", &["get", "list"]))
        .await;
    let words = "roles.rbac.authorization.k8s.io \"s\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) \
                 is attempting to grant RBAC permissions not currently held:\n\
                 {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}";
    assert_eq!((code, &refused["message"]), (403, &words.into()));
    let patch = format!("PATCH {RBAC}/namespaces/default/roles/r");
    let more = json!({"rules": [rule(&["delete"], "", &["pods"])]});
    assert_eq!(cluster.send("jane", &patch, more.clone()).await.0, 403);
    let owners = json!({"metadata": {"finalizers": ["example.com/f"]}});
    assert_eq!(cluster.send("jane", &patch, owners).await.0, 200);

    let bind = format!("POST {RBAC}/namespaces/default/rolebindings");
    let binding = |name: &str, role: &str| {
        json!({
            "metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "joe"}],
        })
    };
    assert_eq!(
        cluster.send("jane", &bind, binding("own", "jane")).await.0,
        201
    );
    assert_eq!(
        cluster
            .send("jane", &bind, binding("all", "cluster-admin"))
            .await
            .0,
        403
    );
    let (code, refused) = cluster.send("jane", &bind, binding("x", "missing")).await;
    let words = "rolebindings.rbac.authorization.k8s.io \"missing\" not found";
    assert_eq!((code, &refused["message"]), (404, &words.into()));

    // The verbs that allow it.
    let rules = json!([
        rule(&["escalate"], "rbac.authorization.k8s.io", &["roles"]),
        rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"]),
    ]);
    let name = json!({"metadata": {"name": "more"}, "rules": rules});
    cluster.make(&format!("{RBAC}/clusterroles"), name).await;
    let mut jane = binding("more", "more");
    jane["subjects"][0]["name"] = "jane".into();
    cluster
        .make(&format!("{RBAC}/clusterrolebindings"), jane)
        .await;
    assert_eq!(cluster.send("jane", &patch, more).await.0, 200);
    assert_eq!(
        cluster
            .send("jane", &bind, binding("all", "cluster-admin"))
            .await
            .0,
        201
    );
}

#[tokio::test]
async fn whoever_may_update_may_not_therefore_create() {
    let cluster = Checked::new();
    let rules = json!([rule(&["update"], "coordination.k8s.io", &["leases"])]);
    cluster.grant("jane", rules).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let put = format!("PUT {leases}/l");
    let (code, refused) = cluster.send("jane", &put, map("l")).await;
    let words = "leases.coordination.k8s.io \"l\" is forbidden: User \"jane\" cannot create resource \"leases\" in API \
                 group \"coordination.k8s.io\" in the namespace \"default\"";
    assert_eq!((code, &refused["message"]), (403, &words.into()));
    cluster.make(leases, map("l")).await;
    assert_eq!(cluster.send("jane", &put, map("l")).await.0, 200);
}

#[tokio::test]
async fn an_administrator_learns_what_others_may_do() {
    let cluster = Checked::new();
    let rules = json!([rule(&["get"], "", &["pods/log"])]);
    cluster.grant("jane", rules).await;
    let review = format!("POST {REVIEWS}/subjectaccessreviews");
    let log = json!({"verb": "get", "resource": "pods", "subresource": "log", "namespace": "a"});
    let path = json!({"verb": "get", "path": "/metrics"});
    let allowed = json!({
        "allowed": true,
        "reason": "RBAC: allowed by ClusterRoleBinding \"jane\" of ClusterRole \"jane\" to User \"jane\"",
    });
    for (spec, expected) in [
        (json!({"user": "jane", "resourceAttributes": log}), allowed),
        (
            json!({"user": "joe", "resourceAttributes": log}),
            json!({"allowed": false}),
        ),
        (
            json!({"user": "jane", "nonResourceAttributes": path}),
            json!({"allowed": false}),
        ),
        (
            json!({"groups": ["system:masters"], "nonResourceAttributes": path}),
            json!({"allowed": true}),
        ),
    ] {
        let asked = json!({"spec": spec});
        let (code, answer) = cluster.send("", &review, asked).await;
        assert_eq!((code, &answer["status"]), (201, &expected), "{answer}");
    }
    let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}});
    let (code, refused) = cluster.send("", &review, both).await;
    let fields: Vec<&Value> = refused["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| &cause["field"])
        .collect();
    assert_eq!(
        (code, fields),
        (
            422,
            vec![&json!("spec.nonResourceAttributes"), &json!("spec.user")]
        )
    );
}

#[tokio::test]
async fn a_user_learns_all_own_rules() {
    let cluster = Checked::new();
    let rules = json!([rule(&["get"], "", &["pods"])]);
    cluster.grant("jane", rules).await;
    let review = format!("POST {REVIEWS}/selfsubjectrulesreviews");
    let asked = json!({"spec": {"namespace": "default"}});
    let (code, answer) = cluster.send("jane", &review, asked).await;
    assert_eq!(code, 201);
    let status = &answer["status"];
    assert_eq!(status["incomplete"], false);
    let rules = status["resourceRules"].as_array().unwrap();
    assert!(rules.contains(&rule(&["get"], "", &["pods"])), "{status}");
    let paths = status["nonResourceRules"].as_array().unwrap();
    let names_version = |rule: &Value| rule["nonResourceURLs"].to_string().contains("\"/version\"");
    assert!(paths.iter().any(names_version), "{status}");
    assert_eq!(cluster.send("jane", &review, json!({})).await.0, 400);
}

#[tokio::test]
async fn without_rbac_nobody_acts_as_another_user() {
    let cluster = Checked(Cluster::in_memory());
    let (code, refused) = cluster.send("jane", "GET /api/v1/pods", Value::Null).await;
    assert_eq!(code, 403);
    assert!(refused["message"].to_string().contains("--as"), "{refused}");
    let roles = format!("GET {RBAC}/clusterroles");
    let (_, listed) = cluster.send("", &roles, Value::Null).await;
    assert_eq!(listed["items"], json!([]));
}

#[tokio::test]
async fn default_roles_are_completed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster");
    let cluster = Checked(builder().open(&path).unwrap());
    let role = format!("{RBAC}/clusterroles/system:discovery");
    let (_, whole) = cluster.send("", &format!("GET {role}"), Value::Null).await;
    let without = json!({"rules": []});
    assert_eq!(
        cluster.send("", &format!("PATCH {role}"), without).await.0,
        200
    );
    let binding = format!("DELETE {RBAC}/clusterrolebindings/system:basic-user");
    assert_eq!(cluster.code("", &binding).await, 200);
    cluster.0.close();
    drop(cluster);
    let cluster = Checked(builder().open(&path).unwrap());
    let (_, again) = cluster.send("", &format!("GET {role}"), Value::Null).await;
    assert_eq!(again["metadata"]["uid"], whole["metadata"]["uid"]);
    let paths = |role: &Value| {
        let mut paths: Vec<String> = Vec::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            paths.extend(super::rules::texts(&rule["nonResourceURLs"]));
        }
        paths.sort();
        paths
    };
    assert!(!paths(&whole).is_empty());
    assert_eq!(paths(&again), paths(&whole));
    let binding = format!("GET {RBAC}/clusterrolebindings/system:basic-user");
    assert_eq!(cluster.code("", &binding).await, 200);
}
