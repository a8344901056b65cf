//! Discovery, explanations, and reading in every form.

use super::script::Script;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_its_way() {
    let Some(script) = Script::start("finding") else {
        return;
    };
    script
        .expect("version", "Server Version: v1.34.2+longshore")
        .await;
    script.expect("api-resources", "deploy ").await;
    script
        .expect("api-resources --namespaced=false", "PersistentVolume")
        .await;
    script
        .expect("api-versions", "coordination.k8s.io/v1")
        .await;
    script.expect("get namespaces", "kube-system ").await;
    script.expect("get all", "service/kubernetes").await;
    script
        .expect(
            "explain pods.spec.containers.image",
            "FIELD: image <string>",
        )
        .await;
    script
        .expect("explain deployments --recursive", "revisionHistoryLimit")
        .await;
    script.expect("auth can-i delete nodes", "yes").await;
    script.expect("auth whoami", "longshore-admin").await;
    script
        .expect(
            "create serviceaccount robot",
            "serviceaccount/robot created",
        )
        .await;
    // The head of each signed token begins so.
    script
        .expect("create token robot --duration 10m", "eyJ")
        .await;
    script.expect("get --raw /readyz", "ok").await;
    script
        .refuse("get nothings", "the server doesn't have a resource type")
        .await;
    script
        .refuse("get pod missing", "(NotFound): pods \"missing\" not found")
        .await;
}

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {tier: front}}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: a, namespace: default}
reason: Because
message: it is so
type: Normal
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_in_every_form() {
    let Some(script) = Script::start("reading") else {
        return;
    };
    script.feed("create -f -", PODS).await.says("pod/b created");
    for (arguments, expected) in [
        ("get pods", "NAME"),
        ("get pods -o wide", "NOMINATED NODE"),
        ("get pods -o name", "pod/a"),
        ("get pods -o yaml", "kind: List"),
        ("get pods -o json", "\"kind\": \"List\""),
        ("get pod a -o jsonpath={.spec.containers[0].image}", "i"),
        (
            "get pods -o custom-columns=N:.metadata.name,P:.status.phase",
            "Pending",
        ),
        (
            "get pods --sort-by=.metadata.name --show-labels",
            "tier=front",
        ),
        ("get pods -l tier=front -o name", "pod/a"),
        ("get pods -l tier!=front -o name", "pod/b"),
        (
            "get pods --field-selector=spec.nodeName=n1 -o name",
            "pod/b",
        ),
        (
            "get pods --field-selector=metadata.name!=a -o name",
            "pod/b",
        ),
        ("get pods --chunk-size=1 -A", "default"),
        ("get po,events", "Because"),
        (
            "get pod a --output-watch-events=false --ignore-not-found",
            "a",
        ),
        ("get pod missing --ignore-not-found", ""),
        ("events", "it is so"),
        ("describe pod a", "Events:"),
        ("describe namespace default", "Active"),
        ("describe node", ""),
        (
            "get --raw /api/v1/namespaces/default/pods/a",
            "\"name\":\"a\"",
        ),
        ("cluster-info", "is running at"),
        ("explain pods --recursive", "terminationGracePeriodSeconds"),
        (
            "explain job.spec.backoffLimit",
            "FIELD: backoffLimit <integer>",
        ),
        ("api-resources --api-group=apps --no-headers", "StatefulSet"),
        ("api-resources --verbs=list,get -o name", "configmaps"),
        ("api-resources --categories=all", "Job"),
    ] {
        script.expect(arguments, expected).await;
    }
    script
        .refuse(
            "get pods --field-selector=spec.nothing=1",
            "field label not supported",
        )
        .await;
    script
        .refuse(
            "explain pods.spec.nothing",
            "field \"nothing\" does not exist",
        )
        .await;
    script.refuse("get pods -l a=b=c", "").await;
}
