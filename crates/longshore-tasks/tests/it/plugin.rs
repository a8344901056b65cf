//! A plugin as small as can be.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::Resource;
use longshore_plugins::{BuildError, ErrorKind, Phase, PhaseInfo, Plugin, Runner, TaskContext};
use longshore_tasks::Plugins;
use serde_json::{Value, json};

/// Runs every task as a pod.
#[derive(Debug)]
pub(crate) struct PodPlugin;

impl Plugins for PodPlugin {
    fn resolve(&self, _: &str) -> Option<Runner> {
        Some(Runner::Resource(Arc::new(Self)))
    }

    fn makers(&self) -> Vec<Arc<dyn Plugin>> {
        vec![Arc::new(Self)]
    }
}

impl Plugin for PodPlugin {
    fn id(&self) -> &'static str {
        "pod"
    }

    fn task_types(&self) -> &'static [&'static str] {
        &["container"]
    }

    fn resource(&self) -> Resource {
        Resource::POD
    }

    fn build(&self, _: &TaskContext) -> Result<Value, BuildError> {
        Ok(json!({"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "primary", "image": "example.test/image:1"}],
        }}))
    }

    fn phase(&self, _: &TaskContext, pod: &Value, _: Timestamp) -> PhaseInfo {
        let state = &pod["status"]["containerStatuses"][0]["state"];
        let ended = state["terminated"]["finishedAt"].as_str();
        let info = match pod["status"]["phase"].as_str() {
            Some("Running") => PhaseInfo::of(Phase::Running, ""),
            Some("Succeeded") => PhaseInfo::of(Phase::Success, ""),
            Some("Failed") => {
                PhaseInfo::retryable(ErrorKind::User, "Error", "terminated with exit code (1)")
            }
            _ if state["waiting"]["reason"] == "ImagePullBackOff" => PhaseInfo {
                cleanup_on_failure: true,
                ..PhaseInfo::permanent(ErrorKind::User, "ImagePullBackOff", "no such image")
            },
            _ => PhaseInfo::of(Phase::Queued, longshore_plugins::NOTHING_KNOWN),
        };
        PhaseInfo {
            occurred_at: ended.map(|at| at.parse().unwrap()),
            ..info
        }
    }
}
