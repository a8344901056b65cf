use longshore_proto::flyteidl2::core::{
    Identifier, Identity, RetryStrategy, Secret, SecurityContext, TaskMetadata, secret::MountType,
};
use serde_json::json;

use super::*;
use crate::fixtures::{sdk_action, sdk_context, vectors};

fn action() -> Value {
    json!({
        "metadata": {
            "namespace": "flyte", "name": "r-a",
            "labels": {"flyte.org/run": "r", "attempt": "mine"},
            "annotations": {"team": "x", (ANNOTATION_LAST_APPLIED): "{}"},
        },
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": "_a",
            "taskType": "python", "inputUri": "s3://b/in", "runOutputBase": "s3://b/out",
            "envVars": {"RUN_NAME": "no", "MINE": "yes"}, "interruptible": true,
        },
    })
}

fn of(template: TaskTemplate, attempt: u32, config: &Config) -> TaskContext {
    let action = action();
    let spec = TaskActionSpec::of(&action).unwrap();
    TaskContext::of(&action, &spec, template, attempt, config).unwrap()
}

#[test]
fn a_real_action_has_the_context_that_its_pod_shows() {
    let context = sdk_context(&Config::default());
    assert_eq!(context.generated_name, "r262bp7cwq8cdd24fh4f-a0-0");
    assert_eq!(context.max_attempts, 1);
    assert!(!context.is_interruptible);
    assert_eq!(
        context.paths.output_prefix,
        "s3://flyte-data/mz/flytesnacks/development/r262bp7cwq8cdd24fh4f/a0/1"
    );
    assert_eq!(context.labels["task-name"], "hello.main");
    assert!(!context.labels.contains_key("inject-flyte-secrets"));
    assert_eq!(sdk_action()["metadata"]["name"], "r262bp7cwq8cdd24fh4f-a0");
}

#[test]
fn reserved_names_win_over_the_users() {
    let context = of(TaskTemplate::default(), 0, &Config::default());
    assert_eq!(context.attempt, 1);
    assert_eq!(context.env["RUN_NAME"], "r");
    assert_eq!(context.env["MINE"], "yes");
    assert_eq!(context.env["_U_ORG_NAME"], "local");
    assert_eq!(context.labels["attempt"], "1");
    assert_eq!(context.labels["action"], "xa");
    assert_eq!(context.labels["flyte.org/run"], "r");
    assert!(!context.labels.contains_key("task-name"));
    assert!(context.is_interruptible);
}

#[test]
fn what_kubectl_remembers_stays_on_the_action() {
    let context = of(TaskTemplate::default(), 1, &Config::default());
    assert_eq!(
        context.annotations,
        [("team".to_owned(), "x".to_owned())].into()
    );
}

#[test]
fn an_attempt_is_named_by_the_retries_before_it() {
    let template = TaskTemplate {
        id: Some(Identifier {
            name: "mod.fn".to_owned(),
            ..Identifier::default()
        }),
        metadata: Some(TaskMetadata {
            retries: Some(RetryStrategy {
                retries: 2,
                ..RetryStrategy::default()
            }),
            ..TaskMetadata::default()
        }),
        ..TaskTemplate::default()
    };
    let context = of(template, 3, &Config::default());
    assert_eq!(context.generated_name, "r-a-2");
    assert_eq!(context.labels["attempt"], "3");
    assert_eq!(context.labels["task-name"], "mod.fn");
    assert_eq!(context.max_attempts, 3);
}

#[test]
fn the_templates_service_account_wins_over_the_configured_one() {
    let config = Config {
        default_service_account: Some("configured".to_owned()),
        ..Config::default()
    };
    let template = TaskTemplate {
        security_context: Some(SecurityContext {
            run_as: Some(Identity {
                k8s_service_account: "own".to_owned(),
                ..Identity::default()
            }),
            ..SecurityContext::default()
        }),
        ..TaskTemplate::default()
    };
    let account = |template| of(template, 1, &config).service_account.unwrap();
    assert_eq!(account(template), "own");
    assert_eq!(account(TaskTemplate::default()), "configured");
}

#[test]
fn secrets_are_described_in_annotations_as_upstream_does() {
    let secret = |group: &str, key: &str, mount: MountType, env_var: &str| Secret {
        group: group.to_owned(),
        key: key.to_owned(),
        mount_requirement: mount.into(),
        env_var: env_var.to_owned(),
        ..Secret::default()
    };
    let template = TaskTemplate {
        security_context: Some(SecurityContext {
            secrets: vec![
                secret("", "my-key", MountType::EnvVar, "MYVAR"),
                secret("g", "k2", MountType::File, ""),
            ],
            ..SecurityContext::default()
        }),
        ..TaskTemplate::default()
    };
    let context = of(template, 1, &Config::default());
    for (annotation, value) in vectors()["secretAnnotations"].as_object().unwrap() {
        assert_eq!(context.annotations[annotation], value.as_str().unwrap());
    }
    assert_eq!(context.labels["inject-flyte-secrets"], "true");
}
