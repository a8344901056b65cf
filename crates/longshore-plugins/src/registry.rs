//! Which plugin runs which task type (task action spec §8).

use std::{collections::BTreeMap, sync::Arc};

use longshore_core::Resource;

use crate::{
    clustered::ClusteredPlugin, config::Config, connector::ConnectorPlugin, dask::DaskPlugin,
    flink::FlinkPlugin, kubeflow::KubeflowPlugin, plugin::Plugin, pod::PodPlugin, ray::RayPlugin,
    remote::RemotePlugin, sleep::SleepPlugin, spark::SparkPlugin,
};

/// Ids under which upstream registers the plugin of pods too.
const POD_ALIASES: [&str; 2] = ["container", "sidecar"];

/// The plugin that runs a task type.
#[derive(Clone, Debug)]
pub enum Runner {
    /// A resource in Kubernetes.
    Resource(Arc<dyn Plugin>),
    /// Something else, or nothing.
    Remote(Arc<dyn RemotePlugin>),
}

impl Runner {
    /// The id of the plugin.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Resource(plugin) => plugin.id(),
            Self::Remote(plugin) => plugin.id(),
        }
    }

    fn task_types(&self) -> Vec<String> {
        match self {
            Self::Resource(plugin) => plugin.task_types().iter().map(|&t| t.to_owned()).collect(),
            Self::Remote(plugin) => plugin.task_types(),
        }
    }
}

fn resource(plugin: impl Plugin + 'static) -> Runner {
    Runner::Resource(Arc::new(plugin))
}

fn remote(plugin: impl RemotePlugin + 'static) -> Runner {
    Runner::Remote(Arc::new(plugin))
}

/// All plugins, the default one first. A new plugin is one more row here.
fn plugins(config: &Arc<Config>) -> Vec<Runner> {
    let config = || Arc::clone(config);
    vec![
        resource(PodPlugin::new(config())),
        resource(SparkPlugin::new(config())),
        resource(RayPlugin::new(config())),
        resource(DaskPlugin::new(config())),
        resource(KubeflowPlugin::pytorch(config())),
        resource(KubeflowPlugin::tensorflow(config())),
        resource(KubeflowPlugin::mpi(config())),
        resource(ClusteredPlugin::new(config())),
        resource(FlinkPlugin::new(config())),
        remote(SleepPlugin),
        remote(ConnectorPlugin::new(config())),
    ]
}

/// All plugins by the task types that they take.
#[derive(Clone, Debug)]
pub struct Registry {
    by_task_type: BTreeMap<String, Runner>,
    /// Takes every other type.
    default: Runner,
    /// Of each kind that the plugins make, the first that makes it.
    makers: Vec<Arc<dyn Plugin>>,
    /// The plugin of connectors, where there is one.
    connectors: Option<Arc<dyn RemotePlugin>>,
}

/// A configuration that no registry can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Nothing could run anything.
    #[error("expected at least one plugin, found none")]
    NoPlugin,
    /// `default-for-task-types` names a plugin that does not exist.
    #[error(
        "tasks.task-plugins.default-for-task-types gives task type {task_type:?} to plugin {plugin:?}; expected one of {known:?}"
    )]
    UnknownPlugin {
        /// The task type, a key of the setting.
        task_type: String,
        /// The value.
        plugin: String,
        /// The ids of the known plugins.
        known: Vec<&'static str>,
    },
}

impl Registry {
    /// The plugins as they are configured.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub fn new(config: &Config) -> Result<Self, RegistryError> {
        let overrides = &config.default_for_task_types;
        Self::of(&plugins(&Arc::new(config.clone())), overrides)
    }

    /// A registry of these plugins. The first plugin takes the task types that no plugin takes. Of plugins that take
    /// the same type, the last one gets it. `overrides` (task type to plugin id) take precedence over both.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub fn of(
        runners: &[Runner],
        overrides: &BTreeMap<String, String>,
    ) -> Result<Self, RegistryError> {
        let default = runners.first().ok_or(RegistryError::NoPlugin)?.clone();
        let mut by_id: BTreeMap<&'static str, &Runner> = BTreeMap::new();
        let mut by_task_type = BTreeMap::new();
        let mut makers: Vec<Arc<dyn Plugin>> = Vec::new();
        let mut connectors = None;
        for runner in runners {
            by_id.insert(runner.id(), runner);
            if runner.id() == PodPlugin::ID {
                by_id.extend(POD_ALIASES.map(|alias| (alias, runner)));
            }
            for task_type in runner.task_types() {
                by_task_type.insert(task_type, runner.clone());
            }
            if let Runner::Resource(plugin) = runner
                && !makers.iter().any(|it| it.resource() == plugin.resource())
            {
                makers.push(Arc::clone(plugin));
            }
            if let Runner::Remote(plugin) = runner
                && plugin.id() == ConnectorPlugin::ID
            {
                connectors = Some(Arc::clone(plugin));
            }
        }
        for (task_type, id) in overrides {
            let runner = by_id.get(id.as_str()).copied();
            let runner = runner.ok_or_else(|| RegistryError::UnknownPlugin {
                task_type: task_type.clone(),
                plugin: id.clone(),
                known: by_id.keys().copied().collect(),
            })?;
            by_task_type.insert(task_type.clone(), runner.clone());
        }
        Ok(Self {
            by_task_type,
            default,
            makers,
            connectors,
        })
    }

    /// The plugin that runs a task type.
    pub fn runner(&self, task_type: &str) -> &Runner {
        self.by_task_type.get(task_type).unwrap_or(&self.default)
    }

    /// The plugin of connectors, for a task type that neither a plugin nor the configuration names: a connector may list it.
    pub fn of_connectors(&self, task_type: &str) -> Option<&Arc<dyn RemotePlugin>> {
        let is_named = self.by_task_type.contains_key(task_type);
        self.connectors.as_ref().filter(|_| !is_named)
    }

    /// The plugin of a task type that runs as a resource; `None` for one that does not.
    pub fn plugin(&self, task_type: &str) -> Option<&Arc<dyn Plugin>> {
        match self.runner(task_type) {
            Runner::Resource(plugin) => Some(plugin),
            Runner::Remote(_) => None,
        }
    }

    /// Of each kind of resource that the plugins make, the first plugin that makes it.
    pub fn makers(&self) -> &[Arc<dyn Plugin>] {
        &self.makers
    }

    /// The kinds of resources that the plugins make: what is to be watched, and what the executor needs rights to.
    pub fn resources(&self) -> impl Iterator<Item = Resource> {
        self.makers.iter().map(|plugin| plugin.resource())
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
        let plugins = [resource(PodPlugin::new(Arc::default())), resource(Other)];
        let overrides = overrides
            .iter()
            .map(|(task_type, id)| ((*task_type).to_owned(), (*id).to_owned()))
            .collect();
        Registry::of(&plugins, &overrides)
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
            assert_eq!(registry.runner(task_type).id(), id, "{task_type}");
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
        assert_eq!(registry.runner("python").id(), "pod");
        assert_eq!(registry.runner("sidecar").id(), "other");
        assert_eq!(registry.runner("mine").id(), "other");
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
    fn every_task_type_of_upstreams_has_its_plugin() {
        let registry = Registry::new(&Config::default()).unwrap();
        for (task_type, id, kind) in [
            ("python", "pod", Some("Pod")),
            ("sidecar", "pod", Some("Pod")),
            ("spark", "spark", Some("SparkApplication")),
            ("ray", "ray", Some("RayJob")),
            ("dask", "dask", Some("DaskJob")),
            ("pytorch", "pytorch", Some("PyTorchJob")),
            ("tensorflow", "tensorflow", Some("TFJob")),
            ("mpi", "mpi", Some("MPIJob")),
            ("clustered-task", "clustered-task", Some("JobSet")),
            ("flink", "flink", Some("FlinkDeployment")),
            ("core-sleep", "core-sleep", None),
            ("task_type_3", "connector-service", None),
        ] {
            assert_eq!(registry.runner(task_type).id(), id, "{task_type}");
            let plugin = registry.plugin(task_type);
            assert_eq!(
                plugin.map(|plugin| plugin.resource().kind),
                kind,
                "{task_type}"
            );
        }
    }

    #[test]
    fn connectors_may_list_what_no_plugin_and_no_configuration_names() {
        let mut config = Config::default();
        let overrides = &mut config.default_for_task_types;
        overrides.insert("mine".to_owned(), "pod".to_owned());
        let registry = Registry::new(&config).unwrap();
        for (task_type, expected) in [
            ("nobody's", Some("connector-service")),
            ("mine", None),
            ("python", None),
            ("spark", None),
            ("task_type_3", None),
        ] {
            let found = registry.of_connectors(task_type);
            assert_eq!(found.map(|plugin| plugin.id()), expected, "{task_type}");
        }
    }

    #[test]
    fn the_kinds_to_watch_are_known() {
        let registry = Registry::new(&Config::default()).unwrap();
        let kinds: Vec<String> = registry
            .resources()
            .map(|resource| format!("{} {}", resource.api_version(), resource.plural))
            .collect();
        assert_eq!(
            kinds,
            [
                "v1 pods",
                "sparkoperator.k8s.io/v1beta2 sparkapplications",
                "ray.io/v1 rayjobs",
                "kubernetes.dask.org/v1 daskjobs",
                "kubeflow.org/v1 pytorchjobs",
                "kubeflow.org/v1 tfjobs",
                "kubeflow.org/v1 mpijobs",
                "jobset.x-k8s.io/v1alpha2 jobsets",
                "flink.apache.org/v1beta1 flinkdeployments",
            ]
        );
    }
}
