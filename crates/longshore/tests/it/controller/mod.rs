//! `longshore controller` as people run it.

mod actions;
mod canary;
mod context;
mod deaths;
mod disturbed;
mod files;
mod flink;
mod foreign;
pub(crate) mod kills;
mod kubectl;
mod namespaces;
mod open_files;
mod paused;
pub(crate) mod podops;
mod probes;
mod refused;
mod replica;
mod requests;
mod secrets;
mod silent;
mod takeover;
mod thousand;
mod uninstall;

use std::{fs, net::TcpListener};

use serde_json::Value;

use crate::{longshore, outcome};

/// Held by each test that has API servers ask a webhook about the pods of tasks: they ask in all namespaces, so that one
/// which is gone refuses the pods of the others.
static ONE_WEBHOOK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A kubeconfig of an API server that is not there.
const NOBODY: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "a",
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "users": [{"name": "a", "user": {}}]}"#;

#[test]
fn a_taken_port_names_the_flag_that_the_controller_has() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, NOBODY).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = longshore();
    command
        .args(["controller", "--address", "127.0.0.1:0"])
        .args(["--metrics-address", &address])
        .arg("--data-dir")
        .arg(folder.path())
        .arg("--kubeconfig")
        .arg(&kubeconfig);
    let (code, _, stderr) = outcome(&mut command);
    let expected = format!("error[LS1030]: cannot listen on {address} for health and metrics");
    assert!(code == 1 && stderr.contains(&expected), "{stderr}");
    let help = "choose another port with --metrics-address\n";
    assert!(stderr.contains(help), "{stderr}");
    assert!(!stderr.contains("-port"), "{stderr}");
}

#[test]
fn what_is_wrong_with_the_cluster_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("nobody.kubeconfig");
    fs::write(&nobody, NOBODY).unwrap();
    let missing = folder.path().join("missing.kubeconfig");
    for (kubeconfig, code, exit) in [(&nobody, "LS1102", 1), (&missing, "LS1101", 3)] {
        let mut command = longshore();
        command
            .args([
                "controller",
                "--address",
                "127.0.0.1:0",
                "--metrics-address",
                "127.0.0.1:0",
            ])
            .arg("--data-dir")
            .arg(folder.path())
            .arg("--kubeconfig")
            .arg(kubeconfig);
        let (found, _, stderr) = outcome(&mut command);
        assert!(stderr.contains(&format!("error[{code}]: ")), "{stderr}");
        assert_eq!(found, exit, "{stderr}");
    }
}

#[test]
fn a_role_that_does_not_exist_is_refused_with_those_that_do() {
    let (code, _, stderr) = outcome(longshore().args(["controller", "--enable", "dogs"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("expected one of dags, tasks"), "{stderr}");
}

#[test]
fn the_roles_are_printed_for_kubectl() {
    let (code, stdout, _) =
        outcome(longshore().args(["controller", "rbac", "-n", "pipelines", "-o", "name"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!(stdout, @r"
    serviceaccount/longshore
    role/longshore-dags
    rolebinding/longshore-dags
    clusterrole/longshore-dags:pipelines
    clusterrolebinding/longshore-dags:pipelines
    role/longshore-tasks
    rolebinding/longshore-tasks
    clusterrole/longshore-tasks:pipelines
    clusterrolebinding/longshore-tasks:pipelines
    ");
}

#[test]
fn the_roles_for_several_namespaces_are_in_each_of_them_and_for_all_in_the_cluster() {
    let rbac = |arguments: &[&str]| -> String {
        let mut command = longshore();
        command.args(["controller", "rbac", "-o", "json"]);
        let (code, stdout, stderr) = outcome(command.args(arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        let list: Value = serde_json::from_str(&stdout).unwrap();
        let objects = list["items"].as_array().unwrap().iter();
        let line = |object: &Value| {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let rules = object["rules"].as_array().map(|rules| {
                let leases = rules.iter().filter(|rule| rule["resources"][0] == "leases");
                let verbs = leases.map(|rule| rule["verbs"].to_string());
                let verbs: Vec<String> = verbs.collect();
                let of_leases = match verbs.is_empty() {
                    true => String::new(),
                    false => format!(", of leases {}", verbs.join(" ")),
                };
                format!(", {} rules{of_leases}", rules.len())
            });
            let subject = object["subjects"][0]["namespace"].as_str();
            let subject = subject.map(|namespace| format!(", for {namespace}"));
            format!(
                "{} {}/{}{}{}\n",
                text(&object["kind"]),
                text(&metadata["namespace"]),
                text(&metadata["name"]),
                rules.unwrap_or_default(),
                subject.unwrap_or_default()
            )
        };
        objects.map(line).collect()
    };
    insta::assert_snapshot!(rbac(&["--enable", "tasks", "-n", "b", "-n", "a", "-n", "c"]), @r#"
    ServiceAccount b/longshore
    Role b/longshore-tasks, 13 rules, of leases ["create"] ["get","patch"]
    RoleBinding b/longshore-tasks, for b
    ClusterRole -/longshore-tasks:b, 2 rules, of leases ["list"]
    ClusterRoleBinding -/longshore-tasks:b, for b
    Role a/longshore-tasks:b, 13 rules, of leases ["create"] ["get","patch"]
    RoleBinding a/longshore-tasks:b, for b
    Role c/longshore-tasks:b, 13 rules, of leases ["create"] ["get","patch"]
    RoleBinding c/longshore-tasks:b, for b
    "#);
    insta::assert_snapshot!(rbac(&["--enable", "dags,tasks", "-n", "b", "-A"]), @r#"
    ServiceAccount b/longshore
    Role b/longshore-dags, 7 rules, of leases ["create"] ["get","patch"]
    RoleBinding b/longshore-dags, for b
    ClusterRole -/longshore-dags:b, 2 rules
    ClusterRoleBinding -/longshore-dags:b, for b
    Role b/longshore-tasks, 2 rules, of leases ["create"] ["get","patch"]
    RoleBinding b/longshore-tasks, for b
    ClusterRole -/longshore-tasks:b, 13 rules, of leases ["list"]
    ClusterRoleBinding -/longshore-tasks:b, for b
    ValidatingAdmissionPolicy -/longshore-tasks-pods.b
    ValidatingAdmissionPolicyBinding -/longshore-tasks-pods.b
    ValidatingAdmissionPolicy -/longshore-tasks-deletes.b
    ValidatingAdmissionPolicyBinding -/longshore-tasks-deletes.b
    "#);
}

#[test]
fn a_lease_that_is_too_short_is_refused() {
    for (duration, expected) in [
        ("1s", "expected 0 or at least 2s"),
        ("soon", "expected a duration"),
    ] {
        let mut command = longshore();
        command.args(["controller", "--lease-duration", duration]);
        let (code, _, stderr) = outcome(&mut command);
        assert_eq!(code, 2);
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn the_resource_of_the_tasks_is_printed_for_kubectl() {
    let (code, stdout, _) = outcome(longshore().args(["controller", "crd"]));
    assert_eq!(code, 0);
    assert_eq!(stdout, longshore_api::flyte::TASK_ACTION_CRD);
    let (code, stdout, _) = outcome(longshore().args(["controller", "crd", "--enable", "podops"]));
    assert_eq!(code, 0);
    assert_eq!(stdout, longshore_api::podops::POD_TRANSITION_RULE_CRD);
}

#[test]
fn a_configuration_with_mistakes_is_refused_with_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    fs::write(
        &file,
        "executor: {clutser: a, gc: {interval: 1m}}\nruns: {x: 1}\n",
    )
    .unwrap();
    let mut command = longshore();
    command.arg("controller").arg("--config").arg(&file);
    command.args(["--executor.gc.interval", "soon"]);
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 2, "{stderr}");
    for expected in [
        "error[LS1008]",
        "executor.clutser is unknown; did you mean \"cluster\"?",
        "executor.gc.interval: expected a duration",
    ] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}
