//! `plugins.connector-service`.

use std::{collections::BTreeMap, time::Duration};

use super::service_config::{MethodPolicy, ServiceConfig};
use crate::{
    config::{Section, read_logs},
    links::LogConfig,
};

/// Connectors, and how the controller calls them.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectorConfig {
    /// `supportedTaskTypes`: what connectors run. Default: `task_type_3` and `task_type_4`.
    pub supported_task_types: Vec<String>,
    /// `defaultConnector`: takes what no other one does, if it has an endpoint.
    pub default_connector: Deployment,
    /// `connectors`: by name.
    pub connectors: BTreeMap<String, Deployment>,
    /// `connectorApps`: by name; connectors with logs of their own.
    pub apps: BTreeMap<String, Deployment>,
    /// `connectorForTaskTypes`: task type to the name of a connector.
    pub for_task_types: BTreeMap<String, String>,
    /// `pollInterval`: how often the controller reads the task types of connectors. Default: 10 s.
    pub poll_interval: Duration,
    /// `webApi`: how often the states of jobs are requested.
    pub web_api: WebApi,
    /// `webApi.resourceQuotas` and `resourceConstraints`. Default: none.
    pub quota: Quota,
    /// `logs`: links of tasks of `connectorApps`. Default: none.
    pub logs: LogConfig,
}

/// How often, and how many at a time, the controller requests the states of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebApi {
    /// `caching.resyncInterval`: between two questions for one job. Default: 30 s.
    pub resync: Duration,
    /// `caching.workers`: questions at the same time. Default: 10.
    pub workers: u32,
    /// `caching.maxSystemFailures`: failed questions in a row that a job survives. Default: 5.
    pub max_system_failures: u32,
    /// `readRateLimiter`. Default: 10 a second, 100 at once.
    pub reads: Limit,
    /// `writeRateLimiter`. Default: 10 a second, 100 at once.
    pub writes: Limit,
}

/// How many jobs there may be at the same time; `None` for as many as there are actions.
///
/// The peer has limits by default, which its executor reads but does not enforce: it grants every
/// request. So only configured limits count here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// `webApi.resourceQuotas.default`: of all.
    pub total: Option<u32>,
    /// `resourceConstraints.projectScopeResourceConstraint.value`: of a project.
    pub of_project: Option<u32>,
    /// `resourceConstraints.namespaceScopeResourceConstraint.value`: of a domain of a project.
    pub of_domain: Option<u32>,
}

impl Quota {
    /// Whether there is no limit at all.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// The limit on the rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `qps`: a second, in the long run.
    pub per_second: u32,
    /// `burst`: at once.
    pub burst: u32,
}

/// Where a connector is, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// `endpoint`: the address of the connector.
    pub endpoint: String,
    /// `insecure`: without TLS. Default: no, and yes for the default connector.
    pub is_insecure: bool,
    /// `timeouts` by operation, as `CreateTask`.
    pub timeouts: BTreeMap<String, Duration>,
    /// `defaultTimeout` of all other operations; zero for none. Default: zero, 10 s for the default connector.
    pub default_timeout: Duration,
    /// `defaultServiceConfig`: retries, and time limits besides those above. Default: none.
    pub service_config: Option<ServiceConfig>,
    /// `project`: whose tasks it takes; empty for all.
    pub project: String,
    /// `domain`: whose tasks it takes; empty for all.
    pub domain: String,
}

impl Deployment {
    const NONE: Self = Self {
        endpoint: String::new(),
        is_insecure: false,
        timeouts: BTreeMap::new(),
        default_timeout: Duration::ZERO,
        service_config: None,
        project: String::new(),
        domain: String::new(),
    };

    /// How long an operation may take, as `CreateTask`; `None` for as long as it likes.
    pub fn timeout(&self, operation: &str) -> Option<Duration> {
        let mut own = self.timeouts.iter();
        let own = own.find(|(name, _)| name.eq_ignore_ascii_case(operation));
        let timeout = own.map_or(self.default_timeout, |(_, timeout)| *timeout);
        (!timeout.is_zero()).then_some(timeout)
    }

    /// How a method is called, as `CreateTask` of `flyteidl2.connector.AsyncConnectorService`.
    pub fn policy(&self, service: &str, method: &str) -> MethodPolicy {
        let limit = self.timeout(method);
        match &self.service_config {
            Some(config) => config.of(service, method, limit),
            None => MethodPolicy {
                timeout: limit,
                retries: None,
            },
        }
    }

    fn read(&mut self, section: &mut Section<'_>) {
        section.text("endpoint", &mut self.endpoint);
        section.flag("insecure", &mut self.is_insecure);
        section.durations("timeouts", &mut self.timeouts);
        section.duration("defaultTimeout", &mut self.default_timeout);
        section.text("project", &mut self.project);
        section.text("domain", &mut self.domain);
        section.option_choice(
            "defaultServiceConfig",
            &mut self.service_config,
            "gRPC's service configuration as JSON text",
            |text| match text {
                "" => Some(None),
                text => ServiceConfig::parse(text).map(Some),
            },
        );
    }
}

impl Default for ConnectorConfig {
    fn default() -> Self {
        let limit = Limit {
            per_second: 10,
            burst: 100,
        };
        Self {
            supported_task_types: ["task_type_3", "task_type_4"].map(str::to_owned).into(),
            default_connector: Deployment {
                is_insecure: true,
                default_timeout: Duration::from_secs(10),
                ..Deployment::NONE
            },
            connectors: BTreeMap::new(),
            apps: BTreeMap::new(),
            for_task_types: BTreeMap::new(),
            poll_interval: Duration::from_secs(10),
            web_api: WebApi {
                resync: Duration::from_secs(30),
                workers: 10,
                max_system_failures: 5,
                reads: limit,
                writes: limit,
            },
            quota: Quota::default(),
            logs: LogConfig::NONE,
        }
    }
}

impl ConnectorConfig {
    pub(crate) fn read(&mut self, section: &mut Section<'_>) {
        section.texts("supportedTaskTypes", &mut self.supported_task_types);
        section.section("defaultConnector", |section| {
            self.default_connector.read(section)
        });
        for (key, deployments) in [
            ("connectors", &mut self.connectors),
            ("connectorApps", &mut self.apps),
        ] {
            section.sections(key, |name, section| {
                let mut deployment = Deployment::NONE;
                deployment.read(section);
                deployments.insert(name.to_owned(), deployment);
            });
        }
        section.map("connectorForTaskTypes", &mut self.for_task_types);
        section.duration("pollInterval", &mut self.poll_interval);
        let (web_api, quota) = (&mut self.web_api, &mut self.quota);
        section.section("webApi", |section| read_web_api(section, web_api, quota));
        section.section("logs", |section| read_logs(section, &mut self.logs));
        section.section("resourceConstraints", |section| {
            for (key, limit) in [
                ("projectScopeResourceConstraint", &mut self.quota.of_project),
                (
                    "namespaceScopeResourceConstraint",
                    &mut self.quota.of_domain,
                ),
            ] {
                section.section(key, |section| section.option_number("value", limit));
            }
        });
    }
}

fn read_web_api(section: &mut Section<'_>, config: &mut WebApi, quota: &mut Quota) {
    section.section("caching", |section| {
        section.duration("resyncInterval", &mut config.resync);
        section.number("workers", &mut config.workers);
        section.number("maxSystemFailures", &mut config.max_system_failures);
        section.unsupported("size", "as many jobs are asked for as there are actions");
    });
    for (key, limit) in [
        ("readRateLimiter", &mut config.reads),
        ("writeRateLimiter", &mut config.writes),
    ] {
        section.section(key, |section| {
            section.number("qps", &mut limit.per_second);
            section.number("burst", &mut limit.burst);
        });
    }
    // Connectors ask for slots in this namespace of resources only.
    section.section("resourceQuotas", |section| {
        section.option_number("default", &mut quota.total);
    });
    section.unsupported(
        "resourceMeta",
        "what connectors say of a job is kept as it is",
    );
}
