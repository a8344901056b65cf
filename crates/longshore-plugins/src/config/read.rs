//! Reads the sections of plugins from the peer's configuration file (task action spec §16).

use serde_json::Value;

use super::{
    Config, ConfigProblem, ConfigWarning, Section, k8s, keys::nothing, logs, section::ConfigReport,
};

/// What a configuration file says about plugins.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The configuration: upstream's defaults where nothing is said.
    pub config: Config,
    /// What upstream knows, and what happens instead here.
    pub warnings: Vec<ConfigWarning>,
}

/// A configuration file that nothing should start with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

/// Sections in `plugins` that are no plugin's, or of plugins that only upstream's tests have.
const NO_PLUGINS: [&str; 1] = ["echo"];
/// Sections in `plugins` that are read here.
const PLUGINS: [&str; 8] = [
    "catalogCache",
    "connector-service",
    "dask",
    "k8s",
    "kf-operator",
    "logs",
    "ray",
    "spark",
];

impl Config {
    /// The configuration of plugins in a whole configuration file. Sections of other components are passed over; `env`
    /// is the process's environment, some of which may be handed on to tasks.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub fn read(
        document: &Value,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Reading, ConfigErrors> {
        let mut report = ConfigReport::default();
        let mut config = Self::default();
        config.read_sections(document, env, &mut report);
        if report.problems.is_empty() {
            Ok(Reading {
                config,
                warnings: report.warnings,
            })
        } else {
            Err(ConfigErrors(report.problems))
        }
    }

    /// As [`Config::read`], as part of a reading of other sections.
    pub fn read_sections(
        &mut self,
        document: &Value,
        env: &dyn Fn(&str) -> Option<String>,
        report: &mut ConfigReport,
    ) {
        let executor = field(document, "executor");
        let account = executor.and_then(|executor| field(executor, "defaultK8sServiceAccount"));
        self.default_service_account = account
            .and_then(Value::as_str)
            .filter(|account| !account.is_empty())
            .map(str::to_owned);
        if let Some(storage) = field(document, "storage") {
            self.k8s.co_pilot.storage = k8s::storage_of(storage);
        }
        let co_pilot = &mut self.k8s.co_pilot;
        report.record("logger.level", "a whole number", co_pilot.log_level);
        let level = field(document, "logger").and_then(|logger| field(logger, "level"));
        if let Some(level) = level.and_then(Value::as_i64) {
            co_pilot.log_level = level;
        }
        if let Some(plugins) = field(document, "plugins") {
            self.read_plugins(plugins, report, env);
        }
        let nothing = nothing();
        if report.is_recording() {
            for known in PLUGINS {
                Section::read(&nothing, format!("plugins.{known}"), report, |section| {
                    self.read_plugin(known, section, env);
                });
            }
        }
        let tasks = field(document, "tasks").and_then(|tasks| field(tasks, "task-plugins"));
        if let Some(tasks) = tasks.or(report.is_recording().then_some(&nothing)) {
            Section::read(tasks, "tasks.task-plugins", report, |section| {
                section.map("default-for-task-types", &mut self.default_for_task_types);
                section.unsupported("enabled-plugins", "all plugins are enabled");
            });
        }
    }

    fn read_plugins(
        &mut self,
        plugins: &Value,
        report: &mut ConfigReport,
        env: &dyn Fn(&str) -> Option<String>,
    ) {
        for (name, value) in plugins.as_object().into_iter().flatten() {
            let path = format!("plugins.{name}");
            let known = PLUGINS
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(name));
            let Some(known) = known else {
                if !NO_PLUGINS.contains(&name.to_lowercase().as_str()) {
                    report.warnings.push(ConfigWarning {
                        path,
                        instead: format!(
                            "no plugin has this name, so it is passed over; there are {PLUGINS:?}"
                        ),
                    });
                }
                continue;
            };
            Section::read(value, path, report, |section| {
                self.read_plugin(known, section, env);
            });
        }
    }

    fn read_plugin(
        &mut self,
        known: &str,
        section: &mut Section<'_>,
        env: &dyn Fn(&str) -> Option<String>,
    ) {
        match known {
            "catalogCache" => {
                section.duration("maxCacheAge", &mut self.max_cache_age);
                for key in ["reader", "writer"] {
                    section.unsupported(key, "the cache is asked as attempts need it");
                }
            }
            "k8s" => k8s::read(section, &mut self.k8s, env),
            "logs" => logs::read(section, &mut self.logs),
            "spark" => self.spark.read(section),
            "ray" => self.ray.read(section),
            "dask" => logs_only(section, &mut self.dask.logs),
            "kf-operator" => section.duration("timeout", &mut self.kubeflow.timeout),
            _ => self.connector.read(section),
        }
    }
}

fn logs_only(section: &mut Section<'_>, config: &mut crate::links::LogConfig) {
    section.section("logs", |section| logs::read(section, config));
}

/// A field, whatever the case of its name: upstream's loader ignores the case of keys.
fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    crate::proto_json::field(object, name).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests;
