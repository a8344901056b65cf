//! `plugins.ray`.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::{
    config::{Section, read_link, read_logs},
    links::{LinkTemplate, LogConfig},
};

/// How Ray jobs run.
#[derive(Clone, Debug, PartialEq)]
pub struct RayConfig {
    /// `shutdownAfterJobFinishes`: whether the cluster goes with the job. Default: yes.
    pub shutdown_after_job_finishes: bool,
    /// `ttlSecondsAfterFinished`: how long it stays. Default: 3600.
    pub ttl_seconds_after_finished: i32,
    /// `serviceType` of the head. Default: `NodePort`.
    pub service_type: String,
    /// `submissionMode`. Default: `K8sJobMode`.
    pub submission_mode: SubmissionMode,
    /// `includeDashboard`. Default: yes.
    pub include_dashboard: bool,
    /// `dashboardHost`: the address at which it listens. Default: `0.0.0.0`.
    pub dashboard_host: String,
    /// `enableUsageStats`: whether Ray sends usage statistics to its makers. Default: no.
    pub enable_usage_stats: bool,
    /// `serviceAccount` of all pods whose task has none. Default: `default`.
    pub service_account: String,
    /// `defaults.headNode`.
    pub head: RayNode,
    /// `defaults.workerNode`.
    pub worker: RayNode,
    /// `logs`. Default: none.
    pub logs: LogConfig,
    /// `logsSidecar`: a container beside the head that reads its logs.
    pub logs_sidecar: Option<Value>,
    /// `dashboardURLTemplate`: the link to the dashboard.
    pub dashboard_link: Option<LinkTemplate>,
}

/// How a kind of node starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayNode {
    /// `startParameters`: of groups that have none. Default: no usage statistics.
    pub start_parameters: BTreeMap<String, String>,
    /// `ipAddress`. Default: the pod's.
    pub ip_address: String,
}

/// What submits the job to its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubmissionMode {
    /// A pod of its own.
    #[default]
    Job,
    /// The operator.
    Http,
    /// A container beside the head.
    Sidecar,
}

impl SubmissionMode {
    const ALL: [Self; 3] = [Self::Job, Self::Http, Self::Sidecar];

    /// The name of the mode in KubeRay.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Job => "K8sJobMode",
            Self::Http => "HTTPMode",
            Self::Sidecar => "SidecarMode",
        }
    }
}

impl fmt::Display for SubmissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for RayNode {
    fn default() -> Self {
        let no_statistics = (super::groups::NO_USAGE_STATS.to_owned(), "true".to_owned());
        Self {
            start_parameters: [no_statistics].into(),
            ip_address: "$MY_POD_IP".to_owned(),
        }
    }
}

impl Default for RayConfig {
    fn default() -> Self {
        Self {
            shutdown_after_job_finishes: true,
            ttl_seconds_after_finished: 3600,
            service_type: "NodePort".to_owned(),
            submission_mode: SubmissionMode::default(),
            include_dashboard: true,
            dashboard_host: "0.0.0.0".to_owned(),
            enable_usage_stats: false,
            service_account: "default".to_owned(),
            head: RayNode::default(),
            worker: RayNode::default(),
            logs: LogConfig::NONE,
            logs_sidecar: None,
            dashboard_link: None,
        }
    }
}

impl RayConfig {
    pub(crate) fn read(&mut self, section: &mut Section<'_>) {
        section.flag(
            "shutdownAfterJobFinishes",
            &mut self.shutdown_after_job_finishes,
        );
        section.number(
            "ttlSecondsAfterFinished",
            &mut self.ttl_seconds_after_finished,
        );
        section.text("serviceType", &mut self.service_type);
        section.choice(
            "submissionMode",
            &mut self.submission_mode,
            "K8sJobMode, HTTPMode or SidecarMode",
            |name| {
                SubmissionMode::ALL
                    .into_iter()
                    .find(|mode| mode.name() == name)
            },
        );
        section.flag("includeDashboard", &mut self.include_dashboard);
        section.text("dashboardHost", &mut self.dashboard_host);
        section.flag("enableUsageStats", &mut self.enable_usage_stats);
        section.text("serviceAccount", &mut self.service_account);
        // Of both kinds of nodes, unless a kind says otherwise.
        let mut address = String::new();
        section.text("nodeIPAddress", &mut address);
        if !address.is_empty() {
            self.head.ip_address.clone_from(&address);
            self.worker.ip_address = address;
        }
        section.section("defaults", |section| {
            for (key, node) in [
                ("headNode", &mut self.head),
                ("workerNode", &mut self.worker),
            ] {
                section.section(key, |section| {
                    section.map("startParameters", &mut node.start_parameters);
                    section.text("ipAddress", &mut node.ip_address);
                });
            }
        });
        section.section("logs", |section| read_logs(section, &mut self.logs));
        section.object("logsSidecar", &mut self.logs_sidecar);
        section.section("dashboardURLTemplate", |section| {
            let mut link = LinkTemplate::default();
            read_link(section, &mut link);
            self.dashboard_link = Some(link);
        });
        section.unsupported(
            "remoteClusterConfig",
            "jobs run in the cluster of their actions",
        );
    }
}
