//! TaskActions that ask foreign systems, and the processes of a controller that asks them.

use std::{fs, path::Path, process::Command as Process};

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_proto::flyteidl2::core::{
    Container, Identifier, ResourceType, RetryStrategy, TaskMetadata, TaskTemplate, TypedInterface,
    VariableEntry, VariableMap, task_template::Target,
};
use longshore_test::{FlyteServices, flyte::outputs};
use prost::Message;
use serde_json::{Value, json};

use super::replica::{Plan, Replica};
use crate::task_actions::action;

/// The task type of the jobs of connectors.
const OF_CONNECTORS: &str = "task_type_3";

/// An action with another template.
fn with_template(mut action: Value, change: impl FnOnce(&mut TaskTemplate)) -> Value {
    let spec = &mut action["spec"];
    let template = spec["taskTemplate"].as_str().unwrap();
    let template = BASE64_STANDARD.decode(template).unwrap();
    let mut template = TaskTemplate::decode(template.as_slice()).unwrap();
    change(&mut template);
    spec["taskType"] = json!(template.r#type);
    spec["taskTemplate"] = json!(BASE64_STANDARD.encode(template.encode_to_vec()));
    action
}

fn container(args: Vec<String>) -> Option<Target> {
    Some(Target::Container(Container {
        image: "example.test/image:1".to_owned(),
        args,
        ..Container::default()
    }))
}

/// An action that asks no store, no catalog and no connector.
pub(super) fn plain(name: &str) -> Value {
    action(name, 0, "run 10ms exit 0")
}

/// An action whose pod is not made before its inputs are read from the store.
pub(super) fn with_inputs(name: &str) -> Value {
    let inputs = VariableMap {
        variables: vec![VariableEntry {
            key: "x".to_owned(),
            ..VariableEntry::default()
        }],
    };
    let mut action = with_template(plain(name), |template| {
        template.interface = Some(TypedInterface {
            inputs: Some(inputs),
            outputs: None,
        });
        template.target = container(vec!["{{.inputs.x}}".to_owned()]);
    });
    action["spec"]["inputUri"] = json!(format!("s3://silent/{name}/inputs.pb"));
    action
}

/// An action whose end is not known before its outputs are found in the store.
pub(super) fn with_outputs(name: &str) -> Value {
    let mut action = with_template(plain(name), |template| {
        template.interface = Some(outputs::interface());
    });
    action["spec"]["runOutputBase"] = json!(format!("s3://silent/{name}"));
    action
}

/// An action whose outputs are cached, and are files below a folder. The pod makes them.
pub(super) fn cached(name: &str, folder: &Path, is_serialized: bool) -> Value {
    let store = format!("file://{}", folder.display());
    let mut action = with_template(plain(name), |template| {
        template.id = Some(Identifier {
            resource_type: ResourceType::Task.into(),
            project: "p".to_owned(),
            domain: "d".to_owned(),
            name: "task".to_owned(),
            version: "1".to_owned(),
            ..Identifier::default()
        });
        template.metadata = Some(TaskMetadata {
            discoverable: true,
            cache_serializable: is_serialized,
            ..TaskMetadata::default()
        });
        template.interface = Some(outputs::interface());
        template.target = container(outputs::arguments());
    });
    action["spec"]["cacheKey"] = json!(name);
    action["spec"]["inputUri"] = json!(format!("{store}/inputs.pb"));
    action["spec"]["runOutputBase"] = json!(format!("{store}/outputs"));
    action
}

/// An action that is a job of a connector, which returns its outputs. They go into the store.
pub(super) fn remote(name: &str, bucket: &str) -> Value {
    let mut action = with_template(plain(name), |template| {
        OF_CONNECTORS.clone_into(&mut template.r#type);
        template.target = None;
        template.interface = Some(outputs::interface());
        template.metadata = Some(TaskMetadata {
            retries: Some(RetryStrategy {
                retries: 1,
                backoff: None,
            }),
            ..TaskMetadata::default()
        });
    });
    action["spec"]["inputUri"] = json!(format!("s3://{bucket}/{name}/inputs.pb"));
    action["spec"]["runOutputBase"] = json!(format!("s3://{bucket}/{name}"));
    action
}

/// The same controller, which asks these systems.
pub(super) fn asking(mut plan: Plan, services: &FlyteServices) -> Plan {
    let file = plan.folder.join("foreign.yaml");
    fs::write(&file, services.config().to_string()).unwrap();
    plan.config = Some(file);
    plan
}

/// Sends a signal to a replica.
pub(super) fn signal(replica: &Replica, name: &str) {
    let id = replica.id().to_string();
    let sent = Process::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    assert!(sent.unwrap().success());
}
