//! The ConfigMaps of a cluster (spec 13.1, 13.3; upstream: `FlinkConfMountDecorator`, `PodTemplateMountDecorator`).

use serde_json::{Map, Value, json};

use super::{Cluster, FlinkConfig, FlinkVersion, ResourceError, options};
use crate::conf::format;

/// Key of the TaskManagers' pod template. The JobManager reads a file of this name.
pub(super) const TEMPLATE_FILE: &str = "taskmanager-pod-template.yaml";
/// Key of Log4j's configuration.
const LOG4J_FILE: &str = "log4j-console.properties";
/// Key of Logback's configuration.
const LOGBACK_FILE: &str = "logback-console.xml";

/// Configuration of logging: contents of the files that Flink reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFiles {
    /// Content of `log4j-console.properties`.
    pub log4j: Option<String>,
    /// Content of `logback-console.xml`.
    pub logback: Option<String>,
}

impl LogFiles {
    /// The files that there are, in the order in which they are mounted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let files = [(LOGBACK_FILE, &self.logback), (LOG4J_FILE, &self.log4j)];
        files
            .into_iter()
            .filter_map(|(name, content)| Some((name, content.as_deref()?)))
    }
}

/// Flink's configuration file.
pub(super) struct ConfigFile {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) cut: Vec<String>,
}

/// Writes Flink's configuration file, in the format of its version.
pub(super) fn config_file(
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
) -> Result<ConfigFile, ResourceError> {
    let mut config = config.clone();
    config.retain(|key| !options::CLIENT_ONLY.contains(&key));
    if cluster.version >= FlinkVersion::V2_0 {
        return Ok(ConfigFile {
            name: format::STANDARD_FILE,
            text: format::write_standard(&config)?,
            cut: Vec::new(),
        });
    }
    let flat = format::write_flat(&config);
    Ok(ConfigFile {
        name: format::FLAT_FILE,
        text: flat.text,
        cut: flat.cut,
    })
}

/// The ConfigMap of Flink's configuration.
pub(super) fn flink_config(cluster: &Cluster<'_>, file: &ConfigFile) -> Value {
    let logs = cluster.logs.iter();
    let data = logs
        .chain([(file.name, file.text.as_str())])
        .map(|(name, content)| (name.to_owned(), json!(content)))
        .collect();
    config_map(cluster, &config_name(cluster), data)
}

/// The ConfigMap of the TaskManagers' pod template, where there is one. JSON is YAML, and has one meaning in all of its
/// versions.
pub(super) fn pod_template(cluster: &Cluster<'_>) -> Option<Value> {
    let template = cluster.task_manager_template?;
    let data = Map::from_iter([(TEMPLATE_FILE.to_owned(), json!(format!("{template:#}\n")))]);
    Some(config_map(cluster, &template_name(cluster), data))
}

/// Name of the ConfigMap of Flink's configuration.
pub(super) fn config_name(cluster: &Cluster<'_>) -> String {
    format!("flink-config-{}", cluster.id)
}

/// Name of the ConfigMap of the TaskManagers' pod template.
pub(super) fn template_name(cluster: &Cluster<'_>) -> String {
    format!("pod-template-{}", cluster.id)
}

fn config_map(cluster: &Cluster<'_>, name: &str, data: Map<String, Value>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": cluster.common_labels(),
        },
        "data": data,
    })
}
