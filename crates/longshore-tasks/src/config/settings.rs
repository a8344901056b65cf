//! Reads the peer's whole configuration: its plugins, and all that stands around them (task action spec §16).

use longshore_outbound::Permit;
use std::net::{Ipv4Addr, SocketAddr};

use longshore_connect::ConnectClient;
use longshore_object_store::StorageConfig;
use longshore_plugins::{
    ConfigErrors, ConfigKey, ConfigProblem, ConfigReport, ConfigWarning, Section,
};
use serde_json::{Map, Value};

use super::{TasksConfig, WebhookSettings};
use crate::remote::GrpcConnectors;

/// What a configuration file says about the executor and what stands around it.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The executor itself. Its namespace and its metrics are not a file's to say.
    pub tasks: TasksConfig,
    /// Where action events are sent.
    pub events: EventsSettings,
    /// Where outputs are cached.
    pub catalog: CatalogSettings,
    /// `storage`: where inputs and outputs are.
    pub storage: StorageConfig,
    /// `webhook`: how secrets get into pods.
    pub webhook: WebhookSettings,
    /// `executor.healthProbeBindAddress`: where probes find the process too, if it says.
    pub health_address: Option<SocketAddr>,
}

/// Where action events are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsSettings {
    /// `executor.EventsServiceURL`: the peer's events service; `None` where none is named.
    pub url: Option<String>,
}

/// Where outputs are cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogSettings {
    /// `executor.cacheServiceURL`: the peer's cache service; `None` where none is named.
    pub url: Option<String>,
}

impl Settings {
    /// What a whole configuration file says, and what is done otherwise here. Sections of other components are passed
    /// over; `env` is the process's environment, some of which may be handed on to tasks.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub fn read(
        document: &Value,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<ConfigWarning>), ConfigErrors> {
        let mut settings = Self::default();
        let mut report = ConfigReport::default();
        settings.read_sections(document, env, &mut report);
        settings.check_addresses(&mut report);
        if report.problems.is_empty() {
            Ok((settings, report.warnings))
        } else {
            Err(ConfigErrors(report.problems))
        }
    }

    /// Every key that [`Settings::read`] asks for, with its default, but those of the section `storage`: that is a
    /// [`StorageConfig`].
    pub fn keys() -> Vec<ConfigKey> {
        let mut report = ConfigReport::recording();
        let document = Value::Object(Map::new());
        Self::default().read_sections(&document, &|_| None, &mut report);
        report.into_keys()
    }

    fn read_sections(
        &mut self,
        document: &Value,
        env: &dyn Fn(&str) -> Option<String>,
        report: &mut ConfigReport,
    ) {
        report.section(document, "executor", |section| self.executor(section));
        report.section(document, "webhook", |section| self.webhook.read(section));
        report.section(document, "namespace_mapping", |section| {
            self.webhook.read_mapping(section)
        });
        self.read_storage(document, report);
        report.record("actions.kubernetes.namespace", "a text", "");
        self.tasks.shared_namespace = own_namespace(document, env);
        self.tasks.plugins.read_sections(document, env, report);
    }

    /// Whoever is asked later has an address: no client is made of any other.
    fn check_addresses(&self, report: &mut ConfigReport) {
        let mut refuse = |path: String, why: String| {
            report.problems.push(ConfigProblem::Unusable { path, why });
        };
        let services = [
            ("executor.EventsServiceURL", &self.events.url),
            ("executor.cacheServiceURL", &self.catalog.url),
        ];
        for (path, url) in services {
            if let Some(Err(error)) = url
                .as_ref()
                .map(|url| ConnectClient::new(url, Permit::always()))
            {
                refuse(path.to_owned(), error.to_string());
            }
        }
        for (name, error) in GrpcConnectors::bad_addresses(&self.tasks.plugins.connector) {
            let path = format!("plugins.connector-service: connector {name}");
            refuse(path, error.to_string());
        }
        if let Err(error) = self.storage.check() {
            let why = error.to_string();
            let why = why.strip_prefix("storage: ").unwrap_or(&why).to_owned();
            refuse("storage".to_owned(), why);
        }
    }

    fn executor(&mut self, section: &mut Section<'_>) {
        let TasksConfig {
            policy,
            concurrency,
            collection,
            ..
        } = &mut self.tasks;
        section.option("EventsServiceURL", &mut self.events.url);
        section.option("cacheServiceURL", &mut self.catalog.url);
        section.text("cluster", &mut policy.cluster);
        section.number("maxSystemFailures", &mut policy.max_system_failures);
        section.number("maxConcurrentReconciles", concurrency);
        // No round would ever run.
        *concurrency = (*concurrency).max(1);
        section.duration("requeueDuration", &mut policy.requeue);
        section.section("gc", |section| {
            section.duration("interval", &mut collection.interval);
            section.duration("maxTTL", &mut collection.ttl);
        });
        // Read by the plugins.
        section.option("defaultK8sServiceAccount", &mut None);
        section.option_choice(
            "healthProbeBindAddress",
            &mut self.health_address,
            "an address as \":8081\", or \"0\" for none",
            listen_address,
        );
        section.unsupported(
            "metricsBindAddress",
            "metrics are where --metrics-address says",
        );
        for key in [
            "metricsSecure",
            "metricsCertPath",
            "metricsCertName",
            "metricsCertKey",
        ] {
            section.unsupported(key, "metrics are served without TLS");
        }
        section.unsupported(
            "leaderElect",
            "each role has a lease, unless --lease-duration is 0",
        );
        for key in ["webhookCertPath", "webhookCertName", "webhookCertKey"] {
            section.unsupported(
                key,
                "the webhook makes its certificates itself, and renews them",
            );
        }
        section.unsupported("enableHTTP2", "the webhook speaks HTTP/1.1 and HTTP/2");
    }

    /// Its keys are read where it is used.
    fn read_storage(&mut self, document: &Value, report: &mut ConfigReport) {
        let Some(section) = section(document, "storage") else {
            return;
        };
        match StorageConfig::of(section) {
            Ok(storage) => self.storage = storage,
            Err(why) => report.problems.push(ConfigProblem::Unusable {
                path: "storage".to_owned(),
                why,
            }),
        }
    }
}

/// The namespace of the executor itself: of its pod, or the one that the peer's actions service is told.
fn own_namespace(document: &Value, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let told = || {
        let kubernetes = section(section(document, "actions")?, "kubernetes")?;
        section(kubernetes, "namespace")?
            .as_str()
            .map(str::to_owned)
    };
    let of_pod = env("POD_NAMESPACE").filter(|namespace| !namespace.is_empty());
    of_pod
        .or_else(told)
        .filter(|namespace| !namespace.is_empty())
}

/// As Go has it: without a host it is every address of this machine. `Some(None)` where nothing is to be served.
fn listen_address(text: &str) -> Option<Option<SocketAddr>> {
    if matches!(text, "" | "0") {
        return Some(None);
    }
    let (host, port) = text.rsplit_once(':')?;
    let host = match host {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .ok()?,
    };
    Some(Some(SocketAddr::new(host, port.parse().ok()?)))
}

/// A section, whatever the case of its name.
fn section<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let mut sections = document.as_object()?.iter();
    let (_, section) = sections.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
    (!section.is_null()).then_some(section)
}

#[cfg(test)]
mod tests;
