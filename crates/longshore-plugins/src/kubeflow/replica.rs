//! The roles of a training job: how many pods of which kind.

use longshore_proto::flyteidl2::{
    core::Resources,
    plugins::{
        CommonReplicaSpec, RestartPolicy,
        kubeflow::{CleanPodPolicy, RunPolicy},
    },
};
use serde_json::{Value, json};

use super::Kind;
use crate::{config::Config, context::TaskContext, plugin::BuildError, pod::Pod};

/// The role that every job has.
pub(super) const WORKER: &str = "Worker";

/// What a task says of a role. Nothing at all is the task's own pod, none of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Role {
    pub(super) replicas: i32,
    pub(super) image: String,
    pub(super) resources: Option<Resources>,
    pub(super) restart_policy: RestartPolicy,
    /// Instead of the task's arguments.
    pub(super) command: Vec<String>,
}

/// The fields that all roles have: in a message of their own, or, written by older SDKs, beside it.
macro_rules! role {
    ($spec:expr) => {{
        #[expect(deprecated, reason = "older SDKs write these fields")]
        let role = $spec.as_ref().map(|spec| match &spec.common {
            Some(common) => $crate::kubeflow::replica::Role::of_common(common),
            None => $crate::kubeflow::replica::Role::of_fields(
                spec.replicas,
                &spec.image,
                spec.resources.as_ref(),
                spec.restart_policy(),
            ),
        });
        role.unwrap_or_default()
    }};
}
pub(super) use role;

impl Role {
    pub(super) fn of_common(common: &CommonReplicaSpec) -> Self {
        let policy = common.restart_policy();
        Self::of_fields(
            common.replicas,
            &common.image,
            common.resources.as_ref(),
            policy,
        )
    }

    pub(super) fn of_fields(
        replicas: i32,
        image: &str,
        resources: Option<&Resources>,
        restart_policy: RestartPolicy,
    ) -> Self {
        Self {
            replicas,
            image: image.to_owned(),
            resources: resources.cloned(),
            restart_policy,
            command: Vec::new(),
        }
    }

    /// This number of replicas of the task's own pod.
    pub(super) fn plain(replicas: i32) -> Self {
        Self {
            replicas,
            ..Self::default()
        }
    }

    /// Builds the replica specification in the form that the job has.
    pub(super) fn build(
        &self,
        context: &TaskContext,
        config: &Config,
        kind: &Kind,
    ) -> Result<Value, BuildError> {
        let mut pod = Pod::for_role(context, &config.k8s, self.resources.as_ref())?;
        let container = pod.renamed_primary(kind.container)?;
        if !self.image.is_empty() {
            container.insert("image".into(), json!(self.image));
        }
        if !self.command.is_empty() {
            container.insert("args".into(), json!(self.command));
        }
        Ok(json!({
            "replicas": self.replicas,
            "restartPolicy": restart_policy(self.restart_policy),
            "template": pod.into_template(context, &config.k8s),
        }))
    }
}

/// Labels and annotations of the task's pod, for the job itself.
pub(super) fn metadata(context: &TaskContext, config: &Config) -> Result<Value, BuildError> {
    Ok(Pod::for_operator(context, &config.k8s)?.metadata())
}

fn restart_policy(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Never => "Never",
        RestartPolicy::OnFailure => "OnFailure",
        RestartPolicy::Always => "Always",
    }
}

/// The run policy of a job; an empty one leaves everything to the operator.
pub(super) fn run_policy(policy: Option<&RunPolicy>) -> Value {
    let Some(policy) = policy else {
        return json!({});
    };
    let clean = match policy.clean_pod_policy() {
        CleanPodPolicy::CleanpodPolicyNone => "None",
        CleanPodPolicy::CleanpodPolicyRunning => "Running",
        CleanPodPolicy::CleanpodPolicyAll => "All",
    };
    let mut built = json!({"cleanPodPolicy": clean});
    for (field, number) in [
        ("backoffLimit", policy.backoff_limit),
        ("activeDeadlineSeconds", policy.active_deadline_seconds),
        ("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished),
    ] {
        if number != 0 {
            built[field] = json!(number);
        }
    }
    built
}
