//! Kinds that are stored and served, and that nothing here acts on: their statuses, versions and rights.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use longshore_cluster::{Authorization, Cluster};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Answer, Api};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const OLD_AUTOSCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

#[tokio::test]
async fn configuration_of_the_server_is_stored_with_its_status() {
    let api = Api::new(&Cluster::in_memory());
    let (flow, registration) = (
        "flowcontrol.apiserver.k8s.io/v1",
        "apiregistration.k8s.io/v1",
    );
    let limited = json!({"nominalConcurrencyShares": 30, "lendablePercent": 0});
    for (version, plural, spec, expected) in [
        (
            flow,
            "flowschemas",
            json!({}),
            json!({"matchingPrecedence": 1000}),
        ),
        (
            flow,
            "prioritylevelconfigurations",
            json!({"limited": {}}),
            json!({"limited": limited}),
        ),
        (
            registration,
            "apiservices",
            json!({"group": "a"}),
            json!({"group": "a"}),
        ),
    ] {
        let collection = format!("/apis/{version}/{plural}");
        let object = json!({"metadata": {"name": "a"}, "spec": spec, "status": {"conditions": []}});
        let made = api.make(&collection, object).await;
        assert_eq!(
            (&made["spec"], &made["status"]),
            (&expected, &json!({})),
            "{plural}"
        );
        let status = format!("{collection}/a/status");
        let conditions = json!([{"type": "Available", "status": "True"}]);
        let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"group": "x"}, "status": {"conditions": conditions}});
        let (code, patched) = api.patch("merge", &status, patch).await;
        assert_eq!((code, &patched["spec"]), (200, &expected), "{plural}");
        assert_eq!(patched["status"]["conditions"], conditions, "{plural}");
        assert!(
            patched["metadata"].get("labels").is_none(),
            "{plural}: {patched}"
        );
        let (_, list) = api.get(&format!("/apis/{version}")).await;
        let names = list["resources"].as_array().unwrap().iter();
        let mut names = names.map(|it| it["name"].as_str().unwrap());
        assert!(
            names.any(|name| name == format!("{plural}/status")),
            "{list}"
        );
    }
}

#[tokio::test]
async fn the_old_version_of_an_autoscaler_shows_and_keeps_the_new_one() {
    let api = Api::new(&Cluster::in_memory());
    let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let spec =
        json!({"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50});
    let made = api
        .make(
            OLD_AUTOSCALERS,
            json!({"metadata": {"name": "old"}, "spec": spec}),
        )
        .await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("autoscaling/v1"), &spec)
    );
    let (_, new) = api.get(&format!("{AUTOSCALERS}/old")).await;
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    assert_eq!(
        (&new["apiVersion"], &new["spec"]["metrics"]),
        (&json!("autoscaling/v2"), &json!([cpu]))
    );

    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": [memory]});
    api.make(
        AUTOSCALERS,
        json!({"metadata": {"name": "new"}, "spec": spec}),
    )
    .await;
    let path = format!("{OLD_AUTOSCALERS}/new");
    let (_, mut shown) = api.get(&path).await;
    assert_eq!(shown["spec"].get("metrics"), None);
    shown["spec"]["maxReplicas"] = 5.into();
    assert_eq!(api.put(&path, shown).await.0, 200);
    let status = json!({"status": {"currentReplicas": 2, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 7}});
    assert_eq!(
        api.patch("merge", &format!("{path}/status"), status)
            .await
            .0,
        200
    );
    let (_, new) = api.get(&format!("{AUTOSCALERS}/new")).await;
    assert_eq!(
        new["spec"],
        json!({"scaleTargetRef": target, "maxReplicas": 5, "metrics": [memory]})
    );
    assert_eq!(new["metadata"].get("annotations"), None);
    let used = &new["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(*used, json!({"averageUtilization": 7}));
    let (_, list) = api.get(OLD_AUTOSCALERS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}

/// An answer to a user who is not the administrator.
async fn acting(cluster: &Cluster, user: &str, method: Method, path: &str, body: Value) -> Answer {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("impersonate-user", user)
        .header("impersonate-group", "team")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = cluster.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap())
}

/// Gives a user a role of the cluster.
async fn grant(api: &Api, user: &str, rules: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": user}, "rules": rules});
    api.make(&format!("{rbac}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": user}, "roleRef": {"kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user}],
    });
    api.make(&format!("{rbac}/clusterrolebindings"), binding)
        .await;
}

/// The right to write requests for certificates and their parts, and one on a signer.
fn rights((verb, signer): (&str, &str)) -> Value {
    let group = ["certificates.k8s.io"];
    let requests = "certificatesigningrequests";
    let resources = [
        requests.to_owned(),
        format!("{requests}/approval"),
        format!("{requests}/status"),
    ];
    let verbs = ["create", "get", "update", "patch"];
    json!([
        {"apiGroups": group, "resources": resources, "verbs": verbs},
        {"apiGroups": group, "resources": ["signers"], "resourceNames": [signer], "verbs": [verb]},
    ])
}

fn approved() -> Value {
    let condition = json!({"type": "Approved", "status": "True", "reason": "r"});
    json!({"status": {"conditions": [condition], "certificate": "c2lnbmVk"}})
}

/// A cluster with a request of jane for `example.com/web`, and the request as it was stored. Jane approves for another
/// signer, the boss for all of this domain, the signer signs.
async fn with_request() -> (Cluster, Api, Value) {
    let cluster = Cluster::builder()
        .authorization(Authorization::Rbac)
        .build();
    let api = Api::new(&cluster);
    for (user, signer) in [
        ("jane", ("approve", "example.org/other")),
        ("boss", ("approve", "example.com/*")),
        ("signer", ("sign", "example.com/web")),
    ] {
        grant(&api, user, rights(signer)).await;
    }
    let spec = json!({
        "username": "root", "groups": ["system:masters"], "signerName": "example.com/web", "usages": ["client auth"],
        "request": "cmVxdWVzdA==",
    });
    let asked = json!({"metadata": {"name": "a"}, "spec": spec});
    let (code, made) = acting(&cluster, "jane", Method::POST, REQUESTS, asked).await;
    assert_eq!(code, 201, "{made}");
    (cluster, api, made)
}

#[tokio::test]
async fn a_request_for_a_certificate_says_who_asks_and_stays_as_it_is() {
    let (cluster, api, made) = with_request().await;
    let who = (&made["spec"]["username"], &made["spec"]["groups"]);
    assert_eq!(
        who,
        (&json!("jane"), &json!(["team", "system:authenticated"]))
    );
    assert_eq!(made["status"], json!({}));
    let path = format!("{REQUESTS}/a");
    let other = json!({"spec": {"signerName": "example.org/other"}});
    let (code, kept) = acting(&cluster, "jane", Method::PATCH, &path, other).await;
    assert_eq!((code, &kept["spec"]), (200, &made["spec"]));
    let of_signer = format!("{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com%2Fweb");
    let (_, list) = api.get(&of_signer).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (code, _) = api.delete(&format!("{path}/approval"), Value::Null).await;
    assert_eq!(code, 405);
}

#[tokio::test]
async fn only_approvers_approve_a_request_and_only_signers_sign_it() {
    let (cluster, _, _) = with_request().await;
    let (approval, status) = (
        format!("{REQUESTS}/a/approval"),
        format!("{REQUESTS}/a/status"),
    );
    let write = async |user: &str, path: &str, body: Value| {
        acting(&cluster, user, Method::PATCH, path, body).await
    };
    let (code, refused) = write("jane", &approval, approved()).await;
    let why = "user not permitted to approve requests with signerName \"example.com/web\"";
    assert_eq!(code, 403);
    assert!(
        refused["message"].as_str().unwrap().ends_with(why),
        "{refused}"
    );
    let (code, _) = write("signer", &status, approved()).await;
    assert_eq!(code, 422, "a status does not approve");
    let (code, done) = write("boss", &approval, approved()).await;
    assert_eq!((code, done["status"].get("certificate")), (200, None));
    assert_eq!(done["status"]["conditions"][0]["type"], "Approved");

    let signed = json!({"status": {"certificate": "c2lnbmVk"}});
    let (code, _) = write("boss", &status, signed.clone()).await;
    assert_eq!(code, 403, "who approves does not sign");
    let (code, done) = write("signer", &status, signed.clone()).await;
    assert_eq!(
        (code, &done["status"]["certificate"]),
        (200, &signed["status"]["certificate"])
    );
}
