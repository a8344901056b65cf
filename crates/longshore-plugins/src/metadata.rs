//! Metadata of the resource of an attempt, whatever the plugin (task action spec §9.5).

use std::collections::BTreeMap;

use longshore_api::flyte;
use serde_json::{Map, Value, json};

use crate::{TASK_ACTION, config::K8sConfig, context::TaskContext, plugin::PluginProperties};

/// The TaskAction that a resource is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The name of the TaskAction.
    pub name: &'a str,
    /// The uid of the TaskAction: a resource of another incarnation is not ours.
    pub uid: &'a str,
}

/// The object as it is to be created: with name, namespace, labels, annotations, owner and finalizer.
///
/// Labels and annotations are the configuration's, then the plugin's, then the task's; later ones win.
pub fn with_metadata(
    mut object: Value,
    name: &str,
    context: &TaskContext,
    owner: Owner<'_>,
    properties: PluginProperties,
    config: &K8sConfig,
) -> Value {
    let mut metadata = match object["metadata"].take() {
        Value::Object(metadata) => metadata,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    for (field, defaults, tasks) in [
        ("labels", &config.default_labels, &context.labels),
        (
            "annotations",
            &config.default_annotations,
            &context.annotations,
        ),
    ] {
        let own = metadata.remove(field);
        metadata.insert(field.to_owned(), union(defaults, own, tasks));
    }
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(context.namespace));
    if properties.has_owner(config) {
        let reference = json!({
            "apiVersion": TASK_ACTION.api_version(),
            "kind": flyte::KIND,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
        });
        metadata.insert("ownerReferences".to_owned(), json!([reference]));
    }
    if properties.has_finalizer(config) {
        metadata.insert("finalizers".to_owned(), json!([flyte::FINALIZER_RESOURCE]));
    }
    object["metadata"] = Value::Object(metadata);
    object
}

/// The configuration's, then the plugin's own, then the task's; later ones win.
pub(crate) fn union(
    defaults: &BTreeMap<String, String>,
    own: Option<Value>,
    tasks: &BTreeMap<String, String>,
) -> Value {
    let text = |(key, value): (&String, &String)| (key.clone(), json!(value));
    let mut all: Map<String, Value> = defaults.iter().map(text).collect();
    if let Some(Value::Object(own)) = own {
        all.extend(own);
    }
    all.extend(tasks.iter().map(text));
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use longshore_proto::flyteidl2::core::TaskTemplate;

    use super::*;
    use crate::fixtures::context;

    const OWNER: Owner<'static> = Owner {
        name: "r-a",
        uid: "u",
    };

    #[test]
    fn the_tasks_metadata_win_over_the_plugins_and_these_over_the_configured() {
        let strings = |pairs: [(&str, &str); 3]| {
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        let config = K8sConfig {
            default_labels: strings([("a", "config"), ("b", "config"), ("run", "config")]),
            inject_finalizer: true,
            ..K8sConfig::default()
        };
        let object = json!({
            "metadata": {"labels": {"b": "plugin", "run": "plugin"}},
            "spec": {"mine": true},
        });
        let context = context(TaskTemplate::default(), 1);
        let properties = PluginProperties::default();
        let built = with_metadata(object, "r-a-0", &context, OWNER, properties, &config);
        let labels = &built["metadata"]["labels"];
        assert_eq!(labels["a"], "config");
        assert_eq!(labels["b"], "plugin");
        assert_eq!(labels["run"], "r");
        assert_eq!(built["metadata"]["finalizers"], json!(["flyte/flytek8s"]));
        assert_eq!(built["spec"], json!({"mine": true}));
    }

    #[test]
    fn a_resource_without_owner_reference_is_possible() {
        let config = K8sConfig {
            disable_inject_owner_references: true,
            ..K8sConfig::default()
        };
        let context = context(TaskTemplate::default(), 1);
        let properties = PluginProperties::default();
        let built = with_metadata(json!({}), "r-a-0", &context, OWNER, properties, &config);
        assert_eq!(built["metadata"].get("ownerReferences"), None);
        assert_eq!(built["metadata"]["name"], "r-a-0");
        assert_eq!(built["metadata"].get("finalizers"), None);
    }

    #[test]
    fn a_plugin_may_have_neither_owner_reference_nor_finalizer() {
        let config = K8sConfig {
            inject_finalizer: true,
            ..K8sConfig::default()
        };
        let context = context(TaskTemplate::default(), 1);
        let properties = PluginProperties {
            disable_inject_owner_references: true,
            disable_inject_finalizer: true,
            ..PluginProperties::default()
        };
        let built = with_metadata(json!({}), "r-a-0", &context, OWNER, properties, &config);
        assert_eq!(built["metadata"].get("ownerReferences"), None);
        assert_eq!(built["metadata"].get("finalizers"), None);
    }
}
