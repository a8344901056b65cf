//! What changed between the spec that was reconciled and the one that is wanted (spec 8).
//!
//! Upstream finds the class of each field by annotations; here they are one table in the code. A field that is not in it
//! does not count.

mod known;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use crate::{
    json::Json,
    spec::{
        DeploymentMode, FlinkConfiguration, FlinkDeploymentSpec, FlinkSessionJobSpec, JobSpec,
        Spec, TaskManagerSpec,
    },
};

/// What a change asks for. A greater one includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiffType {
    /// Nothing has to be deployed.
    Ignore,
    /// Another parallelism, in place where that is possible.
    Scale,
    /// An upgrade: the job stops and starts.
    Upgrade,
    /// The job starts again from `initialSavepointPath`.
    SavepointRedeploy,
}

impl DiffType {
    /// The type as Events write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "IGNORE",
            Self::Scale => "SCALE",
            Self::Upgrade => "UPGRADE",
            Self::SavepointRedeploy => "SAVEPOINT_REDEPLOY",
        }
    }
}

impl fmt::Display for DiffType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One field that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its path, as `job.parallelism`.
    pub field: String,
    /// What was reconciled.
    pub before: Json,
    /// What is wanted.
    pub after: Json,
    /// What this change asks for.
    pub kind: DiffType,
}

/// All fields that changed. Its display is upstream's text for Events; it is empty where nothing changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    class: &'static str,
    changes: Vec<Change>,
}

impl Diff {
    /// What the changes ask for together.
    pub fn kind(&self) -> DiffType {
        let kinds = self.changes.iter().map(|change| change.kind);
        kinds.max().unwrap_or(DiffType::Ignore)
    }

    /// The changes, in upstream's order of the fields.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether both specs are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::of(self))
    }
}

/// Compares two specs of FlinkDeployments. `mode` is that of the wanted one.
pub fn of_deployments(
    mode: DeploymentMode,
    before: &FlinkDeploymentSpec,
    after: &FlinkDeploymentSpec,
) -> Diff {
    let mut it = Comparison::new(mode);
    let upgrade = DiffType::Upgrade;
    it.field("image", &before.image, &after.image, upgrade);
    it.field(
        "imagePullPolicy",
        &before.image_pull_policy,
        &after.image_pull_policy,
        upgrade,
    );
    it.field(
        "serviceAccount",
        &before.service_account,
        &after.service_account,
        upgrade,
    );
    it.field(
        "flinkVersion",
        &before.flink_version,
        &after.flink_version,
        upgrade,
    );
    it.field(
        "ingress",
        &before.ingress.as_ref().map(known::ingress),
        &after.ingress.as_ref().map(known::ingress),
        upgrade,
    );
    it.json(
        "podTemplate",
        known::template(before.pod_template.as_ref()),
        known::template(after.pod_template.as_ref()),
        upgrade,
    );
    it.field(
        "jobManager",
        &before.job_manager.as_ref().map(known::job_manager),
        &after.job_manager.as_ref().map(known::job_manager),
        upgrade,
    );
    match (&before.task_manager, &after.task_manager) {
        (Some(before), Some(after)) => it.task_manager(before, after),
        (before, after) => it.field("taskManager", before, after, upgrade),
    }
    it.field(
        "logConfiguration",
        &before.log_configuration,
        &after.log_configuration,
        upgrade,
    );
    it.field("mode", &before.mode, &after.mode, upgrade);
    it.common(before, after, before.restart_nonce, after.restart_nonce);
    it.finish(FlinkDeploymentSpec::CLASS)
}

/// Compares two specs of FlinkSessionJobs. `mode` is that of the session cluster.
pub fn of_session_jobs(
    mode: DeploymentMode,
    before: &FlinkSessionJobSpec,
    after: &FlinkSessionJobSpec,
) -> Diff {
    let mut it = Comparison::new(mode);
    let (one, two) = (&before.deployment_name, &after.deployment_name);
    it.field("deploymentName", one, two, DiffType::Upgrade);
    it.common(before, after, before.restart_nonce, after.restart_nonce);
    it.finish(FlinkSessionJobSpec::CLASS)
}

struct Comparison {
    mode: DeploymentMode,
    changes: Vec<Change>,
}

impl Comparison {
    fn new(mode: DeploymentMode) -> Self {
        Self {
            mode,
            changes: Vec::new(),
        }
    }

    fn finish(self, class: &'static str) -> Diff {
        Diff {
            class,
            changes: self.changes,
        }
    }

    fn field<T: Serialize + PartialEq>(
        &mut self,
        name: &str,
        before: &T,
        after: &T,
        kind: DiffType,
    ) {
        if before != after {
            self.push(name, to_json(before), to_json(after), kind);
        }
    }

    fn json(&mut self, name: &str, before: Json, after: Json, kind: DiffType) {
        if before != after {
            self.push(name, before, after, kind);
        }
    }

    fn push(&mut self, name: &str, before: Json, after: Json, kind: DiffType) {
        self.changes.push(Change {
            field: name.to_owned(),
            before,
            after,
            kind,
        });
    }

    /// A nonce that is removed triggers nothing.
    fn nonce(&mut self, name: &str, before: Option<i64>, after: Option<i64>, kind: DiffType) {
        if after.is_some() {
            self.field(name, &before, &after, kind);
        }
    }

    /// What the numbers of TaskManagers and of subtasks ask for: a cluster whose TaskManagers are a Deployment scales.
    fn scale_if_standalone(&self) -> DiffType {
        match self.mode {
            DeploymentMode::Standalone => DiffType::Scale,
            DeploymentMode::Native => DiffType::Upgrade,
        }
    }

    /// The fields that both kinds have; upstream compares them last.
    fn common<S: Spec>(
        &mut self,
        before: &S,
        after: &S,
        nonce_before: Option<i64>,
        nonce_after: Option<i64>,
    ) {
        match (before.job(), after.job()) {
            (Some(before), Some(after)) => self.job(before, after),
            (before, after) => self.field("job", &before, &after, DiffType::Upgrade),
        }
        self.nonce("restartNonce", nonce_before, nonce_after, DiffType::Upgrade);
        self.configuration(before.configuration(), after.configuration());
    }

    fn job(&mut self, before: &JobSpec, after: &JobSpec) {
        let (ignore, upgrade) = (DiffType::Ignore, DiffType::Upgrade);
        let scale = self.scale_if_standalone();
        self.field("job.jarURI", &before.jar_uri, &after.jar_uri, upgrade);
        self.field(
            "job.parallelism",
            &before.parallelism,
            &after.parallelism,
            scale,
        );
        self.field(
            "job.entryClass",
            &before.entry_class,
            &after.entry_class,
            upgrade,
        );
        self.field("job.args", &before.args, &after.args, upgrade);
        self.field("job.state", &before.state, &after.state, upgrade);
        let (one, two) = (
            before.savepoint_trigger_nonce,
            after.savepoint_trigger_nonce,
        );
        self.field("job.savepointTriggerNonce", &one, &two, ignore);
        let (one, two) = (
            &before.initial_savepoint_path,
            &after.initial_savepoint_path,
        );
        self.field("job.initialSavepointPath", one, two, ignore);
        let (one, two) = (
            before.checkpoint_trigger_nonce,
            after.checkpoint_trigger_nonce,
        );
        self.field("job.checkpointTriggerNonce", &one, &two, ignore);
        self.field(
            "job.upgradeMode",
            &before.upgrade_mode,
            &after.upgrade_mode,
            ignore,
        );
        let (one, two) = (
            before.allow_non_restored_state,
            after.allow_non_restored_state,
        );
        self.field("job.allowNonRestoredState", &one, &two, ignore);
        let (one, two) = (
            before.savepoint_redeploy_nonce,
            after.savepoint_redeploy_nonce,
        );
        self.nonce(
            "job.savepointRedeployNonce",
            one,
            two,
            DiffType::SavepointRedeploy,
        );
        let (one, two) = (before.autoscaler_reset_nonce, after.autoscaler_reset_nonce);
        self.field("job.autoscalerResetNonce", &one, &two, ignore);
    }

    fn task_manager(&mut self, before: &TaskManagerSpec, after: &TaskManagerSpec) {
        let upgrade = DiffType::Upgrade;
        let scale = self.scale_if_standalone();
        self.field(
            "taskManager.resource",
            &before.resource.as_ref().map(known::resource),
            &after.resource.as_ref().map(known::resource),
            upgrade,
        );
        self.field(
            "taskManager.resources",
            &before.resources.as_ref().map(known::requirements),
            &after.resources.as_ref().map(known::requirements),
            upgrade,
        );
        self.field(
            "taskManager.replicas",
            &before.replicas,
            &after.replicas,
            scale,
        );
        self.json(
            "taskManager.podTemplate",
            known::template(before.pod_template.as_ref()),
            known::template(after.pod_template.as_ref()),
            upgrade,
        );
    }

    fn configuration(
        &mut self,
        before: Option<&FlinkConfiguration>,
        after: Option<&FlinkConfiguration>,
    ) {
        let flat = |it: Option<&FlinkConfiguration>| it.map(FlinkConfiguration::flat);
        let (before, after) = (
            flat(before).unwrap_or_default(),
            flat(after).unwrap_or_default(),
        );
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let kind = self.kind_of_key(key);
            let name = format!("flinkConfiguration.{key}");
            self.field(&name, &before.get(key), &after.get(key), kind);
        }
    }

    /// What a key of the configuration asks for. The first prefix counts.
    fn kind_of_key(&self, key: &str) -> DiffType {
        const IGNORED: [&str; 3] = [
            "job.autoscaler",
            "parallelism.default",
            "kubernetes.operator",
        ];
        let is_ignored = IGNORED.iter().any(|prefix| key.starts_with(prefix));
        let is_override = key.starts_with("pipeline.jobvertex-parallelism-overrides");
        match self.mode {
            DeploymentMode::Native | DeploymentMode::Standalone if is_ignored => DiffType::Ignore,
            DeploymentMode::Native if is_override => DiffType::Scale,
            DeploymentMode::Native | DeploymentMode::Standalone => DiffType::Upgrade,
        }
    }
}

/// The value as upstream serialises it.
fn to_json<T: Serialize>(value: &T) -> Json {
    serde_json::from_str(&crate::jackson::to_text(value)).unwrap_or_default()
}
