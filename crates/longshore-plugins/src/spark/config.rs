//! `plugins.spark`.

use std::collections::BTreeMap;

use crate::{
    config::{Section, read_logs},
    links::LogConfig,
};

/// How Spark jobs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparkConfig {
    /// `spark-config-default`: of all jobs; what a job says wins.
    pub default_conf: BTreeMap<String, String>,
    /// `spark-history-server-url`; `None` for no links to it.
    pub history_server: Option<String>,
    /// `features`: configuration that a job switches on with `spark.flyte.<name>.enabled`.
    pub features: Vec<Feature>,
    /// `logs`: the links to logs of Spark tasks.
    pub logs: SparkLogs,
    /// `enable-pod-template`: whether driver and executors get the whole pod, where the cluster's SparkApplications
    /// take them. Default: yes.
    pub enable_pod_template: bool,
}

/// Configuration by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// `name`: the name of the feature.
    pub name: String,
    /// `spark-config`.
    pub conf: BTreeMap<String, String>,
}

/// Links of several kinds of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparkLogs {
    /// `mixed`: of the driver, once it has a pod. Default: upstream's dashboard.
    pub mixed: LogConfig,
    /// `user`: of the driver. Default: none.
    pub user: LogConfig,
    /// `system`: of the application. Default: none.
    pub system: LogConfig,
    /// `all-user`: of driver and executors. Default: none.
    pub all_user: LogConfig,
}

impl Default for SparkConfig {
    fn default() -> Self {
        Self {
            default_conf: BTreeMap::new(),
            history_server: None,
            features: Vec::new(),
            logs: SparkLogs {
                mixed: LogConfig::default(),
                user: LogConfig::NONE,
                system: LogConfig::NONE,
                all_user: LogConfig::NONE,
            },
            enable_pod_template: true,
        }
    }
}

impl SparkConfig {
    pub(crate) fn read(&mut self, section: &mut Section<'_>) {
        section.map("spark-config-default", &mut self.default_conf);
        section.option("spark-history-server-url", &mut self.history_server);
        section.list("features", |section| {
            let mut feature = Feature::default();
            section.text("name", &mut feature.name);
            section.map("spark-config", &mut feature.conf);
            self.features.push(feature);
        });
        section.section("logs", |section| {
            let logs = &mut self.logs;
            section.section("mixed", |section| read_logs(section, &mut logs.mixed));
            section.section("user", |section| read_logs(section, &mut logs.user));
            section.section("system", |section| read_logs(section, &mut logs.system));
            section.section("all-user", |section| read_logs(section, &mut logs.all_user));
        });
        section.flag("enable-pod-template", &mut self.enable_pod_template);
        section.unsupported(
            "pod-template-detection-timeout",
            "the resource definition is watched",
        );
    }
}
