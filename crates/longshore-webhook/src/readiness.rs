//! Whether the webhooks of a process are served, and whether API servers know them: for probes and for metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_kit::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

/// What is known of the webhooks of each role. Clones share it; by default no metrics have it.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    roles: Arc<Mutex<BTreeMap<&'static str, RoleWebhooks>>>,
    missing: Family<ConfigurationLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConfigurationLabels {
    role: &'static str,
    configuration: String,
}

/// What is known of the webhooks of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleWebhooks {
    /// Whether the webhooks are served.
    pub serving: Serving,
    /// The webhook configurations that were missing, or named other webhooks, when they were last read. API servers
    /// send no requests to these webhooks, so what the webhooks would do is not done.
    pub missing: BTreeSet<String>,
}

/// Whether webhooks are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serving {
    /// There is no certificate yet.
    #[default]
    NotYet,
    /// The webhooks are served.
    Served,
    /// Their role was uninstalled: API servers are not to call them.
    Uninstalled,
}

/// The part of one role.
#[derive(Clone, Debug)]
pub struct RoleReadiness {
    role: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Shows in these metrics which configurations are missing. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let readiness = Self::default();
        metrics.register(|registry| {
            registry.register(
                "longshore_webhook_configuration_missing",
                "Whether a webhook configuration is missing, or names other webhooks, so that API servers do not ask",
                &["role", "configuration"],
                readiness.missing.clone(),
            );
        });
        readiness
    }

    /// The part of a role, whose webhooks are expected from now on.
    pub fn of(&self, role: &'static str) -> RoleReadiness {
        self.roles().entry(role).or_default();
        RoleReadiness {
            role,
            readiness: self.clone(),
        }
    }

    /// The webhooks of each role, as they were reported last.
    pub fn known(&self) -> BTreeMap<&'static str, RoleWebhooks> {
        self.roles().clone()
    }

    fn roles(&self) -> MutexGuard<'_, BTreeMap<&'static str, RoleWebhooks>> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoleReadiness {
    pub(crate) fn is(&self, serving: Serving) {
        let mut roles = self.readiness.roles();
        let role = roles.entry(self.role).or_default();
        role.serving = serving;
        if serving == Serving::Uninstalled {
            for configuration in std::mem::take(&mut role.missing) {
                self.gauge(configuration).set(0);
            }
        }
    }

    pub(crate) fn configuration(&self, name: &str, is_missing: bool) {
        let mut roles = self.readiness.roles();
        let missing = &mut roles.entry(self.role).or_default().missing;
        if is_missing {
            missing.insert(name.to_owned());
        } else {
            missing.remove(name);
        }
        self.gauge(name.to_owned()).set(i64::from(is_missing));
    }

    fn gauge(&self, configuration: String) -> Gauge {
        let role = self.role;
        let labels = ConfigurationLabels {
            role,
            configuration,
        };
        self.readiness.missing.get_or_create(&labels).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_missing_until_it_was_written_and_after_an_uninstall_none_is() {
        let metrics = Metrics::new();
        let readiness = Readiness::new(&metrics);
        let role = readiness.of("podops");
        assert_eq!(readiness.known()["podops"], RoleWebhooks::default());
        let line = |value: u8| {
            format!(
                "longshore_webhook_configuration_missing{{role=\"podops\",configuration=\"c\"}} {value}"
            )
        };
        let has = |value| metrics.text().lines().any(|found| found == line(value));
        role.configuration("c", true);
        assert!(has(1) && readiness.known()["podops"].missing.contains("c"));
        role.configuration("c", false);
        role.is(Serving::Served);
        assert!(has(0) && readiness.known()["podops"].missing.is_empty());
        role.configuration("c", true);
        role.is(Serving::Uninstalled);
        let known = readiness.known().remove("podops").unwrap();
        assert_eq!(known.serving, Serving::Uninstalled);
        assert!(has(0) && known.missing.is_empty());
    }
}
