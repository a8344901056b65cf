//! Distributed PyTorch: a master and workers, or workers alone that find each other.

use longshore_proto::flyteidl2::plugins::{self, kubeflow};
use serde_json::{Value, json};

use super::{
    Job, PYTORCH,
    replica::{self, Role, WORKER, role},
};
use crate::{config::Config, context::TaskContext, custom, plugin::BuildError};

/// The job.
pub(super) fn build(context: &TaskContext, config: &Config) -> Result<Job, BuildError> {
    let (master, workers, elastic, run_policy) = match context.template.task_type_version {
        0 => {
            let task: plugins::DistributedPyTorchTrainingTask = custom::read(&context.template)?;
            let workers = Role::plain(task.workers);
            (
                Role::default(),
                workers,
                task.elastic_config.map(elastic_v0),
                json!({}),
            )
        }
        1 => {
            let task: kubeflow::DistributedPyTorchTrainingTask = custom::read(&context.template)?;
            let policy = replica::run_policy(task.run_policy.as_ref());
            let elastic = task.elastic_config.map(elastic_v1);
            (
                role!(task.master_replicas),
                role!(task.worker_replicas),
                elastic,
                policy,
            )
        }
        _ => return Err(custom::unsupported_version(&context.template)),
    };
    let mut roles = vec![(WORKER, workers.build(context, config, &PYTORCH)?)];
    let mut more = Vec::new();
    match elastic {
        Some(elastic) => more.push(("elasticPolicy", elastic)),
        None => {
            let master = Role {
                replicas: 1,
                ..master
            };
            roles.push(("Master", master.build(context, config, &PYTORCH)?));
        }
    }
    Ok(Job {
        metadata: replica::metadata(context, config)?,
        roles,
        run_policy,
        more,
    })
}

fn elastic_v0(config: plugins::ElasticConfig) -> Value {
    elastic_v1(kubeflow::ElasticConfig {
        rdzv_backend: config.rdzv_backend,
        min_replicas: config.min_replicas,
        max_replicas: config.max_replicas,
        nproc_per_node: config.nproc_per_node,
        max_restarts: config.max_restarts,
    })
}

fn elastic_v1(config: kubeflow::ElasticConfig) -> Value {
    json!({
        "minReplicas": config.min_replicas,
        "maxReplicas": config.max_replicas,
        "rdzvBackend": config.rdzv_backend,
        "nProcPerNode": config.nproc_per_node,
        "maxRestarts": config.max_restarts,
    })
}
