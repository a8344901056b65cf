//! `executor_config` of a task, as far as the KubernetesExecutor reads it.

use serde_json::{Map, Value};

/// What a task instance fails with when its `executor_config` is invalid.
pub const INVALID_EXECUTOR_CONFIG: &str = "Invalid executor_config passed";

/// `executor_config` of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutorConfig {
    /// The pod that wins over all others, as JSON: fields that nobody knows survive.
    pub pod_override: Option<Value>,
    /// The file of the base pod, instead of `[kubernetes_executor] pod_template_file`.
    pub pod_template_file: Option<String>,
}

/// Why an `executor_config` cannot be used. The task fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorConfigError {
    /// It is no object.
    #[error("`executor_config` must be a dictionary, but is {found}")]
    NoDictionary {
        /// What it is.
        found: &'static str,
    },
    /// It has both forms.
    #[error(
        "`executor_config` has both `pod_override` and `KubernetesExecutor`, its form before Airflow 2; leave \
         `KubernetesExecutor` out"
    )]
    BothForms,
    /// The override is no pod.
    #[error("`pod_override` must be a `kubernetes.client.models.V1Pod`, but is {found}")]
    NoPod {
        /// What it is.
        found: &'static str,
    },
    /// The name of the file is no text.
    #[error("`pod_template_file` must be a text, but is {found}")]
    NoFile {
        /// What it is.
        found: &'static str,
    },
}

/// The old form, which upstream refuses beside the new one.
const LEGACY: &str = "KubernetesExecutor";
/// Type of an encoded pod in a serialized DAG.
const POD: &str = "k8s.V1Pod";

impl ExecutorConfig {
    /// Reads an `executor_config`: as a serialized DAG has it (`{"__type": "dict", "__var": …}`), or plain.
    ///
    /// # Errors
    /// It is not what the executor can use.
    pub fn read(config: &Value) -> Result<Self, ExecutorConfigError> {
        let config = decoded(config, "dict");
        if config.is_null() {
            return Ok(Self::default());
        }
        let Some(config) = config.as_object() else {
            let found = kind(config);
            return Err(ExecutorConfigError::NoDictionary { found });
        };
        let pod = config.get("pod_override").filter(|it| !it.is_null());
        if pod.is_some() && config.contains_key(LEGACY) {
            return Err(ExecutorConfigError::BothForms);
        }
        Ok(Self {
            pod_override: pod.map(read_pod).transpose()?,
            pod_template_file: read_file(config)?,
        })
    }
}

fn read_pod(pod: &Value) -> Result<Value, ExecutorConfigError> {
    let is_other_type = pod.get("__type").is_some_and(|it| it != POD);
    let pod = decoded(pod, POD);
    if is_other_type || !pod.is_object() {
        let found = if is_other_type {
            "of another type"
        } else {
            kind(pod)
        };
        return Err(ExecutorConfigError::NoPod { found });
    }
    Ok(pod.clone())
}

fn read_file(config: &Map<String, Value>) -> Result<Option<String>, ExecutorConfigError> {
    match config.get("pod_template_file") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(file)) => Ok(Some(file.clone()).filter(|it| !it.is_empty())),
        Some(other) => Err(ExecutorConfigError::NoFile { found: kind(other) }),
    }
}

/// The value of an encoded one of this type; any other value as it is.
fn decoded<'a>(value: &'a Value, name: &str) -> &'a Value {
    let is_encoded = value.get("__type").is_some_and(|it| it == name);
    value.get("__var").filter(|_| is_encoded).unwrap_or(value)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a dictionary",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_is_read_as_a_serialized_dag_has_it() {
        let pod = json!({"spec": {"containers": [{"name": "base", "new": {"field": 1}}]}});
        let encoded = json!({"__type": "dict", "__var": {
            "pod_template_file": "/t/gpu.yaml",
            "pod_override": {"__type": "k8s.V1Pod", "__var": pod},
        }});
        let plain = json!({"pod_template_file": "/t/gpu.yaml", "pod_override": pod, "other": 1});
        let expected = ExecutorConfig {
            pod_override: Some(pod),
            pod_template_file: Some("/t/gpu.yaml".to_owned()),
        };
        assert_eq!(ExecutorConfig::read(&encoded), Ok(expected.clone()));
        assert_eq!(ExecutorConfig::read(&plain), Ok(expected));
        for nothing in [
            json!(null),
            json!({}),
            json!({"__type": "dict", "__var": {}}),
        ] {
            assert_eq!(
                ExecutorConfig::read(&nothing),
                Ok(ExecutorConfig::default())
            );
        }
    }

    #[test]
    fn a_config_that_upstream_refuses_is_refused() {
        for (config, expected) in [
            (
                json!({"pod_override": {}, "KubernetesExecutor": {"image": "x"}}),
                ExecutorConfigError::BothForms,
            ),
            (
                json!({"pod_override": "pod"}),
                ExecutorConfigError::NoPod { found: "a text" },
            ),
            (
                json!({"pod_override": {"__type": "set", "__var": []}}),
                ExecutorConfigError::NoPod {
                    found: "of another type",
                },
            ),
            (
                json!({"pod_template_file": 1}),
                ExecutorConfigError::NoFile { found: "a number" },
            ),
            (
                json!([1]),
                ExecutorConfigError::NoDictionary { found: "a list" },
            ),
        ] {
            assert_eq!(ExecutorConfig::read(&config), Err(expected), "{config}");
        }
        // The old form alone is ignored.
        let old = ExecutorConfig::read(&json!({"KubernetesExecutor": {"image": "x"}}));
        assert_eq!(old, Ok(ExecutorConfig::default()));
    }
}
