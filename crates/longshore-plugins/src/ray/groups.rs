//! The head and the workers of a Ray cluster.

use std::collections::BTreeMap;

use longshore_api::flyte;
use longshore_proto::flyteidl2::core::{ExtendedResources, K8sPod};
use serde_json::{Value, json};

use super::{HEAD, config::RayNode};
use crate::{
    config::Config,
    context::TaskContext,
    json::{Object, list, push},
    plugin::BuildError,
    pod::{self, Pod, scheduling},
    proto_json::to_json,
};

pub(super) const NO_USAGE_STATS: &str = "disable-usage-stats";
const NODE_IP_ADDRESS: &str = "node-ip-address";

/// The directory of Ray's logs.
const STATE_PATH: &str = "/tmp/ray";
const STATE_VOLUME: &str = "system-ray-state";

/// The container of the workers.
const WORKER: &str = "ray-worker";

/// What a user says of a group, whichever it is.
pub(super) struct Group<'a> {
    pub(super) is_head: bool,
    pub(super) start_parameters: &'a BTreeMap<String, String>,
    pub(super) pod: Option<&'a K8sPod>,
    pub(super) extended: Option<&'a ExtendedResources>,
}

impl Group<'_> {
    /// What the user says of a group, else what is configured, and what Ray needs.
    pub(super) fn start_parameters(&self, config: &Config) -> BTreeMap<String, String> {
        let config = &config.ray;
        let node: &RayNode = if self.is_head {
            &config.head
        } else {
            &config.worker
        };
        let mut parameters = match self.start_parameters {
            none if none.is_empty() => node.start_parameters.clone(),
            own => own.clone(),
        };
        let mut default = |name: &str, value: String| {
            parameters.entry(name.to_owned()).or_insert(value);
        };
        if self.is_head {
            default("include-dashboard", config.include_dashboard.to_string());
            default("dashboard-host", config.dashboard_host.clone());
        }
        default(NODE_IP_ADDRESS, node.ip_address.clone());
        if !config.enable_usage_stats {
            default(NO_USAGE_STATS, "true".to_owned());
        }
        parameters
    }

    /// The template of the group's pods.
    pub(super) fn template(
        &self,
        context: &TaskContext,
        config: &Config,
    ) -> Result<Value, BuildError> {
        let context = &self.own_context(context);
        let mut pod = Pod::for_operator(context, &config.k8s)?;
        let container = if self.is_head {
            let container = pod.renamed_primary(HEAD)?;
            extend_env(container, head_env());
            container
        } else {
            let container = pod.renamed_primary(WORKER)?;
            extend_env(container, worker_env());
            let stop = json!({"exec": {"command": ["/bin/sh", "-c", "ray stop"]}});
            container.insert("lifecycle".into(), json!({"preStop": stop}));
            container
        };
        // The cluster's nodes wait; what the task does is the entrypoint of the job.
        container.remove("args");
        for (name, port) in [("redis", 6379), ("head", 10001), ("dashboard", 8265)] {
            push(
                container,
                "ports",
                json!({"name": name, "containerPort": port}),
            );
        }
        if let Some(sidecar) = config.ray.logs_sidecar.as_ref().filter(|_| self.is_head) {
            add_logs_sidecar(&mut pod, sidecar)?;
        }
        let account = context.service_account.as_ref();
        let account = account.unwrap_or(&config.ray.service_account);
        self.lay_own_pod_over(&mut pod, context, config);
        pod.spec.insert("serviceAccountName".into(), json!(account));
        let mut template = pod.into_template(context, &config.k8s);
        if let Some(metadata) = self.pod.and_then(|pod| pod.metadata.as_ref()) {
            let over = json!({"labels": metadata.labels, "annotations": metadata.annotations});
            pod::merge(&mut template["metadata"], &over);
            // Without this label, the controller's watch would not show the pod.
            template["metadata"]["labels"][flyte::LABEL_MANAGED] = json!(flyte::TRUE);
        }
        Ok(template)
    }

    /// A group may want other devices or memory than the task.
    fn own_context(&self, context: &TaskContext) -> TaskContext {
        let mut context = context.clone();
        if let Some(own) = self.extended {
            let extended = context.template.extended_resources.get_or_insert_default();
            if own.gpu_accelerator.is_some() {
                extended.gpu_accelerator.clone_from(&own.gpu_accelerator);
            }
            if own.shared_memory.is_some() {
                extended.shared_memory.clone_from(&own.shared_memory);
            }
        }
        context
    }

    fn lay_own_pod_over(&self, pod: &mut Pod, context: &TaskContext, config: &Config) {
        let k8s = &config.k8s;
        if let Some(own) = self.pod.and_then(|pod| pod.pod_spec.as_ref()) {
            pod::overlay(&mut pod.spec, &to_json(own));
        }
        let extended = context.template.extended_resources.as_ref();
        if let Some(accelerator) = extended.and_then(|extended| extended.gpu_accelerator.as_ref()) {
            scheduling::add_accelerator(&mut pod.spec, accelerator, &k8s.accelerators);
        }
        scheduling::tolerate_extended_resources(&mut pod.spec, k8s);
        scheduling::insist(&mut pod.spec, context.is_interruptible, &k8s.scheduling);
    }
}

fn extend_env(container: &mut Object, variables: Vec<Value>) {
    if let Some(env) = list(container, "env") {
        env.extend(variables);
    }
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn of_pod(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Logs are read by programs.
fn quiet() -> [Value; 2] {
    [
        variable("RAY_COLOR_PREFIX", "0"),
        variable("RAY_DATA_DISABLE_PROGRESS_BARS", "1"),
    ]
}

fn head_env() -> Vec<Value> {
    let mut env = vec![of_pod("MY_POD_IP", "status.podIP")];
    env.extend(quiet());
    env
}

fn worker_env() -> Vec<Value> {
    let of_container = |name: &str, resource: &str| {
        let reference = json!({"containerName": WORKER, "resource": resource});
        json!({"name": name, "valueFrom": {"resourceFieldRef": reference}})
    };
    let mut env = vec![
        variable("RAY_DISABLE_DOCKER_CPU_WARNING", "1"),
        variable("TYPE", "worker"),
        of_container("CPU_REQUEST", "requests.cpu"),
        of_container("CPU_LIMITS", "limits.cpu"),
        // Upstream sets the next two from the CPU resources; here they are the memory.
        of_container("MEMORY_REQUESTS", "requests.memory"),
        of_container("MEMORY_LIMITS", "limits.memory"),
        of_pod("MY_POD_NAME", "metadata.name"),
        of_pod("MY_POD_IP", "status.podIP"),
    ];
    env.extend(quiet());
    env
}

/// A container that reads what the head logs: both mount the directory, the sidecar cannot write there.
fn add_logs_sidecar(pod: &mut Pod, sidecar: &Value) -> Result<(), BuildError> {
    let head = pod.primary()?;
    let mounts = head.get("volumeMounts").and_then(Value::as_array);
    let found = mounts
        .into_iter()
        .flatten()
        .find(|mount| mount["mountPath"] == STATE_PATH);
    let mut mount = match found {
        Some(mount) => mount.clone(),
        None => {
            let mount = json!({"name": STATE_VOLUME, "mountPath": STATE_PATH});
            push(head, "volumeMounts", mount.clone());
            push(
                &mut pod.spec,
                "volumes",
                json!({"name": STATE_VOLUME, "emptyDir": {}}),
            );
            mount
        }
    };
    mount["readOnly"] = json!(true);
    let mut sidecar = sidecar.clone();
    if let Some(sidecar) = sidecar.as_object_mut()
        && let Some(mounts) = list(sidecar, "volumeMounts")
    {
        mounts.retain(|own| own["mountPath"] != STATE_PATH);
        mounts.push(mount);
    }
    push(&mut pod.spec, "containers", sidecar);
    Ok(())
}
