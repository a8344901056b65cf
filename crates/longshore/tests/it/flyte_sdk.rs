//! Tasks written with the Flyte SDK for Python, which is their runtime too: real processes of `longshore standalone`,
//! with inputs and outputs in files and in a store that speaks S3. Skipped where `LONGSHORE_TEST_FLYTE_SDK` names no
//! virtual environment; `cargo xtask flyte-sdk` makes one.

mod sdk;

use std::{fs, path::Path};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_api::flyte::TaskActionSpec;
use longshore_plugins::TaskContext;
use longshore_proto::flyteidl2::core::TaskTemplate;
use prost::Message;
use sdk::{Moto, Sdk, VARIABLES};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{service_process::Service, task_actions::TaskActions};

/// A TaskAction that the actions service made for a real run of the SDK.
const MADE_BY_THE_PEER: &str =
    include_str!("../../../longshore-api/testdata/sdk-root-taskaction.yaml");

/// Where a store is, to Longshore and to the SDK.
struct Store {
    /// Below it are code, inputs and outputs.
    url: &'static str,
    /// `<data-dir>/storage.yaml`.
    file: Value,
    /// What the task's image has besides the SDK.
    image: Value,
    /// Variables of tasks.
    variables: Vec<(&'static str, String)>,
}

/// A service whose pods with the image of the tasks have the SDK, and the tasks.
struct World {
    sdk: Sdk,
    store: Store,
    folder: TempDir,
    service: Service,
    specs: Value,
}

impl World {
    fn start(sdk: Sdk, folder: TempDir, store: Store) -> Self {
        let path = |name: &str| folder.path().join(name);
        for name in ["data", "dags", "store"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let mut image = store.image.clone();
        image["env"] = json!({"PATH": sdk.path()});
        let images = json!({"python:3.11-slim": image});
        fs::write(path("data/images.yaml"), images.to_string()).unwrap();
        fs::write(path("data/storage.yaml"), store.file.to_string()).unwrap();
        let arguments = ["prepare", store.url];
        let specs = sdk.run(&path("store"), &store.variables, &arguments);
        let service = Service::start_in(&path("data"), &path("dags"));
        Self {
            sdk,
            store,
            folder,
            service,
            specs,
        }
    }

    async fn actions(&self) -> TaskActions {
        let kubeconfig = Kubeconfig::read_from(self.service.ready("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        TaskActions::of(Client::try_from(config.unwrap()).unwrap(), "default")
    }

    /// The root action of a run of a task, as the actions service makes it.
    fn action(&self, task: &str) -> Value {
        let mut action: Value = serde_saphyr::from_str(MADE_BY_THE_PEER).unwrap();
        let run = task.replace('_', "-");
        let labels = json!({
            "flyte.org/action": "a0", "flyte.org/action-type": "task", "flyte.org/is-root": "true",
            "flyte.org/domain": "development", "flyte.org/project": "flytesnacks", "flyte.org/run": run,
        });
        action["metadata"] = json!({
            "name": format!("{run}-a0"), "namespace": "default", "labels": labels,
        });
        action["status"] = Value::Null;
        let spec = &mut action["spec"];
        for (field, value) in self.specs[task].as_object().unwrap() {
            spec[field] = value.clone();
        }
        spec["runOutputBase"] = format!("{}/{run}/", self.store.url).into();
        spec["runName"] = run.into();
        for (name, value) in &self.store.variables {
            spec["envVars"][name] = value.as_str().into();
        }
        action
    }

    /// Runs these tasks at the same time; how each ended.
    async fn run(&self, tasks: &[&str]) -> Vec<Value> {
        let actions = self.actions().await;
        for task in tasks {
            actions.create(&self.action(task)).await;
        }
        let mut ended = Vec::new();
        for task in tasks {
            let name = format!("{}-a0", task.replace('_', "-"));
            actions.until_ended(&name).await;
            ended.push(actions.get(&name).await);
        }
        ended
    }

    /// The outputs of the last attempt, as the SDK reads them.
    fn outputs(&self, task: &str, action: &Value) -> Value {
        let spec = TaskActionSpec::of(action).unwrap();
        let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
        let attempt = action["status"]["attempts"].as_u64().unwrap();
        let attempt = attempt.try_into().unwrap();
        let config = longshore_plugins::Config::default();
        let context = TaskContext::of(action, &spec, template, attempt, &config).unwrap();
        let arguments = ["outputs", task, context.paths.output_prefix.as_str()];
        let folder = self.folder.path().join("store");
        self.sdk.run(&folder, &self.store.variables, &arguments)
    }
}

/// The reason of the end, how many attempts it took, and the last error.
fn end(action: &Value) -> (&str, u64, [&str; 3]) {
    let status = &action["status"];
    let conditions = status["conditions"].as_array().unwrap();
    let is_over = |it: &&Value| it["status"] == "True" && it["type"] != "Progressing";
    let over = conditions.iter().find(is_over).unwrap();
    let error = ["code", "kind", "message"].map(|it| status["errorState"][it].as_str());
    (
        over["reason"].as_str().unwrap(),
        status["attempts"].as_u64().unwrap(),
        error.map(Option::unwrap_or_default),
    )
}

/// Below the data directory of the peer's local store, which the tasks see at the same place of their own directory.
fn files(folder: &Path) -> Store {
    let root = folder.join("store");
    Store {
        url: "file://flyte-data/uploads",
        file: json!({"type": "stow", "stow": {"kind": "local", "config": {"path": root}}}),
        image: json!({
            "workdir": "/flyte",
            "mounts": [{"host": root.join("flyte-data"), "path": "/flyte/flyte-data"}],
        }),
        variables: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_the_sdk_run_on_files_and_tell_why_they_fail() {
    let Some(sdk) = Sdk::given() else { return };
    let folder = TempDir::new().unwrap();
    let store = files(folder.path());
    let world = World::start(sdk, folder, store);
    let tasks = ["double", "flaky", "fails", "gives_up", "broken"];
    let ended = world.run(&tasks).await;
    let ends: Vec<_> = ended.iter().map(end).collect();
    let traceback = ends[4].2[2];
    assert_eq!(
        ends,
        [
            ("Completed", 1, ["", "", ""]),
            ("Completed", 2, ["", "", ""],),
            (
                "PermanentFailure",
                1,
                ["ValueError", "USER", "3 is too many"]
            ),
            (
                "PermanentFailure",
                1,
                ["Hopeless", "USER", "3 will never do"]
            ),
            ("PermanentFailure", 1, ["RuntimeError", "", traceback]),
        ]
    );
    assert!(traceback.contains("this module is broken"), "{traceback}");
    assert_eq!(
        world.outputs("double", &ended[0]),
        json!([42, ["to the task", "from the task"]])
    );
    assert_eq!(world.outputs("flaky", &ended[1]), json!(7));
    println!("flyte sdk: {} tasks on files", tasks.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_the_sdk_run_on_objects() {
    let Some(sdk) = Sdk::given() else { return };
    let moto = Moto::start(&sdk);
    let [id, secret] = ["an-id", "a-secret"];
    let config = json!({
        "auth_type": "accesskey", "access_key_id": id, "secret_key": secret, "region": "us-east-1",
        "endpoint": moto.url(), "disable_ssl": true,
    });
    let values = [
        moto.url(),
        id.to_owned(),
        secret.to_owned(),
        "us-east-1".to_owned(),
    ];
    let store = Store {
        url: "s3://flyte-data/uploads",
        file: json!({"type": "stow", "stow": {"kind": "s3", "config": config}}),
        image: json!({}),
        variables: VARIABLES.into_iter().zip(values).collect(),
    };
    let world = World::start(sdk, TempDir::new().unwrap(), store);
    let tasks = ["double", "fails"];
    let ended = world.run(&tasks).await;
    assert_eq!(end(&ended[0]), ("Completed", 1, ["", "", ""]));
    let outputs = world.outputs("double", &ended[0]);
    assert_eq!(outputs, json!([42, ["to the task", "from the task"]]));
    let error = ["ValueError", "USER", "3 is too many"];
    assert_eq!(end(&ended[1]), ("PermanentFailure", 1, error));
    println!("flyte sdk: {} tasks on objects", tasks.len());
}
