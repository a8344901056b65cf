//! The JobManager's pod: its template, and what each of Flink's decorators adds, in their order (spec 13.2).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Cluster, ClusterKind, FlinkConfig, InvalidOption, MAIN_CONTAINER, ResourceError, client,
    config_maps, options,
    template::{PodParts, append, merge_texts},
};
use crate::{
    conf::{Defaulted, FromConf, InvalidValue, Key, value::write_double},
    memory::JobManagerMemory,
};

const ARTIFACTS_VOLUME: &str = "user-artifacts-volume";
const CONFIG_VOLUME: &str = "flink-config-volume";
const TEMPLATE_VOLUME: &str = "pod-template-volume";
const TEMPLATE_DIR: &str = "/opt/flink/pod-template";
const HADOOP_VOLUME: &str = "hadoop-config-volume";
const HADOOP_DIR: &str = "/opt/hadoop/conf";
const HADOOP_CONFIG_MAP: Key<String> = Key::new("kubernetes.hadoop.conf.config-map.name");
const SCRIPT: &str = "kubernetes-jobmanager.sh";

/// The pod template of the JobManager's Deployment.
pub(super) fn job_manager(
    cluster: &Cluster<'_>,
    kind: ClusterKind,
    config: &FlinkConfig,
    config_file: &str,
) -> Result<Value, ResourceError> {
    let mut pod = PodParts::of(cluster.job_manager_template)?;
    init_pod(&mut pod, cluster, config)?;
    init_container(&mut pod, cluster, config)?;
    add_secret_env(&mut pod, config)?;
    mount_secrets(&mut pod, config)?;
    set_command(&mut pod, kind, config)?;
    mount_hadoop(&mut pod, config)?;
    mount_config(&mut pod, cluster, config, config_file)?;
    if cluster.task_manager_template.is_some() {
        let file = config_maps::TEMPLATE_FILE;
        let source = json!({
            "name": config_maps::template_name(cluster),
            "items": [{"key": file, "path": file}],
        });
        pod.mount(
            json!({"name": TEMPLATE_VOLUME, "configMap": source}),
            TEMPLATE_DIR,
        )?;
    }
    pod.finish()
}

/// Labels of the Deployment and of its pods: the configured ones, under those that pods are found by.
pub(super) fn labels(
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
) -> Result<Map<String, Value>, InvalidOption> {
    let configured = config.map(&options::JOB_MANAGER_LABELS)?;
    let mut labels: Map<String, Value> = configured
        .into_iter()
        .map(|(key, value)| (key, json!(value)))
        .collect();
    labels.extend(cluster.job_manager_selector());
    Ok(labels)
}

/// Decorator 1: account, network, scheduling.
fn init_pod(
    pod: &mut PodParts,
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
) -> Result<(), ResourceError> {
    let from_template = pod
        .text("serviceAccountName")
        .or_else(|| pod.text("serviceAccount"));
    let account = explicit_or(config, &options::JOB_MANAGER_SERVICE_ACCOUNT, from_template)?;
    pod.spec.insert("serviceAccount".to_owned(), json!(account));
    pod.spec
        .insert("serviceAccountName".to_owned(), json!(account));

    let is_host_network = config.get(&options::HOST_NETWORK)?;
    // The Deployment owns both decisions; it accepts no restart policy but its own.
    pod.spec.remove("hostNetwork");
    pod.spec.remove("restartPolicy");
    if is_host_network {
        pod.spec.insert("hostNetwork".to_owned(), json!(true));
    }
    if pod.text("dnsPolicy").is_none() {
        let policy = if is_host_network {
            "ClusterFirstWithHostNet"
        } else {
            "ClusterFirst"
        };
        pod.spec.insert("dnsPolicy".to_owned(), json!(policy));
    }

    let annotations = config.map(&options::JOB_MANAGER_ANNOTATIONS)?;
    let annotations = annotations
        .into_iter()
        .map(|(key, value)| (key, json!(value)));
    merge_texts(&mut pod.metadata, "labels", labels(cluster, config)?)?;
    merge_texts(&mut pod.metadata, "annotations", annotations)?;

    append(
        &mut pod.spec,
        "volumes",
        [json!({"name": ARTIFACTS_VOLUME, "emptyDir": {}})],
    )?;
    let secrets = config.get(&options::IMAGE_PULL_SECRETS)?;
    let secrets = secrets.iter().filter(|name| !name.trim().is_empty());
    append(
        &mut pod.spec,
        "imagePullSecrets",
        secrets.map(|name| json!({"name": name.trim()})),
    )?;
    let selector = config.map(&options::JOB_MANAGER_NODE_SELECTOR)?;
    let selector = selector.into_iter().map(|(key, value)| (key, json!(value)));
    merge_texts(&mut pod.spec, "nodeSelector", selector)?;
    let tolerations = config.get(&options::JOB_MANAGER_TOLERATIONS)?;
    let tolerations: Vec<Value> = tolerations
        .iter()
        .map(toleration)
        .collect::<Result<_, _>>()?;
    append(&mut pod.spec, "tolerations", tolerations)
}

fn toleration(fields: &BTreeMap<String, String>) -> Result<Value, InvalidOption> {
    let invalid = |why| InvalidOption {
        key: options::JOB_MANAGER_TOLERATIONS.key.name.to_owned(),
        why,
    };
    let mut toleration = Map::new();
    for (name, text) in fields {
        let value = match name.as_str() {
            "effect" | "key" | "operator" | "value" => json!(text),
            "tolerationSeconds" => json!(i32::from_conf(text).map_err(invalid)?),
            _ => {
                let expected = "effect, key, operator, tolerationSeconds or value";
                return Err(invalid(InvalidValue::new(expected, name)));
            }
        };
        toleration.insert(name.clone(), value);
    }
    Ok(Value::Object(toleration))
}

/// Decorator 2: the main container.
fn init_container(
    pod: &mut PodParts,
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
) -> Result<(), ResourceError> {
    let text = |pod: &PodParts, key: &str| Some(pod.main.get(key)?.as_str()?.to_owned());
    let image = match (config.find(&options::IMAGE)?, text(pod, "image")) {
        (Some(configured), _) => configured,
        (None, Some(from_template)) => from_template,
        (None, None) => default_image(cluster),
    };
    let policy = explicit_or(
        config,
        &options::IMAGE_PULL_POLICY,
        text(pod, "imagePullPolicy"),
    )?;
    pod.main.insert("name".to_owned(), json!(MAIN_CONTAINER));
    pod.main.insert("image".to_owned(), json!(image));
    pod.main.insert("imagePullPolicy".to_owned(), json!(policy));
    set_resources(pod, config)?;
    if !config.get(&options::HOST_NETWORK)? {
        let port = |name: &str, port: i32| json!({"name": name, "containerPort": port});
        let ports = [
            port("rest", client::port(config, &options::REST_BIND_PORT)?),
            port("jobmanager-rpc", config.get(&options::JOB_MANAGER_PORT)?),
            port("blobserver", client::port(config, &options::BLOB_PORT)?),
        ];
        append(&mut pod.main, "ports", ports)?;
    }
    let configured = config
        .below(options::JOB_MANAGER_ENV_PREFIX)
        .map(|(name, value)| json!({"name": name, "value": value}));
    append(&mut pod.main, "env", configured)?;
    let address = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}});
    append(
        &mut pod.main,
        "env",
        [json!({"name": "_POD_IP_ADDRESS", "valueFrom": address})],
    )?;
    if let Some(directory) = config.find(&options::LOG_DIR)? {
        append(
            &mut pod.main,
            "env",
            [json!({"name": "FLINK_LOG_DIR", "value": directory})],
        )?;
    }
    let artifacts = config.get(&options::ARTIFACTS_DIR)?;
    append(
        &mut pod.main,
        "volumeMounts",
        [json!({"name": ARTIFACTS_VOLUME, "mountPath": artifacts})],
    )
}

/// The image that Flink itself would take for this version.
fn default_image(cluster: &Cluster<'_>) -> String {
    let version = cluster.version.as_str().trim_start_matches('v');
    format!("apache/flink:{}-scala_2.12", version.replace('_', "."))
}

/// Requests and limits of memory and cores; the template's other resources stay.
fn set_resources(pod: &mut PodParts, config: &FlinkConfig) -> Result<(), ResourceError> {
    let mebibytes = JobManagerMemory::derive(config)?.process().mebibytes();
    let cores = config.get(&options::JOB_MANAGER_CPU)?;
    let memory_factor = limit_factor(config, &options::JOB_MANAGER_MEMORY_LIMIT)?;
    let cpu_factor = limit_factor(config, &options::JOB_MANAGER_CPU_LIMIT)?;
    // Upstream multiplies doubles and cuts the product to whole mebibytes.
    let memory_limit = (mebibytes as f64 * memory_factor) as u64;
    let quantities = |mebibytes: u64, cores: f64| {
        [
            ("memory".to_owned(), json!(format!("{mebibytes}Mi"))),
            ("cpu".to_owned(), json!(write_double(cores))),
        ]
    };
    let mut resources = pod.take_main_object("resources")?;
    merge_texts(&mut resources, "requests", quantities(mebibytes, cores))?;
    merge_texts(
        &mut resources,
        "limits",
        quantities(memory_limit, cores * cpu_factor),
    )?;
    pod.main
        .insert("resources".to_owned(), Value::Object(resources));
    Ok(())
}

fn limit_factor(config: &FlinkConfig, option: &Defaulted<f64>) -> Result<f64, ResourceError> {
    let factor = config.get(option)?;
    if factor >= 1.0 {
        Ok(factor)
    } else {
        let key = option.key.name;
        Err(ResourceError::LimitFactor { key, factor })
    }
}

/// Decorator 3: environment variables out of Secrets.
fn add_secret_env(pod: &mut PodParts, config: &FlinkConfig) -> Result<(), ResourceError> {
    let entries = config.get(&options::SECRET_ENV)?;
    let variables: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let field = |name: &'static str| {
                entry.get(name).ok_or_else(|| InvalidOption {
                    key: options::SECRET_ENV.key.name.to_owned(),
                    why: InvalidValue::new("entries with env, secret and key", name),
                })
            };
            let reference = json!({"name": field("secret")?, "key": field("key")?});
            Ok(json!({"name": field("env")?, "valueFrom": {"secretKeyRef": reference}}))
        })
        .collect::<Result<_, InvalidOption>>()?;
    append(&mut pod.main, "env", variables)
}

/// Decorator 4: mounted Secrets.
fn mount_secrets(pod: &mut PodParts, config: &FlinkConfig) -> Result<(), ResourceError> {
    for (secret, path) in config.map(&options::SECRETS)? {
        let name = format!("{secret}-volume");
        pod.mount(
            json!({"name": name, "secret": {"secretName": secret}}),
            &path,
        )?;
    }
    Ok(())
}

/// Decorator 5: the command.
fn set_command(
    pod: &mut PodParts,
    kind: ClusterKind,
    config: &FlinkConfig,
) -> Result<(), ResourceError> {
    let entry = config.get(&options::ENTRY_PATH)?;
    let args = config.get(&options::JOB_MANAGER_ARGS)?;
    // A blank follows the target also where there are no arguments.
    let script = format!("{SCRIPT} {} {args}", kind.target());
    pod.main.insert("command".to_owned(), json!([entry]));
    pod.main
        .insert("args".to_owned(), json!(["bash", "-c", script]));
    Ok(())
}

/// Decorator 6: a Hadoop configuration that is in a ConfigMap already.
fn mount_hadoop(pod: &mut PodParts, config: &FlinkConfig) -> Result<(), ResourceError> {
    let name = config.find(&HADOOP_CONFIG_MAP)?.unwrap_or_default();
    if name.trim().is_empty() || !config.get(&options::HADOOP_MOUNT)? {
        return Ok(());
    }
    pod.mount(
        json!({"name": HADOOP_VOLUME, "configMap": {"name": name.trim()}}),
        HADOOP_DIR,
    )?;
    append(
        &mut pod.main,
        "env",
        [json!({"name": "HADOOP_CONF_DIR", "value": HADOOP_DIR})],
    )
}

/// Decorator 7: the configuration.
fn mount_config(
    pod: &mut PodParts,
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
    config_file: &str,
) -> Result<(), ResourceError> {
    let files = cluster.logs.iter().map(|(name, _)| name);
    let items: Vec<Value> = files
        .chain([config_file])
        .map(|name| json!({"key": name, "path": name}))
        .collect();
    let source = json!({"name": config_maps::config_name(cluster), "items": items});
    let directory = config.get(&options::CONF_DIR)?;
    pod.mount(
        json!({"name": CONFIG_VOLUME, "configMap": source}),
        &directory,
    )
}

/// What is configured; else what the template has; else the default (upstream: `resolveUserDefinedValue`).
fn explicit_or(
    config: &FlinkConfig,
    option: &Defaulted<String>,
    from_template: Option<String>,
) -> Result<String, InvalidOption> {
    match from_template {
        Some(text) if !config.contains(&option.key) => Ok(text),
        Some(_) | None => config.get(option),
    }
}
