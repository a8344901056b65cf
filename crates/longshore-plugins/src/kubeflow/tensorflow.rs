//! Distributed TensorFlow: workers, and whichever of chief, parameter servers and evaluator the task wants.

use longshore_proto::flyteidl2::plugins::{self, kubeflow};
use serde_json::{Value, json};

use super::{
    Job, TENSORFLOW,
    replica::{self, Role, WORKER, role},
};
use crate::{config::Config, context::TaskContext, custom, plugin::BuildError};

/// The job.
pub(super) fn build(context: &TaskContext, config: &Config) -> Result<Job, BuildError> {
    let (roles, run_policy) = match context.template.task_type_version {
        0 => {
            let task: plugins::DistributedTensorflowTrainingTask = custom::read(&context.template)?;
            let roles = [
                ("Chief", Role::plain(task.chief_replicas)),
                (WORKER, Role::plain(task.workers)),
                ("PS", Role::plain(task.ps_replicas)),
                ("Evaluator", Role::plain(task.evaluator_replicas)),
            ];
            (roles, json!({}))
        }
        1 => {
            let task: kubeflow::DistributedTensorflowTrainingTask =
                custom::read(&context.template)?;
            let roles = [
                ("Chief", role!(task.chief_replicas)),
                (WORKER, role!(task.worker_replicas)),
                ("PS", role!(task.ps_replicas)),
                ("Evaluator", role!(task.evaluator_replicas)),
            ];
            (roles, replica::run_policy(task.run_policy.as_ref()))
        }
        _ => return Err(custom::unsupported_version(&context.template)),
    };
    let wanted = roles.into_iter().filter(|(_, role)| role.replicas > 0);
    let roles: Result<Vec<(&'static str, Value)>, BuildError> = wanted
        .map(|(name, role)| Ok((name, role.build(context, config, &TENSORFLOW)?)))
        .collect();
    Ok(Job {
        metadata: replica::metadata(context, config)?,
        roles: roles?,
        run_policy,
        more: Vec::new(),
    })
}
