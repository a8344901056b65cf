//! MPI: a launcher that runs the task, and workers that it reaches.

use longshore_proto::flyteidl2::plugins::{self, kubeflow};
use serde_json::json;

use super::{
    Job, MPI,
    replica::{self, Role, WORKER, role},
};
use crate::{config::Config, context::TaskContext, custom, plugin::BuildError};

/// Key of a template's config: what workers of the first version run.
const WORKER_COMMAND: &str = "worker_spec_command";

/// The job.
pub(super) fn build(context: &TaskContext, config: &Config) -> Result<Job, BuildError> {
    let template = &context.template;
    let (launcher, workers, slots, run_policy) = match template.task_type_version {
        0 => {
            let task: plugins::DistributedMpiTrainingTask = custom::read(template)?;
            let launcher = Role::plain(task.num_launcher_replicas.max(1));
            (
                launcher,
                Role::plain(task.num_workers),
                task.slots,
                json!({}),
            )
        }
        1 => {
            let task: kubeflow::DistributedMpiTrainingTask = custom::read(template)?;
            let command = |spec: &Option<kubeflow::DistributedMpiTrainingReplicaSpec>| {
                spec.as_ref()
                    .map(|spec| spec.command.clone())
                    .unwrap_or_default()
            };
            let launcher = Role {
                replicas: 1,
                command: command(&task.launcher_replicas),
                ..role!(task.launcher_replicas)
            };
            let workers = Role {
                command: command(&task.worker_replicas),
                ..role!(task.worker_replicas)
            };
            let policy = replica::run_policy(task.run_policy.as_ref());
            (launcher, workers, task.slots, policy)
        }
        _ => return Err(custom::unsupported_version(template)),
    };
    let mut worker = workers.build(context, config, &MPI)?;
    if template.task_type_version == 0 {
        let command = template.config.get(WORKER_COMMAND);
        let args: Vec<&str> = command
            .map(|command| command.split(' ').collect())
            .unwrap_or_default();
        let containers = worker["template"]["spec"]["containers"].as_array_mut();
        let of_task = containers
            .into_iter()
            .flatten()
            .find(|c| c["name"] == MPI.container);
        if let Some(container) = of_task.and_then(|container| container.as_object_mut()) {
            container.insert("args".into(), json!(args));
            container.remove("command");
        }
    }
    Ok(Job {
        metadata: json!({}),
        roles: vec![
            ("Launcher", launcher.build(context, config, &MPI)?),
            (WORKER, worker),
        ],
        run_policy,
        // Upstream forgets it in the second version.
        more: vec![("slotsPerWorker", json!(slots.max(1)))],
    })
}
