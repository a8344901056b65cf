//! `longshore actions` as users run it, against an API server that has TaskActions and no executor:
//! the tests write the statuses that an executor would write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_api::flyte::TASK_ACTION_CRD;
use longshore_cluster::{Cluster, ServeConfig, Serving};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{longshore, outcome, service_process::until};

/// A served API server, with the kubeconfig where `longshore standalone` has it.
struct Served {
    runtime: Runtime,
    _serving: Serving,
    folder: TempDir,
    client: Client,
}

impl Served {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let runtime = Runtime::new().unwrap();
        let (serving, client) = runtime.block_on(async {
            let serving = Cluster::in_memory()
                .serve(ServeConfig::new(folder.path()))
                .unwrap();
            let file = Kubeconfig::read_from(serving.kubeconfig()).unwrap();
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options)
                .await
                .unwrap();
            (serving, Client::try_from(config).unwrap())
        });
        Self {
            runtime,
            _serving: serving,
            folder,
            client,
        }
    }

    fn with_task_actions() -> Self {
        let served = Self::start();
        let crd: CustomResourceDefinition = serde_saphyr::from_str(TASK_ACTION_CRD).unwrap();
        let crds = Api::all(served.client.clone());
        let created = async { crds.create(&PostParams::default(), &crd).await };
        served.runtime.block_on(created).unwrap();
        until("the API server serves TaskActions", || {
            served.outcome("actions list").0 == 0
        });
        served
    }

    fn outcome(&self, line: &str) -> (i32, String, String) {
        let mut command = longshore();
        command
            .args(line.split(' '))
            .env("LONGSHORE_DATA_DIR", self.folder.path());
        outcome(&mut command)
    }

    #[track_caller]
    fn check(&self, line: &str, code: i32, expected: &str) {
        let (found, stdout, stderr) = self.outcome(line);
        assert_eq!(found, code, "{line}\n{stdout}{stderr}");
        let all = format!("{stdout}{stderr}");
        assert!(all.contains(expected), "{line}\n{all}");
    }

    /// Says what an executor would say.
    fn end(&self, name: &str, kind: &str, reason: &str, error: &Value) {
        let at = "2026-11-21T00:00:00Z";
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": reason, "message": "said", "lastTransitionTime": at});
        let status = json!({"status": {
            "attempts": 2,
            "conditions": [condition("Progressing", "False"), condition(kind, "True")],
            "phaseHistory": [{"phase": reason, "occurredAt": at, "message": "said"}],
            "errorState": error,
        }});
        let resource = ApiResource {
            group: "flyte.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "flyte.org/v1".to_owned(),
            kind: "TaskAction".to_owned(),
            plural: "taskactions".to_owned(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &resource);
        let params = PatchParams::default();
        let patched = async {
            api.patch_status(name, &params, &Patch::Merge(&status))
                .await
        };
        self.runtime.block_on(patched).unwrap();
    }
}

#[test]
fn actions_are_started_listed_watched_and_aborted() {
    let served = Served::with_task_actions();
    for name in ["good", "bad"] {
        let line = format!("actions run --image busybox --name {name} --detach -- echo hi");
        served.check(&line, 0, &format!("action {name}-a0 was created"));
    }
    served.check(
        "actions run --image busybox --name good --detach -- echo hi",
        1,
        "error[LS1402]: create of TaskAction default/good-a0 failed",
    );
    served.check("actions list -o name --run bad", 0, "bad-a0\n");
    served.check("actions list -A -o wide", 0, "raw-container");
    served.check("actions get good-a0", 0, "Type:");
    served.check("actions watch good-a0 --timeout 1s", 5, "error[LS1481]");
    served.check("actions get nope", 3, "error[LS1403]");
    served.check("actions abort bad-a0", 2, "error[LS1026]");

    served.end("good-a0", "Succeeded", "Completed", &Value::Null);
    served.check("actions watch good-a0", 0, "action good-a0 Completed");
    served.check("actions get good-a0 -o json", 0, "\"phase\":\"Completed\"");
    served.check(
        "actions abort good-a0 --yes",
        0,
        "has ended already: Completed",
    );

    served.end(
        "bad-a0",
        "Failed",
        "PermanentFailure",
        &json!({"code": "Error", "kind": "USER", "message": "said"}),
    );
    served.check(
        "actions watch bad-a0",
        4,
        "error[LS1480]: action bad-a0 failed: Error: said",
    );
    served.check("actions list", 0, "Error: said");
}

#[test]
fn an_action_that_is_aborted_is_gone() {
    let served = Served::with_task_actions();
    served.check(
        "actions run --image busybox --name gone --detach -- echo hi",
        0,
        "watch it: longshore actions watch gone-a0",
    );
    served.check("actions abort gone-a0 --yes", 0, "is being aborted");
    served.check("actions get gone-a0", 3, "error[LS1403]");
    served.check("actions watch gone-a0", 3, "error[LS1403]");
}

#[test]
fn where_the_cluster_is_has_to_be_known() {
    let folder = TempDir::new().unwrap();
    let mut command = longshore();
    command
        .args(["actions", "list"])
        .env("LONGSHORE_DATA_DIR", folder.path());
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("error[LS1401]"), "{stderr}");

    // Nor does a data directory that was named fall back to the cluster of kubectl.
    let served = Served::start();
    let kubeconfig = served.folder.path().join("kubeconfig");
    command.env("KUBECONFIG", &kubeconfig);
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("error[LS1401]"), "{stderr}");

    // A cluster without the resource is reported as such, not as an empty one.
    served.check(
        "actions list",
        3,
        "error[LS1402]: list of TaskActions failed",
    );
}

#[test]
fn without_a_standalone_the_cluster_of_kubectl_is_asked_and_named() {
    let home = TempDir::new().unwrap();
    let served = Served::with_task_actions();
    let kubeconfig = served.folder.path().join("kubeconfig");
    let ask = |arguments: &[&str]| {
        let mut command = longshore();
        command
            .args(arguments)
            .env("HOME", home.path())
            .env("KUBECONFIG", &kubeconfig);
        outcome(&mut command)
    };
    for arguments in [&["pods", "list", "-A"][..], &["actions", "list"]] {
        let (code, _, stderr) = ask(arguments);
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        let says = stderr.contains("asks the cluster https://127.0.0.1:");
        assert!(says, "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let file = kubeconfig.to_str().unwrap();
    let (code, _, stderr) = ask(&["pods", "list", "-A", "--kubeconfig", file]);
    assert_eq!((code, stderr.as_str()), (0, ""));

    // The kubeconfig of a standalone goes first, also of one that is stopped.
    let of_standalone = home.path().join(".local/share/longshore");
    std::fs::create_dir_all(&of_standalone).unwrap();
    std::fs::write(of_standalone.join("kubeconfig"), "{}").unwrap();
    let (code, _, stderr) = ask(&["pods", "list", "-A"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("error[LS1401]"), "{stderr}");
}
