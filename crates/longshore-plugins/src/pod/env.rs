//! Variables of containers, in upstream's order (task action spec §11.4). Names that come twice stay: the last counts.

use serde_json::{Map, Value, json};

use crate::{config::K8sConfig, context::TaskContext};

/// Adds the variables that every container of a task has.
pub(super) fn add(container: &mut Map<String, Value>, context: &TaskContext, config: &K8sConfig) {
    let mut env = take_list(container, "env");
    env.extend(of_execution(context));
    env.extend(of_task(context));
    for variables in [
        &context.env,
        &config.default_env_vars,
        &config.default_env_vars_from_env,
    ] {
        env.extend(variables.iter().map(|(name, value)| variable(name, value)));
    }
    container.insert("env".into(), env.into());

    let mut sources = take_list(container, "envFrom");
    for (kind, names) in [
        ("secretRef", &config.default_env_from_secrets),
        ("configMapRef", &config.default_env_from_config_maps),
    ] {
        let optional = |name: &String| json!({(kind): {"name": name, "optional": true}});
        sources.extend(names.iter().map(optional));
    }
    if !sources.is_empty() {
        container.insert("envFrom".into(), sources.into());
    }
}

fn of_execution(context: &TaskContext) -> [Value; 5] {
    [
        variable("FLYTE_INTERNAL_EXECUTION_ID", &context.run_name),
        variable("FLYTE_INTERNAL_EXECUTION_PROJECT", &context.project),
        variable("FLYTE_INTERNAL_EXECUTION_DOMAIN", &context.domain),
        json!({
            "name": "_F_PN",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        }),
        variable(
            "FLYTE_ATTEMPT_NUMBER",
            &context.attempt.saturating_sub(1).to_string(),
        ),
    ]
}

fn of_task(context: &TaskContext) -> Vec<Value> {
    let Some(id) = &context.template.id else {
        return Vec::new();
    };
    let parts = [
        ("PROJECT", &id.project),
        ("DOMAIN", &id.domain),
        ("NAME", &id.name),
        ("VERSION", &id.version),
    ];
    // The second four are what older SDKs read.
    ["FLYTE_INTERNAL_TASK_", "FLYTE_INTERNAL_"]
        .into_iter()
        .flat_map(|prefix| parts.map(|(part, value)| variable(&format!("{prefix}{part}"), value)))
        .collect()
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn take_list(container: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    match container.remove(field) {
        Some(Value::Array(list)) => list,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_),
        )
        | None => Vec::new(),
    }
}
