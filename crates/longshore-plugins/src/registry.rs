//! Which plugin takes which task type (task action spec §8).

use std::{collections::BTreeMap, sync::Arc};

use crate::{config::Config, plugin::Plugin, pod::PodPlugin};

/// Ids under which upstream registers the plugin of pods too.
const POD_ALIASES: [&str; 2] = ["container", "sidecar"];

/// All plugins by the task types that they take.
#[derive(Clone, Debug)]
pub struct Registry {
    by_task_type: BTreeMap<String, Arc<dyn Plugin>>,
    /// Takes every other type.
    default: Arc<dyn Plugin>,
}

/// A configuration that no registry can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// `default-for-task-types` names a plugin that does not exist.
    #[error(
        "tasks.task-plugins.default-for-task-types gives task type {task_type:?} to plugin {plugin:?}; expected one of {known:?}"
    )]
    UnknownPlugin {
        /// The key.
        task_type: String,
        /// The value.
        plugin: String,
        /// What it could be.
        known: Vec<&'static str>,
    },
}

impl Registry {
    /// The plugins as they are configured. A new plugin is one more row here.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub fn new(config: &Config) -> Result<Self, RegistryError> {
        let pod: Arc<dyn Plugin> = Arc::new(PodPlugin::new(Arc::new(config.k8s.clone())));
        Self::with_plugins(&[Arc::clone(&pod)], pod, &config.default_for_task_types)
    }

    /// The plugin of a task type.
    pub fn plugin(&self, task_type: &str) -> &Arc<dyn Plugin> {
        self.by_task_type.get(task_type).unwrap_or(&self.default)
    }

    /// Of plugins that take the same type, the last has it; the configuration has the last word.
    fn with_plugins(
        plugins: &[Arc<dyn Plugin>],
        default: Arc<dyn Plugin>,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Self, RegistryError> {
        let mut by_id: BTreeMap<&'static str, &Arc<dyn Plugin>> = BTreeMap::new();
        let mut by_task_type = BTreeMap::new();
        for plugin in plugins {
            by_id.insert(plugin.id(), plugin);
            if plugin.id() == PodPlugin::ID {
                by_id.extend(POD_ALIASES.map(|alias| (alias, plugin)));
            }
            for task_type in plugin.task_types() {
                by_task_type.insert((*task_type).to_owned(), Arc::clone(plugin));
            }
        }
        for (task_type, id) in overrides {
            let plugin =
                by_id
                    .get(id.as_str())
                    .copied()
                    .ok_or_else(|| RegistryError::UnknownPlugin {
                        task_type: task_type.clone(),
                        plugin: id.clone(),
                        known: by_id.keys().copied().collect(),
                    })?;
            by_task_type.insert(task_type.clone(), Arc::clone(plugin));
        }
        Ok(Self {
            by_task_type,
            default,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use longshore_core::Resource;
    use serde_json::{Value, json};

    use super::*;
    use crate::{BuildError, Phase, PhaseInfo, TaskContext};

    #[derive(Debug)]
    struct Other;

    impl Plugin for Other {
        fn id(&self) -> &'static str {
            "other"
        }
        fn task_types(&self) -> &'static [&'static str] {
            &["python", "other"]
        }
        fn resource(&self) -> Resource {
            Resource::CONFIG_MAP
        }
        fn build(&self, _: &TaskContext) -> Result<Value, BuildError> {
            Ok(json!({}))
        }
        fn phase(&self, _: &TaskContext, _: &Value, _: Timestamp) -> PhaseInfo {
            PhaseInfo::of(Phase::Success, "")
        }
    }

    fn registry(overrides: &[(&str, &str)]) -> Result<Registry, RegistryError> {
        let pod: Arc<dyn Plugin> = Arc::new(PodPlugin::new(Arc::default()));
        let plugins = [Arc::clone(&pod), Arc::new(Other)];
        let overrides = overrides
            .iter()
            .map(|(task_type, id)| ((*task_type).to_owned(), (*id).to_owned()))
            .collect();
        Registry::with_plugins(&plugins, pod, &overrides)
    }

    #[test]
    fn the_last_plugin_of_a_type_has_it_and_pods_take_the_rest() {
        let registry = registry(&[]).unwrap();
        for (task_type, id) in [
            ("container", "pod"),
            ("raw-container", "pod"),
            ("sidecar", "pod"),
            ("python", "other"),
            ("other", "other"),
            ("nobody's", "pod"),
            ("", "pod"),
        ] {
            assert_eq!(registry.plugin(task_type).id(), id, "{task_type}");
        }
    }

    #[test]
    fn the_configuration_has_the_last_word() {
        let registry = registry(&[
            ("python", "container"),
            ("sidecar", "other"),
            ("mine", "other"),
        ])
        .unwrap();
        assert_eq!(registry.plugin("python").id(), "pod");
        assert_eq!(registry.plugin("sidecar").id(), "other");
        assert_eq!(registry.plugin("mine").id(), "other");
    }

    #[test]
    fn a_plugin_that_does_not_exist_is_refused_with_those_that_do() {
        let error = registry(&[("a", "sparkle")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tasks.task-plugins.default-for-task-types gives task type \"a\" to plugin \"sparkle\"; \
             expected one of [\"container\", \"other\", \"pod\", \"sidecar\"]"
        );
    }

    #[test]
    fn the_default_configuration_has_the_pod_plugin() {
        let registry = Registry::new(&Config::default()).unwrap();
        assert_eq!(registry.plugin("python").resource(), Resource::POD);
    }
}
