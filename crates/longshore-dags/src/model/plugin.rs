//! What a task is launched as: a pod, or a TaskAction for the plugins of Flyte's executor.

use std::collections::BTreeMap;

use longshore_core::Resource;
use longshore_plugins::TASK_ACTION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Task;

/// The task of a plugin, in the words of Flyte's `TaskTemplate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginTask {
    /// Selects the plugin: `spark`, `ray`, …; Flyte's `type`.
    pub task_type: String,
    /// Settings of the plugin that are texts, in templates' text form.
    pub config: BTreeMap<String, String>,
    /// Settings of the plugin that are an object; its texts are templates too.
    pub custom: Option<Value>,
    /// What the container needs.
    pub requests: BTreeMap<String, String>,
    /// What the container gets at most.
    pub limits: BTreeMap<String, String>,
    /// Attempts after the first within one try, by the executor of TaskActions; default 0.
    pub retries: u32,
    /// Whether it may run on machines that go away.
    pub interruptible: Option<bool>,
}

/// What a try is launched as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// A pod that this scheduler makes.
    Pod,
    /// A TaskAction: the plugin of its type makes whatever runs.
    TaskAction,
}

impl Launcher {
    /// The kind of the objects that it makes.
    pub fn resource(self) -> Resource {
        match self {
            Self::Pod => Resource::POD,
            Self::TaskAction => TASK_ACTION,
        }
    }
}

impl Task {
    /// What its tries are launched as.
    pub fn launcher(&self) -> Launcher {
        match self.plugin {
            None => Launcher::Pod,
            Some(_) => Launcher::TaskAction,
        }
    }
}
