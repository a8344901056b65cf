//! `longshore uninstall --role podops`, with and without a controller that runs.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use longshore_api::podops::{
    CONDITION_SERVICE_READY, FINALIZER_PROTECTED, FINALIZER_SERVICES, LABEL_SERVICE_AVAILABLE,
    OperationLabel,
};
use serde_json::{Value, json};

use super::{
    http::{self, Asked},
    place::Place,
    world::{CONFIGURATIONS, CONFIGURED, GRANTED, World},
};
use crate::controller::replica::until;

/// A finalizer of another controller.
const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/table";
const MARK: &str = "longshore-podops";

fn uninstall(world: &World) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args([
        "uninstall",
        "--role",
        "podops",
        "-o",
        "json",
        "-n",
        world.home(),
    ]);
    command.arg("--kubeconfig").arg(world.kubeconfig());
    command
}

/// Exit code, stdout, stderr.
fn output(command: &mut Command) -> (i32, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// What it reports; it has to succeed.
async fn run(world: &World, arguments: &[&str]) -> Value {
    let mut command = uninstall(world);
    command.args(arguments);
    let ended = tokio::task::spawn_blocking(move || output(&mut command));
    let (code, stdout, stderr) = ended.await.unwrap();
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).unwrap_or(Value::Null)
}

fn objects(report: &Value, what: &str) -> Vec<String> {
    let steps = report["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["what"] == what);
    let objects = step.unwrap_or_else(|| panic!("{what}: {report}"))["objects"].as_array();
    let texts = objects.unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

const PODS: &str = "pods with our labels, finalizer or closed gate";
const RULES: &str = "PodTransitionRules with our finalizer";
const REFUSING: &str = "objects that refuse requests";

/// A namespace with everything that could be held: a pod that serves, one in an operation that waits for another
/// controller, and a rule.
async fn inhabited<'a>(world: &'a World, name: &str) -> Place<'a> {
    let place = world.namespace(name).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    http::create(place.client(), &place.core("services"), &service)
        .await
        .unwrap();
    let check = json!({"requires": {"matchLabels": {"app": "web"}}});
    place
        .rule("always", json!([{"name": "a", "labelCheck": check}]))
        .await;
    place.serving(&["web-0", "web-1"]).await;
    for name in ["web-0", "web-1"] {
        let path = place.core(&format!("pods/{name}"));
        let is_held = |pod: &Value| has_finalizer(pod, FINALIZER_SERVICES);
        world.until_object(&path, is_held).await;
    }
    place
        .change("web-1", json!({"finalizers": [HOLDER, FINALIZER_SERVICES]}))
        .await;
    let operating = json!({
        OperationLabel::Operating.of("a"): "1", OperationLabel::OperationType.of("a"): "update",
    });
    place.label("web-1", operating).await;
    place
        .until_label("web-1", &OperationLabel::Preparing.of("a"))
        .await;
    let is_held = |rule: &Value| has_finalizer(rule, FINALIZER_PROTECTED);
    world.until_object(&place.rules("/always"), is_held).await;
    place
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|it| it == finalizer))
}

/// Nothing of ours is on the pods and the rule of a place, and nothing refuses requests.
async fn is_left(place: &Place<'_>) {
    let world = place.world;
    for (plural, name) in CONFIGURED {
        let path = format!("{CONFIGURATIONS}/{plural}/{name}");
        let found = http::get(world.client(), &path).await;
        assert!(found.is_err(), "{name} is there");
    }
    for pod in place.pods().await {
        let keys = pod.labels.keys();
        let ours: Vec<&String> = keys.filter(|key| key.contains("podopslifecycle")).collect();
        assert!(ours.is_empty(), "{ours:?}");
        assert!(!pod.finalizers.iter().any(|it| it == FINALIZER_SERVICES));
        let is_open = pod.service_ready == Some(longshore_podops::model::ConditionStatus::True);
        assert!(is_open, "{CONDITION_SERVICE_READY}: {pod:?}");
    }
    let rule = http::get(world.client(), &place.rules("/always")).await;
    assert!(!has_finalizer(&rule.unwrap(), FINALIZER_PROTECTED));
}

/// The resource versions of a pod that no other client writes, and of the configurations.
async fn versions(place: &Place<'_>) -> Vec<Value> {
    let mut paths = vec![place.core("pods/web-0")];
    paths.extend(CONFIGURED.map(|(plural, name)| format!("{CONFIGURATIONS}/{plural}/{name}")));
    let mut versions = Vec::new();
    for path in paths {
        let object = http::get(place.client(), &path).await.unwrap();
        versions.push(object["metadata"]["resourceVersion"].clone());
    }
    versions
}

/// While a controller runs, and what is left without it.
pub(super) async fn in_order(world: &World) {
    let place = inhabited(world, "left").await;
    a_lease_in_another_namespace_is_no_proof(&place).await;
    a_dry_run_lists_everything_and_writes_nothing(&place).await;
    a_controller_that_runs_stops_and_puts_nothing_back(&place).await;
    a_pod_a_rule_and_a_namespace_go_without_us(&place).await;
    it_can_be_installed_again(world).await;
}

/// Interrupted, and what is left then. The controller is there again afterwards, for the test to stop it in order.
pub(super) async fn killed(world: &World) {
    let again = inhabited(world, "left-again").await;
    killed_in_the_middle_it_goes_on_without_a_controller(&again).await;
    a_pod_a_rule_and_a_namespace_go_without_us(&again).await;
    world.revive();
}

/// The webhooks have URLs here. Where the rights are granted by bindings, those say where the controller is; elsewhere
/// only Leases do.
async fn a_lease_in_another_namespace_is_no_proof(place: &Place<'_>) {
    let world = place.world;
    let leases = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        place.namespace
    );
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": MARK},
        "spec": {
            "holderIdentity": "somebody", "leaseDurationSeconds": 15,
            "renewTime": "2999-01-01T00:00:00.000000Z",
        },
    });
    http::create(world.client(), &leases, &lease).await.unwrap();
    let before = versions(place).await;
    let right = format!("--role podops -n {}`", place.namespace);
    let is_granted = world.cluster.is_real();
    let flags = ["--dry-run", "--yes"].into_iter();
    for flag in flags.take(if is_granted { 1 } else { 2 }) {
        let mut command = uninstall(world);
        command.arg(flag);
        let ended = tokio::task::spawn_blocking(move || output(&mut command));
        let (code, _, stderr) = ended.await.unwrap();
        assert_eq!(code, if is_granted { 0 } else { 3 }, "{flag}: {stderr}");
        let says = stderr.contains("LS1108") && stderr.contains(&right);
        assert_eq!(says, !is_granted, "{flag}: {stderr}");
    }
    assert_eq!(versions(place).await, before);
    let lease = format!("{leases}/{MARK}");
    http::delete(world.client(), &lease, json!({}))
        .await
        .unwrap();
}

async fn a_dry_run_lists_everything_and_writes_nothing(place: &Place<'_>) {
    let before = versions(place).await;
    let report = run(place.world, &["--dry-run"]).await;
    assert_eq!(report["isDryRun"], true);
    let pods = objects(&report, PODS);
    for name in ["web-0", "web-1"] {
        let name = format!("{}/{name}", place.namespace);
        assert!(pods.contains(&name), "{report}");
    }
    let rule = format!("{}/always", place.namespace);
    assert!(objects(&report, RULES).contains(&rule), "{report}");
    assert_eq!(objects(&report, REFUSING).len(), 2, "{report}");
    let left = report["left"].as_array().unwrap();
    let names_holder = |left: &Value| left["why"].as_str().unwrap().contains(HOLDER);
    assert!(left.iter().any(names_holder), "{report}");
    assert_eq!(versions(place).await, before);
    // The user has not confirmed it.
    let mut command = uninstall(place.world);
    let (code, _, stderr) = output(&mut command);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("LS1026"), "{stderr}");
    assert_eq!(versions(place).await, before);
}

async fn a_controller_that_runs_stops_and_puts_nothing_back(place: &Place<'_>) {
    let world = place.world;
    let report = run(world, &["--yes"]).await;
    assert!(objects(&report, REFUSING).len() >= 2, "{report}");
    is_left(place).await;
    // Another one writes at once what it finds missing: it must not.
    world.kill();
    world.revive();
    until("it says that it was uninstalled", || {
        world.log().contains("was uninstalled, and does nothing")
    })
    .await;
    let undo = format!("--role podops -n {} --undo`", world.home());
    assert!(world.log().contains(&undo), "{}", world.log());
    is_left(place).await;
    // Once more: there is nothing to do.
    let again = run(world, &["--yes"]).await;
    for what in [PODS, RULES, REFUSING] {
        assert!(objects(&again, what).is_empty(), "{again}");
    }
}

/// By plain requests; and together with its namespace, where the cluster has a namespace controller.
async fn a_pod_a_rule_and_a_namespace_go_without_us(place: &Place<'_>) {
    let world = place.world;
    let free = json!({"metadata": {"finalizers": []}});
    let path = place.core("pods/web-1");
    // What another controller holds, it lets go.
    http::patch(place.client(), &path, Asked::Merge, &free)
        .await
        .unwrap();
    place.delete("web-0").await.unwrap();
    place.until_gone("web-0").await;
    if world.has_workloads {
        let path = format!("/api/v1/namespaces/{}", place.namespace);
        http::delete(world.client(), &path, json!({}))
            .await
            .unwrap();
        world.until_missing(&path).await;
        println!("real server: a namespace goes after longshore uninstall");
    } else {
        let rule = place.rules("/always");
        http::delete(world.client(), &rule, json!({}))
            .await
            .unwrap();
        world.until_missing(&rule).await;
        place.delete("web-1").await.unwrap();
        place.until_gone("web-1").await;
    }
}

/// The controller that waits goes on, and protects.
async fn it_can_be_installed_again(world: &World) {
    if world.cluster.is_real() {
        // It may create nothing by itself.
        world.cluster.grant(&GRANTED).await;
    }
    run(world, &["--undo"]).await;
    until("it works again", || {
        world.log().contains("podops: runs here")
    })
    .await;
    world.until_told().await;
    let place = world.namespace("back").await;
    place.serving(&["web-0"]).await;
    assert!(place.delete("web-0").await.is_err(), "refused at first");
    place.until_gone("web-0").await;
}

async fn killed_in_the_middle_it_goes_on_without_a_controller(place: &Place<'_>) {
    let world = place.world;
    world.kill();
    let mut command = uninstall(world);
    command
        .arg("--yes")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let killed = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // It waits behind its mark.
        let waits = stderr
            .lines()
            .find(|line| line.as_ref().unwrap().contains("waits"));
        child.kill().unwrap();
        child.wait().unwrap();
        waits.is_some()
    });
    assert!(killed.await.unwrap());
    let pod = place.pod("web-0").await;
    assert!(pod.labels.contains_key(LABEL_SERVICE_AVAILABLE), "{pod:?}");
    let lease = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{MARK}",
        world.home()
    );
    let lease = http::get(world.client(), &lease).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "longshore-uninstall");
    run(world, &["--yes"]).await;
    is_left(place).await;
}
