//! A Ray job as a RayJob.

use base64::{Engine, engine::general_purpose::STANDARD};
use longshore_proto::flyteidl2::plugins::{
    AutoscalerOptions, HeadGroupSpec, RayCluster, RayJob, WorkerGroupSpec,
    autoscaler_options::UpscalingMode,
};
use serde_json::{Value, json};

use super::{RESOURCE, config::SubmissionMode, groups::Group};
use crate::{
    config::Config,
    context::TaskContext,
    custom,
    metadata::union,
    plugin::BuildError,
    pod::{Pod, resources},
};

/// The RayJob.
pub(super) fn of(context: &TaskContext, config: &Config) -> Result<Value, BuildError> {
    let job: RayJob = custom::read(&context.template)?;
    let cluster = job.ray_cluster.clone().ok_or_else(|| {
        BuildError::bad_specification("expected rayCluster in the template's custom, found none")
    })?;
    let mut pod = Pod::for_operator(context, &config.k8s)?;
    let metadata = pod.metadata();
    let entrypoint = entrypoint(pod.primary()?.get("args"));
    let cluster = cluster_spec(&cluster, context, config)?;
    let ray = &config.ray;
    let (is_shut_down, ttl) = if job.shutdown_after_job_finishes {
        (true, job.ttl_seconds_after_finished)
    } else {
        (
            ray.shutdown_after_job_finishes,
            ray.ttl_seconds_after_finished,
        )
    };
    let mut spec = json!({
        "entrypoint": entrypoint,
        "shutdownAfterJobFinishes": is_shut_down,
        "ttlSecondsAfterFinished": ttl,
        "submissionMode": ray.submission_mode.name(),
    });
    let runtime_env = runtime_env(&job)?;
    if !runtime_env.is_empty() {
        spec["runtimeEnvYAML"] = json!(runtime_env);
    }
    if ray.submission_mode == SubmissionMode::Job {
        let image = &cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["image"];
        spec["submitterPodTemplate"] = submitter(image, context, config);
    }
    spec["rayClusterSpec"] = cluster;
    Ok(json!({
        "apiVersion": RESOURCE.api_version(),
        "kind": RESOURCE.kind,
        "metadata": metadata,
        "spec": spec,
    }))
}

/// The command line that the task would have run.
fn entrypoint(args: Option<&Value>) -> String {
    let args = args.and_then(Value::as_array).into_iter().flatten();
    args.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

fn cluster_spec(
    cluster: &RayCluster,
    context: &TaskContext,
    config: &Config,
) -> Result<Value, BuildError> {
    let none = HeadGroupSpec::default();
    let head = cluster.head_group_spec.as_ref().unwrap_or(&none);
    let head = Group {
        is_head: true,
        start_parameters: &head.ray_start_params,
        pod: head.k8s_pod.as_ref(),
        extended: head.extended_resources.as_ref(),
    };
    let workers: Result<Vec<Value>, BuildError> = cluster
        .worker_group_spec
        .iter()
        .map(|group| workers(group, context, config))
        .collect();
    let mut spec = json!({
        "headGroupSpec": {
            "template": head.template(context, config)?,
            "serviceType": config.ray.service_type,
            "enableIngress": true,
            "rayStartParams": head.start_parameters(config),
        },
        "workerGroupSpecs": workers?,
        "enableInTreeAutoscaling": cluster.enable_autoscaling,
    });
    if let Some(options) = &cluster.autoscaler_options {
        spec["autoscalerOptions"] = autoscaler(options)?;
    }
    Ok(spec)
}

/// The number of replicas is between its bounds, whatever these are.
fn workers(
    group: &WorkerGroupSpec,
    context: &TaskContext,
    config: &Config,
) -> Result<Value, BuildError> {
    let workers = Group {
        is_head: false,
        start_parameters: &group.ray_start_params,
        pod: group.k8s_pod.as_ref(),
        extended: group.extended_resources.as_ref(),
    };
    Ok(json!({
        "groupName": group.group_name,
        "replicas": group.replicas,
        "minReplicas": group.min_replicas.min(group.replicas),
        "maxReplicas": group.max_replicas.max(group.replicas),
        "rayStartParams": workers.start_parameters(config),
        "template": workers.template(context, config)?,
    }))
}

fn autoscaler(options: &AutoscalerOptions) -> Result<Value, BuildError> {
    let mut built = json!({});
    if options.idle_timeout_seconds > 0 {
        built["idleTimeoutSeconds"] = json!(options.idle_timeout_seconds);
    }
    let mode = match options.upscaling_mode() {
        UpscalingMode::Unspecified => None,
        UpscalingMode::Default => Some("Default"),
        UpscalingMode::Aggressive => Some("Aggressive"),
        UpscalingMode::Conservative => Some("Conservative"),
    };
    if let Some(mode) = mode {
        built["upscalingMode"] = json!(mode);
    }
    if !options.image.is_empty() {
        built["image"] = json!(options.image);
    }
    if let Some(resources) = &options.resources {
        built["resources"] = resources::of_template(Some(resources))?;
    }
    if !options.env.is_empty() {
        let pairs = options.env.iter();
        let env: Vec<Value> = pairs
            .map(|pair| json!({"name": pair.key, "value": pair.value}))
            .collect();
        built["env"] = env.into();
    }
    Ok(built)
}

/// The older of the two fields is JSON in base 64, which is YAML too.
fn runtime_env(job: &RayJob) -> Result<String, BuildError> {
    #[expect(deprecated, reason = "older SDKs write it")]
    let older = &job.runtime_env;
    if !job.runtime_env_yaml.is_empty() || older.is_empty() {
        return Ok(job.runtime_env_yaml.clone());
    }
    let bytes = STANDARD.decode(older).ok();
    let json = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    json.map(|json| json.to_string()).ok_or_else(|| {
        BuildError::bad_specification(format!(
            "expected JSON in base 64 in runtimeEnv, found {older:?}"
        ))
    })
}

/// The pod that submits the job: as small as KubeRay's own, with the head's image, where the configuration puts pods.
fn submitter(image: &Value, context: &TaskContext, config: &Config) -> Value {
    let k8s = &config.k8s;
    let mut spec = json!({
        "containers": [{
            "name": "ray-job-submitter",
            "image": image,
            "resources": {
                "requests": {"cpu": "500m", "memory": "200Mi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            },
        }],
        "restartPolicy": "Never",
        "enableServiceLinks": false,
        "tolerations": k8s.scheduling.default_tolerations,
    });
    if let Some(affinity) = &k8s.scheduling.default_affinity {
        spec["affinity"] = affinity.clone();
    }
    json!({
        "metadata": {
            "labels": union(&k8s.default_labels, None, &context.labels),
            "annotations": union(&k8s.default_annotations, None, &context.annotations),
        },
        "spec": spec,
    })
}
