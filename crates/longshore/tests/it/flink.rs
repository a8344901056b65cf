//! FlinkDeployments on `longshore standalone`, with a program that plays the JobManager: upstream's example as it is, a
//! savepoint upgrade, suspend, resume and delete.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use longshore_core::Resource;
use longshore_flink::{DEPLOYMENT, FLINK_DEPLOYMENT, FLINK_STATE_SNAPSHOT, SERVICE};
use longshore_kit::api_resource;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    pod_network::{client, create, until_account},
    service_process::{Service, until},
};

/// Upstream's first example.
const BASIC: &str = include_str!("../../testdata/flink/basic.yaml");
/// Its name.
const NAME: &str = "basic-example";
/// A user does not wait as long for what a poll finds as the defaults do.
const OPERATOR: &str = "\
kubernetes.operator.reconcile.interval: 1 s
kubernetes.operator.observer.progress-check.interval: 1 s
";
const PROGRAMS: [(&str, &str); 3] = [
    (
        "docker-entrypoint.sh",
        include_str!("../flink/docker-entrypoint.sh"),
    ),
    (
        "flink/bin/kubernetes-jobmanager.sh",
        include_str!("../flink/kubernetes-jobmanager.sh"),
    ),
    (
        "flink/bin/job-manager.py",
        include_str!("../flink/job-manager.py"),
    ),
];

/// A service on which the images of Flink are the program that plays a JobManager.
struct World {
    folder: TempDir,
    service: Service,
    runtime: Runtime,
    client: Client,
}

/// A start of a job, as the JobManager notes it.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    restored: String,
    number: u64,
}

impl World {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["data", "dags", "state", "flink/bin"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        // Where volumes are mounted.
        for name in ["conf", "pod-template", "artifacts", "usrlib"] {
            fs::create_dir_all(path("flink").join(name)).unwrap();
        }
        for (name, text) in PROGRAMS {
            fs::write(path(name), text).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mount = |host: PathBuf, path: &str| json!({"host": host, "path": path});
        let images = json!({"flink:*": {"mounts": [
            mount(path("flink"), "/opt/flink"),
            mount(path("docker-entrypoint.sh"), "/docker-entrypoint.sh"),
            mount(path("state"), "/flink-data"),
        ]}});
        fs::write(path("data/images.yaml"), images.to_string()).unwrap();
        fs::write(path("data/flink.yaml"), OPERATOR).unwrap();
        let service = Service::start_in(&path("data"), &path("dags"));
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(client(&service));
        runtime.block_on(until_account(&client));
        Self {
            folder,
            service,
            runtime,
            client,
        }
    }

    fn api(&self, resource: Resource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &api_resource(resource))
    }

    fn get(&self, resource: Resource, name: &str) -> Option<Value> {
        let found = self.runtime.block_on(self.api(resource).get_opt(name));
        found
            .unwrap()
            .map(|object| serde_json::to_value(object).unwrap())
    }

    fn list(&self, resource: Resource, labels: &str) -> Vec<Value> {
        let params = ListParams::default().labels(labels);
        let found = self.runtime.block_on(self.api(resource).list(&params));
        let found = found.unwrap().items.into_iter();
        found.map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    fn change(&self, patch: &Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let api = self.api(FLINK_DEPLOYMENT);
        let changed = api.patch(NAME, &params, &patch);
        self.runtime.block_on(changed).unwrap();
    }

    /// Waits until the wanted spec is in this state of its life.
    fn until_state(&self, state: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("the FlinkDeployment is {state}"), || {
            last = self.get(FLINK_DEPLOYMENT, NAME).unwrap();
            let status = &last["status"];
            status["lifecycleState"] == state
                && status["observedGeneration"] == last["metadata"]["generation"]
        });
        last
    }

    fn starts(&self) -> Vec<Start> {
        let text = fs::read_to_string(self.folder.path().join("state/starts"));
        let start = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], NAME, "{line}");
            let (restored, number) = (words[1].to_owned(), words[2].parse().unwrap());
            Start { restored, number }
        };
        text.unwrap_or_default().lines().map(start).collect()
    }

    /// The path on this machine of what pods have at a URL.
    fn on_this_machine(&self, url: &str) -> PathBuf {
        let path = url.strip_prefix("file:/flink-data/").unwrap();
        self.folder.path().join("state").join(path)
    }
}

/// Upstream's example as it is: its JobManager runs in a pod as the account `flink`, and its job runs.
fn the_example_runs(world: &World) {
    let object: Value = serde_saphyr::from_str(BASIC).unwrap();
    let path = "/apis/flink.apache.org/v1beta1/namespaces/default/flinkdeployments";
    let created = create(&world.client, path, &object);
    world.runtime.block_on(created).unwrap();
    let deployment = world.until_state("STABLE");
    let status = &deployment["status"];
    assert_eq!(status["jobStatus"]["state"], "RUNNING", "{status}");
    assert_eq!(status["jobManagerDeploymentStatus"], "READY");
    assert_eq!(status["clusterInfo"]["flink-version"], "2.2.0");
    let pods = world.list(Resource::POD, &format!("app={NAME},component=jobmanager"));
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["status"]["phase"], "Running");
    assert_eq!(pods[0]["spec"]["serviceAccountName"], "flink");
    let start = Start {
        restored: "-".to_owned(),
        number: 1,
    };
    assert_eq!(world.starts(), [start]);
}

/// The commands show it.
fn the_commands_show_it(world: &World) {
    let (code, stdout, stderr) = world.service.outcome("flink list -A -o json");
    assert_eq!(code, 0, "{stderr}");
    let list: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(list["items"][0]["name"], NAME);
    assert_eq!(list["items"][0]["jobState"], "RUNNING");
    let get = format!("flink get -n default {NAME}");
    let (code, stdout, stderr) = world.service.outcome(&get);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("STABLE"), "{stdout}");
    let (code, _, stderr) = world.service.outcome("flink get -n default nobody");
    assert!(code == 3 && stderr.contains("error[LS1502]"), "{stderr}");
}

/// An upgrade with a savepoint: the job goes on from the number that the savepoint holds.
fn an_upgrade_keeps_the_state(world: &World) -> String {
    world.change(&json!({"spec": {
        "flinkConfiguration": {
            "state.savepoints.dir": "file:///flink-data/savepoints",
            "state.checkpoints.dir": "file:///flink-data/checkpoints",
        },
        "job": {"upgradeMode": "savepoint", "parallelism": 1},
    }}));
    until("the job starts again", || world.starts().len() == 2);
    let deployment = world.until_state("STABLE");
    let second = &world.starts()[1];
    let saved = fs::read_to_string(world.on_this_machine(&second.restored));
    assert_eq!(second.number, saved.unwrap().parse::<u64>().unwrap() + 1);
    let error = &deployment["status"]["error"];
    assert!(error.is_null(), "{error}");
    let snapshots = world.list(FLINK_STATE_SNAPSHOT, "snapshot.trigger-type=UPGRADE");
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0]["spec"]["savepoint"]["path"], *second.restored);
    second.restored.clone()
}

fn it_is_suspended_and_resumed(world: &World, before: &str) {
    world.change(&json!({"spec": {"job": {"state": "suspended"}}}));
    let suspended = world.until_state("SUSPENDED");
    let path = suspended["status"]["jobStatus"]["upgradeSavepointPath"].clone();
    assert!(path.is_string() && path != before, "{path}");
    world.change(&json!({"spec": {"job": {"state": "running"}}}));
    world.until_state("STABLE");
    let starts = world.starts();
    assert_eq!(starts.len(), 3, "{starts:?}");
    assert_eq!(starts[2].restored, path.as_str().unwrap());
    assert!(starts[2].number > starts[1].number);
}

fn nothing_stays_of_it(world: &World) {
    let params = DeleteParams::default();
    let deleted = world.api(FLINK_DEPLOYMENT);
    world
        .runtime
        .block_on(deleted.delete(NAME, &params))
        .unwrap();
    until("the FlinkDeployment is gone", || {
        world.get(FLINK_DEPLOYMENT, NAME).is_none()
    });
    let labels = format!("app={NAME}");
    for resource in [DEPLOYMENT, SERVICE, Resource::CONFIG_MAP, Resource::POD] {
        until(&format!("no {} is left", resource.plural), || {
            world.list(resource, &labels).is_empty()
        });
    }
}

#[test]
fn upstreams_example_runs_as_it_is_and_keeps_its_state_through_an_upgrade_and_a_suspension() {
    assert!(
        Path::new("/usr/bin/python3").exists(),
        "python3 plays the JobManager"
    );
    let world = World::start();
    the_example_runs(&world);
    the_commands_show_it(&world);
    let savepoint = an_upgrade_keeps_the_state(&world);
    it_is_suspended_and_resumed(&world, &savepoint);
    nothing_stays_of_it(&world);
}
