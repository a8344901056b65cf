//! The scripts of the libraries. Each has a namespace of its name, and tells in its ConfigMap `progress` what it waits
//! for. Those of Go and Java run beside the test, that of Python in a pod.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{Objects, World, source};
use crate::service_process::until;

/// The steps of each script, in their order.
const STEPS: [(&str, &[&str]); 3] = [
    (
        "client-go",
        &[
            "create",
            "list",
            "watch",
            "watch over a restart",
            "patch",
            "apply",
            "exec",
            "define a kind",
            "delete",
        ],
    ),
    (
        "python",
        &[
            "create",
            "list",
            "watch",
            "watch over a restart",
            "patch",
            "apply",
            "exec",
            "exactly its rights",
            "delete",
        ],
    ),
    (
        "fabric8",
        &[
            "create",
            "list",
            "watch",
            "watch over a restart",
            "patch",
            "apply",
            "exec",
            "delete",
        ],
    ),
];
const POD: &str = "/api/v1/namespaces/python/pods/script";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/python";

pub(super) struct Scripts {
    locals: [Local; 2],
}

impl Scripts {
    pub(super) async fn start(world: &World, objects: &Objects) -> Self {
        for (name, _) in STEPS {
            let namespace = json!({"metadata": {"name": name}});
            objects.create("/api/v1/namespaces", &namespace).await;
        }
        let go = Command::new(world.given.file("bin/client"));
        let mut java = Command::new("java");
        java.arg("-cp")
            .arg(world.given.file("java/*"))
            .arg(source("java/Client.java"));
        let locals = [
            Local::start("client-go", go, world),
            Local::start("fabric8", java, world),
        ];
        start_pod(objects).await;
        Self { locals }
    }

    pub(super) async fn until_they_watch(&self, objects: &Objects) {
        for (name, _) in STEPS {
            until_it_asks(objects, name, "watching").await;
        }
    }

    /// Makes the object that their watches have to show next.
    pub(super) async fn tell_the_restart(&self, objects: &Objects) {
        let metadata = json!({"name": "after-restart", "labels": {"script": "yes"}});
        for (name, _) in STEPS {
            let path = format!("/api/v1/namespaces/{name}/configmaps");
            let object = json!({"metadata": metadata});
            objects.create(&path, &object).await;
        }
    }

    /// Changes the rights of the pod as its script asks for it, and waits until all have done their steps.
    pub(super) async fn end(self, objects: &Objects) {
        let role = format!("{RBAC}/roles/script");
        until_it_asks(objects, "python", "a right more").await;
        let mut more = rules(true);
        more.push(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}));
        objects.patch(&role, &json!({"rules": more})).await;
        until_it_asks(objects, "python", "a right less").await;
        let less = rules(false);
        objects.patch(&role, &json!({"rules": less})).await;
        let is_over = |pod: &Value| ["Succeeded", "Failed"].contains(&phase(pod));
        objects.until(POD, is_over).await;
        check("python", &objects.log(POD).await);
        for local in self.locals {
            local.end();
        }
    }
}

/// A pod that has failed asks for nothing more.
async fn until_it_asks(objects: &Objects, name: &str, what: &str) {
    let path = format!("/api/v1/namespaces/{name}/configmaps/progress");
    let asks = |map: &Value| map["data"]["phase"] == what;
    tokio::select! {
        _ = objects.until(&path, asks) => {}
        _ = objects.until(POD, |pod| phase(pod) == "Failed") => {
            panic!("python: {}", objects.log(POD).await)
        }
    }
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// What the role of the pod grants.
fn rules(with_update: bool) -> Vec<Value> {
    let mut of_maps = vec![
        "get",
        "list",
        "watch",
        "create",
        "patch",
        "delete",
        "deletecollection",
    ];
    of_maps.extend(with_update.then_some("update"));
    vec![
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": of_maps}),
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "delete"]}),
        json!({"apiGroups": [""], "resources": ["pods/exec", "pods/log"], "verbs": ["get"]}),
    ]
}

/// The rights of these rules, as the script names them.
fn names(rules: &[Value]) -> Vec<String> {
    let mut names = Vec::new();
    for rule in rules {
        for resource in rule["resources"].as_array().unwrap() {
            for verb in rule["verbs"].as_array().unwrap() {
                let [verb, resource] = [verb, resource].map(|it| it.as_str().unwrap());
                names.push(format!("{verb} {resource}"));
            }
        }
    }
    names
}

async fn start_pod(objects: &Objects) {
    let metadata = json!({"name": "script"});
    let path = "/api/v1/namespaces/python";
    let account = json!({"metadata": metadata});
    objects
        .create(&format!("{path}/serviceaccounts"), &account)
        .await;
    let rules = rules(true);
    let role = json!({"metadata": metadata, "rules": rules});
    objects.create(&format!("{RBAC}/roles"), &role).await;
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "script"},
        "subjects": [{"kind": "ServiceAccount", "name": "script", "namespace": "python"}],
    });
    objects
        .create(&format!("{RBAC}/rolebindings"), &binding)
        .await;
    let rights = json!(names(&rules)).to_string();
    let pod = json!({
        "metadata": metadata,
        "spec": {
            "serviceAccountName": "script",
            "restartPolicy": "Never",
            "containers": [{
                "name": "script", "image": "script:1", "env": [{"name": "RIGHTS", "value": rights}],
            }],
        },
    });
    objects.create(&format!("{path}/pods"), &pod).await;
}

/// A script beside the test; it ends with the test. What it has printed is shown when the test fails.
struct Local {
    name: &'static str,
    child: Child,
    output: PathBuf,
}

impl Local {
    fn start(name: &'static str, mut command: Command, world: &World) -> Self {
        let output = world.home().join(name);
        let file = File::create(&output).unwrap();
        let child = command
            .arg(world.kubeconfig())
            .arg(name)
            .env_remove("KUBECONFIG")
            .env("HOME", world.home())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self {
            name,
            child,
            output,
        }
    }

    fn end(mut self) {
        until(self.name, || self.child.try_wait().unwrap().is_some());
        check(self.name, &fs::read_to_string(&self.output).unwrap());
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let output = fs::read_to_string(&self.output);
            println!("{}: {}", self.name, output.unwrap_or_default());
        }
    }
}

/// Whether a script says that it has done all its steps.
fn check(name: &str, output: &str) {
    let (_, steps) = STEPS.into_iter().find(|it| it.0 == name).unwrap();
    let lines = output.lines();
    let done: Vec<&str> = lines.filter_map(|it| it.strip_prefix("ok: ")).collect();
    assert_eq!(done, steps, "{name}: {output}");
    let last = format!("{name}: {} steps", steps.len());
    assert!(output.lines().any(|it| it == last), "{name}: {output}");
    println!("clients: {last}");
}
