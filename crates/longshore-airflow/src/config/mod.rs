//! Airflow's configuration: `airflow.cfg`, and `AIRFLOW__SECTION__KEY` of the environment.
//!
//! The order is upstream's: a variable, a variable with `_CMD` or `_SECRET`, the file, `_cmd` or `_secret` in the file,
//! the default. Commands are not run here, and secrets not fetched: [`AirflowConfig::pending`] names them, and
//! [`AirflowConfig::resolve`] takes what the caller got. What is unknown or of no effect here is a [`ConfigProblem`],
//! which says what happens instead; nothing is dropped in silence.
//!
//! Source: spec 1; upstream `airflow.configuration`.

mod dag_processor;
mod environment;
mod executor;
mod file;
mod keys;
mod problem;
mod read;
mod settings;

use std::collections::BTreeMap;

use serde_json::Value;

pub use dag_processor::{DagProcessorSettings, IgnoreFileSyntax};
pub use executor::{KubernetesExecutor, Namespaces, RequestTimeout, RetryLimit};
pub use keys::{KEYS, Key, KeyKind, Support};
pub use problem::{ConfigProblem, InvalidValue};
pub use settings::{CoreSettings, SchedulerSettings, TokenSettings, WorkerSettings};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A variable of the environment.
    Variable(String),
    /// A line of `airflow.cfg`, from 1.
    Line(usize),
    /// Upstream's default.
    Default,
}

/// A section and a key, both in small letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The section.
    pub section: String,
    /// The key.
    pub key: String,
}

impl Name {
    fn of(key: &Key) -> Self {
        Self {
            section: key.section().to_owned(),
            key: key.name.to_owned(),
        }
    }
}

/// How a value is got that is not in the configuration itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// A command whose output is the value.
    Command(String),
    /// A name in the secrets backend.
    Secret(String),
}

/// A value that is still to be got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Whose value.
    pub name: Name,
    /// How.
    pub fetch: Fetch,
    /// Where that stands.
    pub origin: Origin,
}

/// A value, and where it comes from. `Debug` of a [`AirflowConfig`] does not show values of secret keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    text: String,
    origin: Origin,
}

/// A configuration.
#[derive(Clone, Default)]
pub struct AirflowConfig {
    settings: BTreeMap<Name, Setting>,
    pending: BTreeMap<Name, Pending>,
    problems: Vec<ConfigProblem>,
}

impl std::fmt::Debug for AirflowConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&Name> = self.settings.keys().collect();
        let mut shown = formatter.debug_struct("AirflowConfig");
        shown.field("settings", &names);
        shown
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

impl AirflowConfig {
    /// Reads a file and an environment. Either may be empty.
    #[must_use]
    pub fn read(file: &str, environment: &BTreeMap<String, String>) -> Self {
        let mut config = Self::default();
        read::from_file(&mut config, file, environment);
        read::from_environment(&mut config, environment);
        read::tell_ignored(&mut config);
        config
    }

    /// What is unknown, has no effect, or cannot be read.
    #[must_use]
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Values that are still to be got.
    pub fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values()
    }

    /// Gives a pending value. It has no effect on a name that is not pending.
    pub fn resolve(&mut self, name: &Name, value: &str) {
        if let Some(pending) = self.pending.remove(name) {
            // As upstream: a command's output ends with a line break.
            let text = value.trim_end_matches('\n').to_owned();
            let origin = pending.origin;
            self.settings.insert(name.clone(), Setting { text, origin });
        }
    }

    /// The text of a key and where it comes from; the default where it is not set.
    #[must_use]
    pub fn text(&self, key: &Key) -> (&str, &Origin) {
        match self.settings.get(&Name::of(key)) {
            Some(setting) => (&setting.text, &setting.origin),
            None => (key.default, &Origin::Default),
        }
    }

    fn invalid(&self, key: &Key, expected: &'static str) -> InvalidValue {
        let (found, origin) = self.text(key);
        let found = if key.is_secret { "…" } else { found };
        InvalidValue {
            name: Name::of(key),
            origin: origin.clone(),
            expected,
            found: found.to_owned(),
        }
    }

    /// A key of kind [`KeyKind::Boolean`]. What follows a `#` is a comment.
    ///
    /// # Errors
    /// The text is none of upstream's words.
    pub fn boolean(&self, key: &Key) -> Result<bool, InvalidValue> {
        let (text, _) = self.text(key);
        let word = text.split('#').next().unwrap_or_default().trim();
        match word.to_ascii_lowercase().as_str() {
            "t" | "true" | "1" => Ok(true),
            "f" | "false" | "0" => Ok(false),
            _ => Err(self.invalid(key, "True or False")),
        }
    }

    /// A key of kind [`KeyKind::Integer`].
    ///
    /// # Errors
    /// The text is no integer.
    pub fn integer(&self, key: &Key) -> Result<i64, InvalidValue> {
        let (text, _) = self.text(key);
        text.trim()
            .parse()
            .map_err(|_| self.invalid(key, "an integer"))
    }

    /// A key of kind [`KeyKind::Float`].
    ///
    /// # Errors
    /// The text is no finite number.
    pub fn float(&self, key: &Key) -> Result<f64, InvalidValue> {
        let (text, _) = self.text(key);
        let number = text.trim().parse().ok();
        let number = number.filter(|it: &f64| it.is_finite());
        number.ok_or_else(|| self.invalid(key, "a number"))
    }

    /// A key of kind [`KeyKind::List`]: texts with commas between them, without what is empty.
    #[must_use]
    pub fn list(&self, key: &Key) -> Vec<String> {
        let (text, _) = self.text(key);
        let items = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        items.map(str::to_owned).collect()
    }

    /// A key of kind [`KeyKind::Object`]: a JSON object; an empty one for no text.
    ///
    /// # Errors
    /// The text is no JSON object.
    pub fn object(&self, key: &Key) -> Result<serde_json::Map<String, Value>, InvalidValue> {
        let (text, _) = self.text(key);
        if text.trim().is_empty() {
            return Ok(serde_json::Map::new());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) | Err(_) => Err(self.invalid(key, "a JSON object")),
        }
    }

    /// A key of kind [`KeyKind::Text`] that may be left out: `None` for no text.
    #[must_use]
    pub fn optional(&self, key: &Key) -> Option<&str> {
        let (text, _) = self.text(key);
        Some(text.trim()).filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests;
