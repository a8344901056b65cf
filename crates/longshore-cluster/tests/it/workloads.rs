//! Defaults of workloads, and what discovery says.

use kube::discovery::{Discovery, Scope, verbs};
use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::harness::{Api, PODS, pod};

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
           "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}})
}

#[tokio::test]
async fn pods_are_completed_as_kubernetes_completes_them() {
    let api = Api::new(&Cluster::in_memory());
    let mut asked = pod("a");
    asked["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    asked["spec"]["volumes"] = json!([{"name": "v"}, {"name": "w", "configMap": {"name": "c"}}]);
    asked["status"] = json!({"phase": "Running"});
    let made = api.make(PODS, asked).await;
    for (pointer, expected) in [
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/terminationGracePeriodSeconds", json!(30)),
        ("/spec/serviceAccountName", json!("default")),
        ("/spec/serviceAccount", json!("default")),
        ("/spec/tolerations/1/tolerationSeconds", json!(300)),
        ("/spec/containers/0/imagePullPolicy", json!("Always")),
        (
            "/spec/containers/0/terminationMessagePath",
            json!("/dev/termination-log"),
        ),
        ("/spec/containers/0/resources/requests", json!({"cpu": "1"})),
        ("/spec/volumes/0/emptyDir", json!({})),
        ("/spec/volumes/1/configMap/defaultMode", json!(420)),
        (
            "/status",
            json!({"phase": "Pending", "qosClass": "Burstable"}),
        ),
        ("/metadata/generation", json!(1)),
    ] {
        assert_eq!(made.pointer(pointer), Some(&expected), "{pointer}");
    }
    let again = api
        .patch("merge", &format!("{PODS}/a"), json!({"spec": made["spec"]}))
        .await
        .1;
    assert_eq!(again, made, "completed objects are complete");
}

#[tokio::test]
async fn a_pod_is_guaranteed_what_it_may_use_however_the_quantities_are_written() {
    let api = Api::new(&Cluster::in_memory());
    for (name, requests, class) in [
        (
            "same",
            json!({"cpu": "1000m", "memory": "1048576Ki"}),
            "Guaranteed",
        ),
        ("number", json!({"cpu": 1, "memory": "1Gi"}), "Guaranteed"),
        ("less", json!({"cpu": "999m", "memory": "1Gi"}), "Burstable"),
    ] {
        let mut asked = pod(name);
        asked["spec"]["containers"][0]["resources"] =
            json!({"requests": requests, "limits": {"cpu": "1", "memory": "1Gi"}});
        let made = api.make(PODS, asked).await;
        assert_eq!(made["status"]["qosClass"], class, "{name}");
    }
}

#[tokio::test]
async fn a_manifest_can_be_put_again() {
    let api = Api::new(&Cluster::in_memory());
    let mut manifest = pod("a");
    manifest["spec"]["priority"] = 7.into();
    let made = api.make(PODS, manifest).await;
    let (code, same) = api.put(&format!("{PODS}/a"), pod("a")).await;
    assert_eq!((code, same), (200, made));
}

#[tokio::test]
async fn pods_without_what_they_need_are_refused() {
    let api = Api::new(&Cluster::in_memory());
    let spec = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
    for (what, pod, field) in [
        ("no containers", spec(json!({})), "spec.containers"),
        (
            "no image",
            spec(json!({"containers": [{"name": "c"}]})),
            "spec.containers[0].image",
        ),
        (
            "no name",
            spec(json!({"containers": [{"image": "i"}]})),
            "spec.containers[0].name",
        ),
        (
            "same name",
            spec(json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]})),
            "spec.containers[1].name",
        ),
        (
            "restart policy",
            spec(
                json!({"restartPolicy": "Sometimes", "containers": [{"name": "c", "image": "i"}]}),
            ),
            "spec.restartPolicy",
        ),
    ] {
        let (code, status) = api.post(PODS, pod).await;
        assert_eq!(
            (code, &status["details"]["causes"][0]["field"]),
            (422, &json!(field)),
            "{what}: {status}"
        );
        assert_eq!(status["details"]["kind"], "Pod");
    }
}

#[tokio::test]
async fn jobs_select_their_own_pods() {
    let api = Api::new(&Cluster::in_memory());
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template()}});
    let made = api.make(jobs, job).await;
    let uid = &made["metadata"]["uid"];
    assert_eq!(
        made["spec"]["selector"]["matchLabels"],
        json!({"batch.kubernetes.io/controller-uid": uid})
    );
    assert_eq!(
        made["spec"]["template"]["metadata"]["labels"]["job-name"],
        "j"
    );
    assert_eq!(
        (&made["spec"]["backoffLimit"], &made["spec"]["completions"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(
        made["spec"]["template"]["spec"]["schedulerName"],
        "default-scheduler"
    );
}

#[tokio::test]
async fn selectors_of_workloads_match_their_template_and_stay() {
    let api = Api::new(&Cluster::in_memory());
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut template = template();
    template["spec"]["restartPolicy"] = "Always".into();
    let deployment = |app: &str| json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": app}}, "template": template}});
    assert_eq!(api.post(path, deployment("y")).await.0, 422);
    let made = api.make(path, deployment("x")).await;
    assert_eq!(
        (&made["spec"]["replicas"], &made["spec"]["strategy"]["type"]),
        (&json!(1), &json!("RollingUpdate"))
    );
    let change = json!({"spec": {"selector": {"matchLabels": {"app": null, "b": "c"}}}});
    assert_eq!(
        api.patch("merge", &format!("{path}/d"), change).await.0,
        422
    );
}

#[tokio::test]
async fn pods_of_a_stateful_set_mount_what_its_claim_templates_name() {
    let api = Api::new(&Cluster::in_memory());
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let set = |claim: &str| {
        let mut template = template();
        template["spec"]["restartPolicy"] = "Always".into();
        let mounts = json!([{"name": "www", "mountPath": "/www"}]);
        template["spec"]["containers"][0]["volumeMounts"] = mounts;
        let claim = json!({"metadata": {"name": claim}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
        json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "template": template,
            "selector": {"matchLabels": {"app": "x"}}, "volumeClaimTemplates": [claim]}})
    };
    assert_eq!(api.post(path, set("data")).await.0, 422);
    api.make(path, set("www")).await;
}

#[tokio::test]
async fn discovery_names_every_resource() {
    let client = Cluster::in_memory().client();
    let discovery = Discovery::new(client).run().await.unwrap();
    let mut found = Vec::new();
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.recommended_resources() {
            // Reviews are answered, not stored.
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            assert!(
                capabilities.supports_operation(verbs::WATCH),
                "{}",
                resource.plural
            );
            let dot = if capabilities.scope == Scope::Namespaced {
                ""
            } else {
                "*"
            };
            found.push(format!("{}/{}{dot}", resource.api_version, resource.kind));
        }
    }
    for expected in [
        "v1/Pod",
        "v1/Node*",
        "apps/v1/Deployment",
        "batch/v1/Job",
        "events.k8s.io/v1/Event",
    ] {
        assert!(
            found.iter().any(|it| it == expected),
            "{expected} in {found:?}"
        );
    }
    assert!(found.len() >= 39, "{found:?}");
}
