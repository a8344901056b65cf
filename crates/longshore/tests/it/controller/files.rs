//! `file://` URLs of TaskActions: a user who may create actions must not read the files of the controller's machine.

use std::{
    fs::{self, File, FileTimes},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_proto::flyteidl2::core::{
    Container, TaskTemplate, TypedInterface, VariableEntry, VariableMap, task_template::Target,
};
use longshore_test::flyte::outputs;
use prost::Message;
use serde_json::{Value, json};

use super::replica::{Plan, until};
use crate::{
    cluster::TestCluster,
    longshore, outcome,
    task_actions::{TaskActions, action},
};

/// What an action asks the controller to read: inputs that its command names, outputs, or inputs of a task without pod.
const INPUTS: &str = "needs-inputs";
const OUTPUTS: &str = "owes-outputs";
const SLEEP: &str = "sleeps";
const ALL: [&str; 3] = [INPUTS, OUTPUTS, SLEEP];

/// A file that shows that it was read, by the time of the last access.
struct Watched {
    path: PathBuf,
}

impl Watched {
    fn at(path: &Path) -> Self {
        let mut file = File::create(path).unwrap();
        file.write_all(b"no LiteralMap").unwrap();
        // A time before that of the last change: then the next read sets it on every Linux but with `noatime`.
        let times = FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH);
        file.set_times(times).unwrap();
        let path = path.to_owned();
        Self { path }
    }

    fn was_read(&self) -> bool {
        let accessed = fs::metadata(&self.path).unwrap().accessed().unwrap();
        accessed != SystemTime::UNIX_EPOCH
    }
}

fn variables(name: &str) -> VariableMap {
    VariableMap {
        variables: vec![VariableEntry {
            key: name.to_owned(),
            ..VariableEntry::default()
        }],
    }
}

/// An action with its inputs and outputs in a folder.
fn action_in(folder: &Path, kind: &str, name: &str) -> Value {
    let mut action = action(name, 0, "run 10ms exit 0");
    let spec = &mut action["spec"];
    let template = spec["taskTemplate"].as_str().unwrap();
    let template = BASE64_STANDARD.decode(template).unwrap();
    let mut template = TaskTemplate::decode(template.as_slice()).unwrap();
    let inputs = TypedInterface {
        inputs: Some(variables("x")),
        outputs: None,
    };
    match kind {
        INPUTS => {
            template.interface = Some(inputs);
            template.target = Some(Target::Container(Container {
                image: "example.test/image:1".to_owned(),
                args: vec!["{{.inputs.x}}".to_owned()],
                ..Container::default()
            }));
        }
        OUTPUTS => template.interface = Some(outputs::interface()),
        SLEEP => {
            template.interface = Some(inputs);
            template.target = None;
            "core-sleep".clone_into(&mut template.r#type);
            spec["taskType"] = json!("core-sleep");
        }
        other => panic!("{other}"),
    }
    spec["taskTemplate"] = json!(BASE64_STANDARD.encode(template.encode_to_vec()));
    spec["inputUri"] = json!(format!("file://{}/inputs.pb", folder.display()));
    spec["runOutputBase"] = json!(format!("file://{}/outputs", folder.display()));
    action
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_controllers_machine_is_read_unless_a_root_is_configured() {
    let cluster = TestCluster::embedded().await;
    let actions = TaskActions::install(&cluster).await;
    let folder = cluster.folder.path().join("files");
    fs::create_dir(&folder).unwrap();
    let inputs = Watched::at(&folder.join("inputs.pb"));
    let mut plan = Plan::of(&cluster, "tasks");
    // Nothing is of the lease here.
    plan.lease = "0";
    let mut replica = plan.start("without-root");
    for kind in ALL {
        actions.create(&action_in(&folder, kind, kind)).await;
    }
    for kind in ALL {
        let ended = actions.until_ended(kind);
        tokio::time::timeout(Duration::from_secs(60), ended)
            .await
            .unwrap();
        let status = actions.get(kind).await["status"].to_string();
        for expected in [
            "expected a URL of a store that is configured (none; storage.files-root allows file://), found file://",
            "\"Failed\"",
        ] {
            assert!(status.contains(expected), "{kind}: {status}");
        }
    }
    assert!(!inputs.was_read());
    let made: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(made.len(), 1, "nothing was written: {made:?}");
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());

    // With a table of namespaces, others' files are not read below a root either.
    let config = cluster.folder.path().join("config.yaml");
    let of_others = json!({"files-root": "/", "namespaces": {"others": ["file:///"]}});
    fs::write(&config, json!({"storage": of_others}).to_string()).unwrap();
    plan.config = Some(config.clone());
    let mut replica = plan.start("of-others");
    let name = "of-others";
    actions.create(&action_in(&folder, INPUTS, name)).await;
    actions.until_ended(name).await;
    let status = actions.get(name).await["status"].to_string();
    let expected = format!(
        "expected a URL that actions of namespace {} may name (none), found file://",
        cluster.namespace
    );
    assert!(status.contains(&expected), "{status}");
    assert!(!inputs.was_read());
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());

    fs::write(&config, json!({"storage": {"files-root": "/"}}).to_string()).unwrap();
    let _replica = plan.start("with-root");
    actions
        .create(&action_in(&folder, INPUTS, "with-root"))
        .await;
    until("the inputs are read", || inputs.was_read()).await;
}

/// What `longshore actions` says of them.
async fn shown(cluster: &TestCluster, arguments: &[&str]) -> String {
    let mut command = longshore();
    command.arg("actions").args(arguments);
    command.args(["-n", &cluster.namespace, "--kubeconfig"]);
    command.arg(cluster.admin_kubeconfig());
    let ended = tokio::task::spawn_blocking(move || outcome(&mut command));
    let (code, stdout, stderr) = ended.await.unwrap();
    assert_eq!(code, 0, "{stderr}");
    stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_whose_urls_cannot_be_used_says_why_where_actions_are_listed() {
    let cluster = TestCluster::embedded().await;
    let actions = TaskActions::install(&cluster).await;
    let root = cluster.folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("taken"), "").unwrap();
    let config = cluster.folder.path().join("config.yaml");
    let storage = json!({"storage": {"files-root": root}});
    fs::write(&config, storage.to_string()).unwrap();
    let mut plan = Plan::of(&cluster, "tasks");
    plan.lease = "0";
    plan.config = Some(config);
    let mut replica = plan.start("tasks");
    let with_outputs = |name: &str, url: &str| {
        let mut action = action(name, 0, "run 10ms exit 0");
        action["spec"]["runOutputBase"] = json!(url);
        action
    };
    let name = "leads-up";
    let url = "file:///a/../../b";
    actions.create(&with_outputs(name, url)).await;
    actions.until_ended(name).await;
    for line in [
        shown(&cluster, &["get", name]).await,
        shown(&cluster, &["list"]).await,
    ] {
        for expected in [
            "InvalidSpec",
            "no file can be at file:",
            "expected a path without `..`",
        ] {
            assert!(line.contains(expected), "{expected}: {line}");
        }
    }
    // A user may free the directory for this action: it waits, and its message says for what.
    let name = "host";
    actions.create(&with_outputs(name, "file://taken/x")).await;
    let says = async {
        loop {
            let text = shown(&cluster, &["get", name]).await;
            if text.contains("waiting for a place for its outputs: the directory file://taken/") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), says)
        .await
        .unwrap();
    let list = shown(&cluster, &["list"]).await;
    let line = list.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line.contains("Not a directory"), "{line}");
    fs::remove_file(root.join("taken")).unwrap();
    actions.until_ended(name).await;
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}
