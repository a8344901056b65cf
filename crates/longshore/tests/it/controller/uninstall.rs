//! `longshore uninstall` of the roles that have a namespace of their own. The role `podops` has one test for the whole
//! cluster.

use std::fs;

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
    rbac::v1::ClusterRoleBinding,
};
use kube::{Api, ResourceExt, api::PostParams};
use longshore_api::flyte::FINALIZER_PLUGIN;
use serde_json::{Value, json};

use super::{
    ONE_WEBHOOK,
    replica::{Plan, free_port, until},
};
use crate::{
    cluster::TestCluster,
    longshore, outcome, repository,
    task_actions::{TaskActions, action},
};

/// Exit code, what it reports, and what it says meanwhile.
async fn uninstall(cluster: &TestCluster, role: &str, arguments: &[&str]) -> (i32, Value, String) {
    uninstall_in(cluster, &cluster.namespace, role, arguments).await
}

/// The same, of this namespace.
async fn uninstall_in(
    cluster: &TestCluster,
    namespace: &str,
    role: &str,
    arguments: &[&str],
) -> (i32, Value, String) {
    let mut command = longshore();
    command.args(["uninstall", "--role", role, "-o", "json", "-n", namespace]);
    command.arg("--kubeconfig").arg(cluster.admin_kubeconfig());
    command.args(arguments);
    let ended = tokio::task::spawn_blocking(move || outcome(&mut command));
    let (code, stdout, stderr) = ended.await.unwrap();
    (
        code,
        serde_json::from_str(&stdout).unwrap_or_default(),
        stderr,
    )
}

fn has_finalizer(action: &Value) -> bool {
    let finalizers = action["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER_PLUGIN))
}

async fn until_held(actions: &TaskActions, name: &str) {
    while !has_finalizer(&actions.get(name).await) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// In the report, and in the text for people.
async fn a_dry_run_says_would(cluster: &TestCluster, report: &Value) {
    let verbs: Vec<&Value> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["verb"])
        .collect();
    assert_eq!(verbs[..2], ["set", "release"], "{report}");
    let mut command = longshore();
    command.args(["uninstall", "--role", "tasks", "--dry-run", "-n"]);
    command.arg(&cluster.namespace);
    command.arg("--kubeconfig").arg(cluster.admin_kubeconfig());
    let ended = tokio::task::spawn_blocking(move || outcome(&mut command));
    let (code, text, stderr) = ended.await.unwrap();
    assert_eq!(code, 0, "{stderr}");
    for expected in [
        "; nothing is written yet:\n  would set the mark that stops the controllers:\n",
        "  would release the TaskActions with our finalizer:\n",
        "would stay:\n",
        "whoever deletes their definition would delete them too",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_tasks_leaves_actions_that_go_without_it_and_goes_on_with_them_when_it_is_back() {
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let mut controller = Plan::of(&cluster, "tasks").start("tasks");
    until("it leads", || controller.leads()).await;
    actions.create(&action("long", 0, "run 20s exit 0")).await;
    actions.create(&action("other", 0, "run 600s exit 0")).await;
    for name in ["long", "other"] {
        until_held(&actions, name).await;
    }

    let (code, report, _) = uninstall(&cluster, "tasks", &["--dry-run"]).await;
    assert_eq!((code, &report["isDryRun"]), (0, &json!(true)));
    assert!(report.to_string().contains("/long"), "{report}");
    a_dry_run_says_would(&cluster, &report).await;
    let (code, _, stderr) = uninstall(&cluster, "tasks", &["--wait", "1s"]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("LS1026") && stderr.contains("while 2 of its actions run"),
        "{stderr}"
    );
    assert!(has_finalizer(&actions.get("long").await));

    let (code, report, stderr) = uninstall(&cluster, "tasks", &["--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(report.to_string().contains("2 taskactions"), "{report}");
    until("it stops", || {
        controller
            .log()
            .contains("the lease is held by longshore-uninstall")
    })
    .await;
    for name in ["long", "other"] {
        assert!(!has_finalizer(&actions.get(name).await), "{name}");
    }
    actions
        .api()
        .delete("other", &Default::default())
        .await
        .unwrap();
    while actions.api().get_opt("other").await.unwrap().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    until("it says why it does nothing", || {
        controller
            .log()
            .contains("tasks: was uninstalled, and does nothing")
    })
    .await;
    let undo = format!(
        "`longshore uninstall --role tasks -n {} --undo`",
        cluster.namespace
    );
    assert!(controller.log().contains(&undo), "{}", controller.log());
    // In another namespace there is nothing to undo.
    let (code, _, stderr) = uninstall_in(&cluster, "default", "tasks", &["--undo"]).await;
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("LS1109") && stderr.contains("in the namespace default"),
        "{stderr}"
    );

    let (code, _, stderr) = uninstall(&cluster, "tasks", &["--undo"]).await;
    assert_eq!(code, 0, "{stderr}");
    actions.until_ended("long").await;
    let ended = actions.get("long").await;
    assert!(ended["status"].to_string().contains("Completed"), "{ended}");
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_dags_stops_where_it_is_until_it_may_run_again() {
    let cluster = TestCluster::start().await;
    let plan = Plan::of(&cluster, "dags");
    let data = plan.data();
    fs::create_dir_all(data.join("dags")).unwrap();
    let mut controller = plan.start("dags");
    until("it leads", || controller.leads()).await;
    let (code, _, stderr) = uninstall(&cluster, "dags", &["--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    until("it says why it does nothing", || {
        controller
            .log()
            .contains("dags: was uninstalled, and does nothing")
    })
    .await;
    // Again, by a controller that is gone: nothing is to be done.
    controller.kill();
    let (code, report, stderr) = uninstall(&cluster, "dags", &["--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(report["steps"][0]["objects"], json!([]), "{report}");
    let (code, _, stderr) = uninstall(&cluster, "dags", &["--undo"]).await;
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = uninstall(&cluster, "dags", &["--undo"]).await;
    assert_eq!(code, 3, "{stderr}");
    let says = stderr.contains("LS1109") && stderr.contains(&cluster.namespace);
    assert!(says, "{stderr}");
    for flag in ["--dry-run", "--yes"] {
        let (code, _, stderr) = uninstall_in(&cluster, "no-such", "dags", &[flag]).await;
        assert_eq!(code, 3, "{flag}: {stderr}");
        let says = stderr.contains("LS1108") && stderr.contains("there is no namespace no-such");
        assert!(says, "{flag}: {stderr}");
    }
    let mut controller = plan.start("dags-again");
    until("it leads again", || controller.leads()).await;
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_webhook_leaves_no_webhook_and_a_replica_that_is_started_makes_none() {
    let _alone = ONE_WEBHOOK.lock().await;
    let cluster = TestCluster::start().await;
    let name = format!("leaving-{}", cluster.namespace);
    let config = cluster.folder.path().join("leaving.yaml");
    let text = json!({"webhook": {
        "secretName": "leaving", "serviceName": name, "servicePort": free_port(),
        "listenPort": free_port(), "cacheInvalidationPort": 0,
    }});
    fs::write(&config, text.to_string()).unwrap();
    let mut plan = Plan::of(&cluster, "webhook");
    plan.config = Some(config.clone());
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), &cluster.namespace);
    let mut replica = plan.start("webhook");
    while configurations.get_opt(&name).await.unwrap().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // Of another namespace, this would take the webhook from the replica.
    let right = format!("-n {}", cluster.namespace);
    for (flag, namespace) in [
        ("--dry-run", "default"),
        ("--yes", "default"),
        ("--yes", "no-such"),
    ] {
        let flags = [flag, "--config", config.to_str().unwrap()];
        let (code, _, stderr) = uninstall_in(&cluster, namespace, "webhook", &flags).await;
        assert_eq!(code, 3, "{flag}: {stderr}");
        let says = stderr.contains("LS1108") && stderr.contains(&right);
        assert!(says, "{flag}: {stderr}");
    }
    assert!(configurations.get_opt(&name).await.unwrap().is_some());
    let flags = ["--yes", "--config", config.to_str().unwrap()];
    let (code, _, stderr) = uninstall(&cluster, "webhook", &flags).await;
    assert_eq!(code, 0, "{stderr}");
    replica.kill();
    assert!(configurations.get_opt(&name).await.unwrap().is_none());
    assert!(secrets.get_opt("leaving").await.unwrap().is_none());

    let mut replica = plan.start("webhook-again");
    until("it says why it makes none", || {
        replica.log().contains("says that the role was uninstalled")
    })
    .await;
    let undo = format!(
        "`longshore uninstall --role webhook -n {} --undo`",
        cluster.namespace
    );
    assert!(replica.log().contains(&undo), "{}", replica.log());
    assert!(configurations.get_opt(&name).await.unwrap().is_none());
    let (code, _, stderr) = uninstall(&cluster, "webhook", &["--undo"]).await;
    assert_eq!(code, 0, "{stderr}");
    while configurations.get_opt(&name).await.unwrap().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
    let made = configurations.get(&name).await.unwrap();
    configurations
        .delete(&made.name_any(), &Default::default())
        .await
        .unwrap();
}

/// A Lease as every owner of a namespace may write it.
async fn forge_lease(cluster: &TestCluster, namespace: &str) {
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), namespace);
    let lease = json!({
        "metadata": {"name": "longshore-podops"},
        "spec": {
            "holderIdentity": "evil", "leaseDurationSeconds": 2_000_000_000,
            "renewTime": "2096-11-27T03:20:00.000000Z",
        },
    });
    let lease = serde_json::from_value(lease).unwrap();
    let params = PostParams::default();
    leases.create(&params, &lease).await.unwrap();
}

/// What an administrator and the controllers of `podops` leave in the cluster, when no controller runs any more.
async fn installed(cluster: &TestCluster) {
    let (params, namespace) = (PostParams::default(), &cluster.namespace);
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.admin.clone());
    let name = format!("longshore-podops:{namespace}");
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "longshore", "namespace": namespace}],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&params, &binding).await.unwrap();
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let configuration = json!({
        "metadata": {"name": longshore_podops::webhooks::MUTATING},
        "webhooks": [{
            "name": "a.apps.kusionstack.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": namespace, "name": "longshore-podops", "path": "/"}},
            "rules": [{
                "apiGroups": ["apps.kusionstack.io"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["podtransitionrules"],
            }],
        }],
    });
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations
        .create(&params, &configuration)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_tenant_misleads_no_uninstall() {
    let cluster = TestCluster::embedded().await;
    let tenant = cluster.beside("tenant").await;
    forge_lease(&cluster, &tenant.namespace).await;
    // Nothing else says anything: it is not followed, and the user decides.
    let (code, _, stderr) = uninstall(&cluster, "podops", &["--dry-run"]).await;
    assert_eq!(code, 3, "{stderr}");
    let remedy = format!(
        "kubectl delete lease -n {} longshore-podops",
        tenant.namespace
    );
    let says = stderr.contains("LS1108") && stderr.contains(&remedy);
    assert!(says, "{stderr}");

    installed(&cluster).await;
    let (code, report, stderr) = uninstall(&cluster, "podops", &["--dry-run"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(report["namespace"], cluster.namespace.as_str(), "{report}");
    let right = format!("--role podops -n {}", cluster.namespace);
    for flag in ["--dry-run", "--yes"] {
        let (code, _, stderr) = uninstall_in(&cluster, &tenant.namespace, "podops", &[flag]).await;
        assert_eq!(code, 3, "{flag}: {stderr}");
        let says = stderr.contains("LS1108") && stderr.contains(&right);
        assert!(says, "{flag}: {stderr}");
    }
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let name = longshore_podops::webhooks::MUTATING;
    assert!(configurations.get_opt(name).await.unwrap().is_some());
}

/// What follows in the lines of docs/secrets.md that begin with this, word by word, up to a pipe.
fn documented(start: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(repository().join("docs/secrets.md")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix(start));
    let commands = lines.map(|line| line.split(" | ").next().unwrap());
    let words = commands.map(|line| line.split(' ').map(str::to_owned).collect());
    words.collect()
}

/// Runs a command of the page on the cluster; what it prints.
async fn run_documented(cluster: &TestCluster, arguments: &[String]) -> String {
    let mut command = longshore();
    command.args(arguments).args(["-o", "json"]);
    if arguments[0] == "uninstall" {
        command.arg("--yes");
        command.arg("--kubeconfig").arg(cluster.admin_kubeconfig());
    }
    let ended = tokio::task::spawn_blocking(move || outcome(&mut command));
    let (code, stdout, stderr) = ended.await.unwrap();
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_on_secrets_install_the_role_and_remove_it() {
    let cluster = TestCluster::embedded().await;
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    for name in documented("kubectl create namespace ").concat() {
        let namespace = json!({"metadata": {"name": name}});
        let namespace = serde_json::from_value(namespace).unwrap();
        let parameters = PostParams::default();
        namespaces.create(&parameters, &namespace).await.unwrap();
    }
    let commands = documented("longshore ");
    let [rbac, controller, uninstall, undo] = commands.as_slice() else {
        panic!("{commands:?}");
    };
    let manifest = run_documented(&cluster, rbac).await;
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    for object in manifest["items"].as_array().unwrap() {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            let found = namespaces.get_opt(namespace).await.unwrap();
            assert!(found.is_some(), "{object}");
        }
    }
    assert_eq!(controller[..4], ["controller", "--enable", "webhook", "-n"]);
    let mut plan = Plan::of(&cluster, "webhook");
    plan.namespace.clone_from(&controller[4]);
    plan.more = vec!["--webhook-address".to_owned(), "127.0.0.1:0".to_owned()];
    let mut replica = plan.start("webhook");
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let name = "flyte-pod-webhook";
    while configurations.get_opt(name).await.unwrap().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    run_documented(&cluster, uninstall).await;
    assert!(configurations.get_opt(name).await.unwrap().is_none());
    assert_eq!(undo[..2], uninstall[..2]);
    run_documented(&cluster, undo).await;
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}
