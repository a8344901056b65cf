//! The plugin that `docs/plugins.md` shows, as an author outside of this crate would write it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod toy;

use std::{collections::BTreeMap, sync::Arc};

use longshore_api::flyte::TaskActionSpec;
use longshore_plugins::{
    Config, K8sConfig, Owner, Phase, Plugin, PodPlugin, Registry, Runner, TaskContext,
    with_metadata,
};
use longshore_proto::{flyteidl2::core::TaskTemplate, from_json};
use serde_json::{Value, json};

use toy::JobPlugin;

fn context(config: &Config) -> TaskContext {
    let template: TaskTemplate = from_json(&json!({
        "type": "job", "container": {"image": "busybox", "command": ["true"]},
    }))
    .unwrap();
    let action = json!({
        "metadata": {"namespace": "flyte", "name": "r-a", "uid": "u"},
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": "a", "taskType": "job",
            "inputUri": "s3://b/in", "runOutputBase": "s3://b/out",
        },
    });
    let spec = TaskActionSpec::of(&action).unwrap();
    TaskContext::of(&action, &spec, template, 1, config).unwrap()
}

#[test]
fn a_plugin_is_one_type_and_one_row() {
    let config = Config::default();
    let rows = [
        Runner::Resource(Arc::new(PodPlugin::new(Arc::new(config.clone())))),
        Runner::Resource(Arc::new(JobPlugin)),
    ];
    let registry = Registry::of(&rows, &BTreeMap::new()).unwrap();
    let kinds: Vec<&str> = registry.resources().map(|r| r.kind).collect();
    assert_eq!(kinds, ["Pod", "Job"]);

    let plugin = registry.plugin("job").unwrap();
    let context = context(&config);
    let owner = Owner {
        name: "r-a",
        uid: "u",
    };
    let name = plugin.resource_name(&context);
    let job = plugin.build(&context).unwrap();
    let properties = plugin.properties();
    let job = with_metadata(job, &name, &context, owner, properties, &config.k8s);
    assert_eq!(job["metadata"]["name"], "r-a-0");
    assert_eq!(job["metadata"].get("ownerReferences"), None);
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["action"], "a");

    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let phase = |status: Value| {
        let job = json!({"status": status});
        plugin.phase(&context, &job, now).phase
    };
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    assert_eq!(phase(json!(null)), Phase::Queued);
    assert_eq!(phase(json!({"ready": 1})), Phase::Running);
    assert_eq!(phase(condition("Complete")), Phase::Success);
    assert_eq!(phase(condition("Failed")), Phase::RetryableFailure);
    assert_eq!(phase(condition("SuccessCriteriaMet")), Phase::Queued);
}

#[test]
fn an_abort_suspends_the_job_and_the_job_stays() {
    let context = TaskContext {
        generated_name: "a".repeat(70),
        ..context(&Config::default())
    };
    assert!(JobPlugin.resource_name(&context).len() <= 63);
    let (running, suspended) = (
        json!({"spec": {"suspend": false}}),
        json!({"spec": {"suspend": true}}),
    );
    let abort = JobPlugin.on_abort(&context, &running);
    assert!(!abort.is_usual() && abort.deletes_on_error);
    assert!(!abort.effect.holds(&running));
    assert!(abort.effect.holds(&suspended));
    let eager = K8sConfig {
        delete_resource_on_finalize: true,
        ..K8sConfig::default()
    };
    assert!(!JobPlugin.properties().is_deleted_at_the_end(&eager));
}

#[test]
fn the_documentation_shows_the_plugin_that_is_tested() {
    let documentation = include_str!("../../../../docs/plugins.md");
    let source = include_str!("toy.rs");
    let shown = documentation.split("```rust\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    assert_eq!(shown, source, "copy tests/it/toy.rs into docs/plugins.md");
}
