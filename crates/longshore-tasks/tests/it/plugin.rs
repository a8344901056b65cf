//! A plugin as small as can be, one whose aborts keep what they stop, and the one of production.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::Resource;
use longshore_plugins::{
    AbortBehavior, BuildError, Config, ErrorKind, Phase, PhaseInfo, Plugin, PluginProperties,
    Runner, TaskContext,
};
use longshore_tasks::Plugins;
use serde_json::{Value, json};

/// The annotation by which an abort asks a pod of [`KeptPod`] to stop.
pub(crate) const STOP: &str = "example.test/stop";
/// The task type of [`KeptPod`].
pub(crate) const KEPT: &str = "kept";

/// Runs every task as a pod.
#[derive(Debug)]
pub(crate) struct PodPlugin;

/// The same for a pod that outlives its action: an abort asks the program to stop, and leaves the pod to it.
#[derive(Debug)]
struct KeptPod;

/// Every task as the pod that it is in production, judged as there.
#[derive(Debug)]
pub(crate) struct RealPods(Arc<dyn Plugin>);

impl RealPods {
    pub(crate) fn new() -> Self {
        let config = Arc::new(Config::default());
        Self(Arc::new(longshore_plugins::PodPlugin::new(config)))
    }
}

impl Plugins for RealPods {
    fn resolve(&self, _: &str) -> Option<Runner> {
        Some(Runner::Resource(self.0.clone()))
    }

    fn makers(&self) -> Vec<Arc<dyn Plugin>> {
        vec![self.0.clone()]
    }
}

impl Plugins for PodPlugin {
    fn resolve(&self, task_type: &str) -> Option<Runner> {
        Some(Runner::Resource(if task_type == KEPT {
            Arc::new(KeptPod)
        } else {
            Arc::new(Self)
        }))
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

impl Plugin for KeptPod {
    fn id(&self) -> &'static str {
        KEPT
    }

    fn task_types(&self) -> &'static [&'static str] {
        &[KEPT]
    }

    fn resource(&self) -> Resource {
        Resource::POD
    }

    fn properties(&self) -> PluginProperties {
        PluginProperties {
            disable_inject_owner_references: true,
            disable_inject_finalizer: true,
            disable_delete_resource_on_finalize: true,
            ..PluginProperties::default()
        }
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        PodPlugin.build(context)
    }

    fn phase(&self, context: &TaskContext, pod: &Value, now: Timestamp) -> PhaseInfo {
        PodPlugin.phase(context, pod, now)
    }

    fn on_abort(&self, _: &TaskContext, _: &Value) -> AbortBehavior {
        AbortBehavior::patch(json!({"metadata": {"annotations": {STOP: "true"}}}))
    }
}
