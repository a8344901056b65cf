//! Runs the scenario files in `testdata/`: templates that become resources, and resources that say something.

use std::{fs, path::Path, sync::Arc};

use longshore_api::flyte::TaskActionSpec;
use longshore_proto::{flyteidl2::core::TaskTemplate, from_json};
use serde_json::{Value, json};

use crate::{Config, ErrorFile, K8sState, Phase, PhaseInfo, Plugin, Registry, TaskContext};

/// When a scenario looks at a resource that does not say otherwise.
const NOW: &str = "2026-01-01T00:00:30Z";

fn read(folder: &str, name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let text = fs::read_to_string(path.join(folder).join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// The configuration of a scenario: as the peer's file has it.
fn config(scenario: &Value) -> Config {
    Config::read(&scenario["config"], &|_| None).unwrap().config
}

/// The first attempt of action `r-a`, unless the scenario says otherwise.
pub(crate) fn context(scenario: &Value, config: &Config) -> TaskContext {
    let template: TaskTemplate = from_json(&scenario["template"]).unwrap();
    let mut action = json!({
        "metadata": {
            "namespace": "flyte", "name": "r-a", "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"own": "action"},
        },
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": "a",
            "taskType": template.r#type, "inputUri": "s3://b/in", "runOutputBase": "s3://b/out",
        },
    });
    for (part, value) in scenario["action"].as_object().into_iter().flatten() {
        for (field, value) in value.as_object().unwrap() {
            action[part][field] = value.clone();
        }
    }
    let spec = TaskActionSpec::of(&action).unwrap();
    let mut context = TaskContext::of(&action, &spec, template, 1, config).unwrap();
    context.takes_pod_templates = scenario["sparkTakesTemplates"] == true;
    context.pod_template = Some(scenario["podTemplate"].clone()).filter(Value::is_object);
    context
}

fn plugin(context: &TaskContext, config: &Config) -> Arc<dyn Plugin> {
    let registry = Registry::new(config).unwrap();
    Arc::clone(registry.plugin(&context.template.r#type).unwrap())
}

/// Builds the resource of `testdata/<folder>/<name>.yaml`; what comes out is `<name>.snap` beside it.
#[track_caller]
pub(crate) fn builds(folder: &str, name: &str) {
    let scenario = read(folder, &format!("{name}.yaml"));
    let config = config(&scenario);
    let context = context(&scenario, &config);
    let plugin = plugin(&context, &config);
    let text = match plugin.build(&context) {
        Ok(resource) => serde_saphyr::to_string(&resource).unwrap(),
        Err(error) => format!("{}: {error}", error.code),
    };
    assert_eq!(
        plugin.build(&context).ok(),
        plugin.build(&context).ok(),
        "not deterministic"
    );
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("../testdata/{folder}"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let name = format!("{}: {name}", plugin.resource_name(&context));
    let text = format!("# {name}\n{text}");
    settings.bind(|| insta::assert_snapshot!(name.rsplit(' ').next().unwrap(), text));
}

/// Refuses each template of `testdata/<folder>/refused.yaml` with a message that holds its `problem`.
#[track_caller]
pub(crate) fn refuses(folder: &str) {
    for scenario in read(folder, "refused.yaml").as_array().unwrap() {
        let config = config(scenario);
        let context = context(scenario, &config);
        let error = plugin(&context, &config).build(&context).unwrap_err();
        let problem = scenario["problem"].as_str().unwrap();
        assert_eq!(error.code, "BadTaskSpecification");
        assert!(
            error.message.contains(problem),
            "expected {problem}, found {error}"
        );
    }
}

/// Looks at each resource of `testdata/<folder>/phases.yaml`.
#[track_caller]
pub(crate) fn says(folder: &str) {
    let scenario = read(folder, "phases.yaml");
    let config = config(&scenario);
    let mut context = context(&scenario, &config);
    let plugin = plugin(&context, &config);
    for row in scenario["rows"].as_array().unwrap() {
        let mut resource = scenario["resource"].clone();
        for (field, value) in row["resource"].as_object().into_iter().flatten() {
            resource[field] = value.clone();
        }
        let phase =
            |name: &Value| Phase::parse(&format!("Phase{}", name.as_str().unwrap_or_default()));
        context.last = K8sState {
            phase: phase(&row["last"]).unwrap_or_default(),
            ..K8sState::default()
        };
        context.head_pod = Some(row["headPod"].clone()).filter(Value::is_object);
        context.error_file = match row["errorFile"].as_str() {
            Some("absent") => ErrorFile::Absent,
            Some(kind) => ErrorFile::Present {
                is_recoverable: kind == "recoverable",
            },
            None => ErrorFile::Unknown,
        };
        let now = row["now"].as_str().unwrap_or(NOW).parse().unwrap();
        let info = plugin.phase(&context, &resource, now);
        assert_eq!(digest(&info), row["says"].as_str().unwrap(), "of {row}");
        if let Some(links) = row["links"].as_array() {
            let found: Vec<String> = info
                .info
                .logs
                .iter()
                .map(|link| {
                    format!(
                        "{} {}{}",
                        link.name,
                        link.uri,
                        if link.ready { "" } else { " (not ready)" }
                    )
                })
                .collect();
            assert_eq!(&found, links, "of {row}");
        }
        if let Some(head) = row["head"].as_str() {
            let found = plugin.head_pod(&context, &resource);
            assert_eq!(format!("{found:?}"), head, "of {row}");
        }
    }
}

/// A phase as one line.
pub(crate) fn digest(info: &PhaseInfo) -> String {
    let mut text = format!("{:?}", info.phase);
    if info.version > 0 {
        text += &format!(" v{}", info.version);
    }
    if let Some(error) = &info.error {
        text += &format!(" {:?} {}: {}", error.kind, error.code, error.message);
    } else if !info.reason.is_empty() {
        text += &format!(": {}", info.reason);
    }
    if info.cleanup_on_failure {
        text += " (cleaned up)";
    }
    text
}
