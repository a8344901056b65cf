//! A Dask job as a DaskJob.

use longshore_k8s::Quantity;
use longshore_proto::flyteidl2::{
    core::{Resources, TaskLog, task_log::LinkType},
    plugins::{DaskJob, DaskScheduler, DaskWorkerGroup},
};
use serde_json::{Value, json};

use super::{JOB_RUNNER, RESOURCE};
use crate::{
    config::Config,
    context::TaskContext,
    custom,
    json::Object,
    links::Variables,
    metadata::union,
    plugin::BuildError,
    pod::{Pod, resources},
};

/// The DaskJob of this name.
pub(super) fn of(context: &TaskContext, config: &Config, name: &str) -> Result<Value, BuildError> {
    let job: DaskJob = custom::read(&context.template)?;
    // Without the scheduler or the job, everything is lost.
    let steady = TaskContext {
        is_interruptible: false,
        ..context.clone()
    };
    let mut pod = Pod::for_operator(&steady, &config.k8s)?;
    let none = Default::default();
    let metadata = json!({
        "labels": union(&none, Some(json!(pod.labels)), &context.labels),
        "annotations": union(&none, Some(json!(pod.annotations)), &context.annotations),
    });
    let scheduler = scheduler(
        pod.clone(),
        job.scheduler.unwrap_or_default(),
        context,
        config,
    )?;
    let workers = job.workers.unwrap_or_default();
    pod.renamed_primary(JOB_RUNNER)?;
    pod.spec.insert("restartPolicy".into(), json!("Never"));
    Ok(json!({
        "apiVersion": RESOURCE.api_version(),
        "kind": RESOURCE.kind,
        "metadata": metadata,
        "spec": {
            "job": {"spec": pod.spec},
            "cluster": {
                "metadata": metadata,
                "spec": {
                    "worker": {
                        "replicas": workers.number_of_workers,
                        "spec": worker(&workers, context, config)?,
                    },
                    "scheduler": {"spec": scheduler, "service": service(name)},
                },
            },
        },
    }))
}

fn worker(
    workers: &DaskWorkerGroup,
    context: &TaskContext,
    config: &Config,
) -> Result<Object, BuildError> {
    let mut pod = Pod::for_operator(context, &config.k8s)?;
    let container = pod.renamed_primary("dask-worker")?;
    change(
        container,
        &workers.image,
        workers.resources.as_ref(),
        context,
        config,
    )?;
    let mut args = vec!["dask", "worker", "--name", "$(DASK_WORKER_NAME)"];
    let limits = container["resources"]["limits"].clone();
    let cores = limits["cpu"].as_str().map(whole_cores);
    if let Some(cores) = &cores {
        args.extend(["--nthreads", cores]);
    }
    if let Some(memory) = limits["memory"].as_str() {
        args.extend(["--memory-limit", memory]);
    }
    container.insert("args".into(), json!(args));
    pod.spec.insert("restartPolicy".into(), json!("Always"));
    Ok(pod.spec)
}

/// As many as are needed for the amount: `1500m` are 2.
fn whole_cores(amount: &str) -> String {
    let cores = Quantity::parse(amount).map(Quantity::rounded_up);
    cores.map_or_else(|| amount.to_owned(), |cores| cores.to_string())
}

fn scheduler(
    mut pod: Pod,
    scheduler: DaskScheduler,
    context: &TaskContext,
    config: &Config,
) -> Result<Object, BuildError> {
    let container = pod.renamed_primary("scheduler")?;
    change(
        container,
        &scheduler.image,
        scheduler.resources.as_ref(),
        context,
        config,
    )?;
    let mut args = vec!["dask".to_owned(), "scheduler".to_owned()];
    if let Some(prefix) = dashboard_prefix(context, config) {
        args.extend(["--dashboard-prefix".to_owned(), prefix]);
    }
    container.insert("args".into(), json!(args));
    let port =
        |name: &str, port: u16| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let ports = json!([port("tcp-comm", 8786), port("dashboard", 8787)]);
    container.insert("ports".into(), ports);
    if !container.contains_key("readinessProbe") {
        let probe = json!({
            "httpGet": {"port": "dashboard"},
            "initialDelaySeconds": 5, "periodSeconds": 5, "failureThreshold": 30,
        });
        container.insert("readinessProbe".into(), probe);
    }
    pod.spec.insert("restartPolicy".into(), json!("Always"));
    Ok(pod.spec)
}

/// A role may have its own image, and its own resources instead of the task's.
fn change(
    container: &mut Object,
    image: &str,
    own: Option<&Resources>,
    context: &TaskContext,
    config: &Config,
) -> Result<(), BuildError> {
    if !image.is_empty() {
        container.insert("image".into(), json!(image));
    }
    let is_said = |own: &&Resources| !own.requests.is_empty() || !own.limits.is_empty();
    if let Some(own) = own.filter(is_said) {
        let extended = context.template.extended_resources.as_ref();
        let resources = resources::of_role(own, extended, &config.k8s)?;
        container.insert("resources".into(), resources);
    }
    Ok(())
}

/// Where the configured link to the dashboard leads: pages of the dashboard link to each other below it.
fn dashboard_prefix(context: &TaskContext, config: &Config) -> Option<String> {
    let variables = Variables::of_task(context);
    let links = config
        .dask
        .logs
        .links(&context.template, &variables, "", false);
    let is_dashboard = |link: &&TaskLog| link.link_type() == LinkType::Dashboard;
    let uri = &links.iter().find(is_dashboard)?.uri;
    let after_scheme = uri.split_once("://").map_or(uri.as_str(), |(_, rest)| rest);
    let path = &after_scheme[after_scheme.find('/')?..];
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_suffix("/status").unwrap_or(path);
    (!path.is_empty()).then(|| path.to_owned())
}

fn service(cluster: &str) -> Value {
    let port = |name: &str, port: u16| json!({"name": name, "protocol": "TCP", "port": port, "targetPort": name});
    json!({
        "type": "NodePort",
        "selector": {
            "dask.org/cluster-name": cluster,
            "dask.org/component": "scheduler",
        },
        "ports": [port("tcp-comm", 8786), port("dashboard", 8787)],
    })
}
