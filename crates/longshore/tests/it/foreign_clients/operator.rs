//! An operator that Helm installs: a manager of controller-runtime with leader election, in pods with networks and
//! accounts of their own. Its status tells which of its rights are real.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{Objects, World, source};

const NAMESPACE: &str = "/api/v1/namespaces/helm";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/helm/deployments/manager";
const JOB: &str = "/apis/batch/v1/namespaces/helm/jobs/check";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/helm";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/helm/leases/manager";
const GREETINGS: &str = "/apis/clients.longshore.dev/v1/namespaces/helm/greetings";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.clients.longshore.dev";
/// For each command of Helm that waits.
const WAIT: [&str; 4] = ["--wait", "--wait-for-jobs", "--timeout", "100s"];

/// What the manager may do of all that it tries.
const RIGHTS: [&str; 4] = [
    "get configmaps",
    "create configmaps",
    "update configmaps",
    "get leases",
];
/// The same after the upgrade: one right more, and one less.
const CHANGED_RIGHTS: [&str; 4] = [
    "get configmaps",
    "update configmaps",
    "list pods",
    "get leases",
];

pub(super) struct Operator {
    program: PathBuf,
    kubeconfig: String,
    home: PathBuf,
}

impl Operator {
    pub(super) fn install(world: &World) -> Self {
        let this = Self {
            program: world.given.file("bin/helm"),
            kubeconfig: world.kubeconfig(),
            home: world.home(),
        };
        let chart = source("chart");
        let install = ["install", "shop", chart.to_str().unwrap()];
        this.helm(&[&install[..], &["--create-namespace"], &WAIT].concat());
        this
    }

    /// What Helm printed; it has to succeed.
    fn helm(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args(arguments)
            .args(["--namespace", "helm"])
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {arguments:?}: {out}{err}");
        out
    }

    /// Helm returned when all of it was there: nothing is waited for here but the work of the manager.
    pub(super) async fn is_installed(&self, objects: &Objects) {
        let status: Value =
            serde_json::from_str(&self.helm(&["status", "shop", "-o", "json"])).unwrap();
        assert_eq!(status["info"]["status"], "deployed");
        let deployment = objects.get(DEPLOYMENT).await.unwrap();
        assert_eq!(deployment["status"]["readyReplicas"], 2, "{deployment}");
        let service = format!("{NAMESPACE}/services/manager");
        let service = objects.get(&service).await.unwrap();
        let address = service["spec"]["clusterIP"].as_str().unwrap();
        assert!(address.starts_with("10.96."), "{address}");
        has_checked(objects, "1").await;
        greets(objects, "hello", &RIGHTS).await;
    }

    /// The other replica leads when the leading pod goes.
    pub(super) async fn follows_another_leader(&self, objects: &Objects) {
        let holds = |lease: &Value| !leader(lease).is_empty();
        let before = leader(&objects.until(LEASE, holds).await).to_owned();
        let pod = format!("{NAMESPACE}/pods/{before}");
        objects.delete(&pod).await;
        let has_moved = |lease: &Value| !["", before.as_str()].contains(&leader(lease));
        let after = leader(&objects.until(LEASE, has_moved).await).to_owned();
        let works = |it: &Value| it["status"]["by"] == after.as_str();
        objects.until(&format!("{GREETINGS}/first"), works).await;
        println!("clients: controller-runtime: another leader");
    }

    pub(super) async fn is_upgraded(&self, objects: &Objects) {
        let chart = source("chart");
        let upgrade = ["upgrade", "shop", chart.to_str().unwrap()];
        let values = [
            "--set",
            "text=ciao",
            "--set",
            "listsPods=true",
            "--set",
            "configMapVerbs={get,list,watch,update}",
        ];
        self.helm(&[&upgrade[..], &values, &WAIT].concat());
        has_checked(objects, "2").await;
        greets(objects, "ciao", &CHANGED_RIGHTS).await;
        let second = json!({
            "apiVersion": "clients.longshore.dev/v1", "kind": "Greeting",
            "metadata": {"name": "second"}, "spec": {"who": "second"},
        });
        objects.create(GREETINGS, &second).await;
        let is_refused = |it: &Value| {
            let failure = it["status"]["failure"].as_str().unwrap_or_default();
            failure.contains("cannot create resource \"configmaps\"")
        };
        objects
            .until(&format!("{GREETINGS}/second"), is_refused)
            .await;
        let map = objects.get(&format!("{NAMESPACE}/configmaps/second")).await;
        assert_eq!(map, None);
    }

    pub(super) async fn is_rolled_back(&self, objects: &Objects) {
        self.helm(&[&["rollback", "shop", "1"][..], &WAIT].concat());
        greets(objects, "hello", &RIGHTS).await;
        let is_served = |it: &Value| it["status"]["failure"] == "";
        objects
            .until(&format!("{GREETINGS}/second"), is_served)
            .await;
        let map = objects.get(&format!("{NAMESPACE}/configmaps/second")).await;
        assert_eq!(map.unwrap()["data"]["greeting"], "hello, second");
        let history = self.helm(&["history", "shop", "-o", "json"]);
        let history: Value = serde_json::from_str(&history).unwrap();
        let states: Vec<_> = history
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["status"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["superseded", "superseded", "deployed"]);
    }

    /// Helm takes along what it has made, but for definitions and the objects of hooks; the rest goes with its owner.
    pub(super) async fn is_removed(&self, objects: &Objects) {
        self.helm(&["uninstall", "shop", "--wait", "--timeout", "100s"]);
        for path in [
            DEPLOYMENT.to_owned(),
            format!("{NAMESPACE}/services/manager"),
            format!("{NAMESPACE}/serviceaccounts/manager"),
            format!("{RBAC}/roles/manager"),
            format!("{RBAC}/rolebindings/manager"),
            format!("{GREETINGS}/first"),
            format!("{NAMESPACE}/configmaps/first"),
        ] {
            objects.until_gone(&path).await;
        }
        let pods = format!("{NAMESPACE}/pods?labelSelector=app%3Dmanager");
        let none = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
        objects.until(&pods, none).await;
        assert!(objects.get(DEFINITION).await.is_some());
        assert!(objects.get(&format!("{GREETINGS}/second")).await.is_some());
        println!("clients: helm: installed, upgraded, rolled back, removed");
    }
}

/// The pod that holds the lease: its host name is the first part of the holder's.
fn leader(lease: &Value) -> &str {
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    holder.split('_').next().unwrap_or_default()
}

/// The hook of this revision has run, and found the Service by its name.
async fn has_checked(objects: &Objects, revision: &str) {
    let job = objects.get(JOB).await.unwrap();
    assert_eq!(job["metadata"]["labels"]["revision"], revision, "{job}");
    assert_eq!(job["status"]["succeeded"], 1, "{job}");
}

/// The manager greets so, and has exactly these rights.
async fn greets(objects: &Objects, text: &str, rights: &[&str]) {
    let is_so = |it: &Value| {
        let status = &it["status"];
        status["text"] == text && status["rights"] == json!(rights) && status["failure"] == ""
    };
    objects.until(&format!("{GREETINGS}/first"), is_so).await;
    let map = objects.get(&format!("{NAMESPACE}/configmaps/first")).await;
    let greeting = format!("{text}, first");
    assert_eq!(map.unwrap()["data"]["greeting"], greeting.as_str());
}
