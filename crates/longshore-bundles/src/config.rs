//! Which bundles there are: `[dag_processor] dag_bundle_config_list`, as Airflow 3.3 writes it. Pure.

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::git::remote::{AllowedRemotes, InvalidRemote, Remote};

/// The class of local folders.
pub const LOCAL_CLASS: &str = "airflow.dag_processing.bundles.local.LocalDagBundle";
/// The class of git repositories.
pub const GIT_CLASS: &str = "airflow.providers.git.bundles.git.GitDagBundle";
/// The bundle that Airflow keeps for its examples: no other may have its name.
pub const EXAMPLES: &str = "example_dags";

/// The name of a bundle, as rows keep it and workers are told it. It is never joined into a path as it is: see
/// [`BundleName::to_component`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleName(String);

impl BundleName {
    /// A name of 1 to 250 characters without control characters.
    ///
    /// # Errors
    /// The name is another one.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let is_fine =
            (1..=250).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        if is_fine {
            return Ok(Self(name.to_owned()));
        }
        Err(ConfigError::Name(name.chars().take(80).collect()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// One component of a path that no other name has: the name itself if it consists of letters, digits, `-`, `_` and
    /// inner dots, as Airflow uses it; everything else is percent-encoded.
    #[must_use]
    pub fn to_component(&self) -> String {
        let mut component = String::new();
        for (index, byte) in self.0.bytes().enumerate() {
            // What begins with a dot or an underscore is ours, or Airflow's own.
            let is_plain = byte.is_ascii_alphanumeric()
                || byte == b'-'
                || (index > 0 && matches!(byte, b'_' | b'.'));
            if is_plain {
                component.push(char::from(byte));
            } else {
                component.push_str(&format!("%{byte:02X}"));
            }
        }
        component
    }
}

impl fmt::Display for BundleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It is not JSON, or not a list of bundles.
    #[error(
        "expected [dag_processor] dag_bundle_config_list to be a JSON list of objects with `name`, `classpath` and `kwargs`: {0}"
    )]
    Form(String),
    /// A name that no bundle may have.
    #[error(
        "expected a bundle name of 1 to 250 characters without control characters, found {0:?}"
    )]
    Name(String),
    /// A name that Airflow keeps for itself.
    #[error("the bundle name `{EXAMPLES}` is reserved; choose another name")]
    Reserved,
    /// Two bundles of one name.
    #[error("two bundles have the name `{0}`; give each its own")]
    Twice(String),
    /// A class that Longshore has nothing for.
    #[error("bundle `{bundle}`: expected the class {LOCAL_CLASS} or {GIT_CLASS}, found `{class}`")]
    Class {
        /// The bundle.
        bundle: String,
        /// Its class.
        class: String,
    },
    /// An argument that the class does not take.
    #[error("bundle `{bundle}`: unknown argument `{key}`{}", hint(.similar))]
    UnknownArgument {
        /// The bundle.
        bundle: String,
        /// The argument.
        key: String,
        /// One that it may have been meant to be.
        similar: Option<&'static str>,
    },
    /// An argument with a value that it cannot have.
    #[error("bundle `{bundle}`: expected `{key}` to be {expected}, found {found}")]
    Argument {
        /// The bundle.
        bundle: String,
        /// The argument.
        key: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The repository may not be used.
    #[error("bundle `{bundle}`: {why}")]
    Remote {
        /// The bundle.
        bundle: String,
        /// Why.
        why: InvalidRemote,
    },
}

fn hint(similar: &Option<&'static str>) -> String {
    similar.map_or_else(String::new, |similar| {
        format!("; did you mean `{similar}`?")
    })
}

/// A bundle as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleConfig {
    /// Its name.
    pub name: BundleName,
    /// How often it is refreshed; `[dag_processor] refresh_interval` if none is given.
    pub refresh_interval: Option<Duration>,
    /// The team that it belongs to.
    pub team: Option<String>,
    /// Where its files are.
    pub source: Source,
}

/// Where the files of a bundle are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a folder; `[core] dags_folder` if none is given.
    Local {
        /// The folder.
        path: Option<PathBuf>,
    },
    /// In a git repository.
    Git(GitConfig),
}

/// A bundle of a git repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitConfig {
    /// The branch, tag or commit that is followed.
    pub tracking_ref: TrackingRef,
    /// The folder of the repository that is the root of the bundle.
    pub subdir: Option<FolderPath>,
    /// The Airflow connection that has the repository, if `remote` is not given, and the credentials.
    pub connection: Option<String>,
    /// The repository.
    pub remote: Option<Remote>,
    /// Folders outside of which nothing is checked out, except for the files at the top and beside these folders; all
    /// if empty.
    pub sparse_dirs: Vec<FolderPath>,
    /// Workers initialize submodules. Longshore never does: files in them are not listed.
    pub has_submodules: bool,
    /// Workers remove `.git` from their copies. Longshore's copies never have one.
    pub is_dotgit_pruned: bool,
}

/// The branch, tag or commit that a bundle follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackingRef(String);

impl TrackingRef {
    /// A name that git could give to a ref.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_odd =
            |char: char| char.is_whitespace() || char.is_control() || "~^:?*[\\".contains(char);
        let is_fine = !text.is_empty()
            && text.len() <= 250
            && !text.contains(is_odd)
            && !text.contains("..")
            && !text.contains("@{")
            && !text.starts_with(['-', '/'])
            && !text.ends_with(['/', '.']);
        is_fine.then(|| Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A folder of a repository: relative, `/` between the parts, no `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderPath(String);

impl FolderPath {
    /// The folder of a text; slashes at both ends do not count, and the top of the repository is none.
    ///
    /// # Errors
    /// The path leads out of the repository, or into git's own data; it is returned.
    pub fn new(text: &str) -> Result<Option<Self>, String> {
        let parts = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        let parts: Vec<_> = parts.collect();
        let is_odd = |part: &&str| {
            *part == ".." || part.eq_ignore_ascii_case(".git") || part.chars().any(char::is_control)
        };
        if text.starts_with('/') || parts.iter().any(is_odd) {
            return Err(text.to_owned());
        }
        Ok((!parts.is_empty()).then(|| Self(parts.join("/"))))
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
struct Item {
    name: String,
    classpath: String,
    kwargs: Map<String, Value>,
    #[serde(default)]
    team_name: Option<String>,
}

impl BundleConfig {
    /// The bundles of a configuration, in its order.
    ///
    /// # Errors
    /// One of them is refused; it is named.
    pub fn parse_list(json: &str, remotes: AllowedRemotes) -> Result<Vec<Self>, ConfigError> {
        let items: Vec<Item> =
            serde_json::from_str(json).map_err(|error| ConfigError::Form(error.to_string()))?;
        let mut names = BTreeSet::new();
        let mut bundles = Vec::new();
        for item in items {
            if item.name == EXAMPLES {
                return Err(ConfigError::Reserved);
            }
            if !names.insert(item.name.clone()) {
                return Err(ConfigError::Twice(item.name));
            }
            bundles.push(Self::from_item(item, remotes)?);
        }
        Ok(bundles)
    }

    fn from_item(item: Item, remotes: AllowedRemotes) -> Result<Self, ConfigError> {
        let name = BundleName::new(&item.name)?;
        let mut kwargs = Arguments {
            bundle: item.name,
            values: item.kwargs,
        };
        let refresh_interval = kwargs.seconds("refresh_interval")?;
        let source = match item.classpath.as_str() {
            LOCAL_CLASS => {
                let path = kwargs.text("path")?.map(PathBuf::from);
                kwargs.no_more(&["path", "refresh_interval"])?;
                Source::Local { path }
            }
            GIT_CLASS => Source::Git(GitConfig::from_arguments(&mut kwargs, remotes)?),
            class => {
                return Err(ConfigError::Class {
                    bundle: kwargs.bundle,
                    class: class.to_owned(),
                });
            }
        };
        Ok(Self {
            name,
            refresh_interval,
            team: item.team_name,
            source,
        })
    }
}

const GIT_ARGUMENTS: &[&str] = &[
    "tracking_ref",
    "subdir",
    "git_conn_id",
    "repo_url",
    "submodules",
    "prune_dotgit_folder",
    "sparse_dirs",
    "refresh_interval",
];

impl GitConfig {
    fn from_arguments(
        kwargs: &mut Arguments,
        remotes: AllowedRemotes,
    ) -> Result<Self, ConfigError> {
        let expected = "the name of a branch or tag, or a commit";
        let tracking_ref = kwargs.text("tracking_ref")?.unwrap_or_default();
        let tracking_ref = TrackingRef::new(&tracking_ref)
            .ok_or_else(|| kwargs.wrong("tracking_ref", expected, &tracking_ref))?;
        let subdir = kwargs.text("subdir")?.unwrap_or_default();
        let folder = "a folder in the repository, without `..`";
        let subdir = FolderPath::new(&subdir).map_err(|it| kwargs.wrong("subdir", folder, &it))?;
        let mut sparse_dirs = Vec::new();
        for text in kwargs.texts("sparse_dirs")? {
            let dir = FolderPath::new(&text);
            sparse_dirs.extend(dir.map_err(|it| kwargs.wrong("sparse_dirs", folder, &it))?);
        }
        let remote = kwargs.text("repo_url")?;
        let remote = remote.map(|url| Remote::parse(&url, remotes)).transpose();
        let remote = remote.map_err(|why| ConfigError::Remote {
            bundle: kwargs.bundle.clone(),
            why,
        })?;
        let config = Self {
            tracking_ref,
            subdir,
            connection: kwargs.text("git_conn_id")?,
            remote,
            sparse_dirs,
            has_submodules: kwargs.flag("submodules")?.unwrap_or(false),
            is_dotgit_pruned: kwargs.flag("prune_dotgit_folder")?.unwrap_or(true),
        };
        kwargs.no_more(GIT_ARGUMENTS)?;
        Ok(config)
    }
}

/// The keyword arguments of a bundle's class.
struct Arguments {
    bundle: String,
    values: Map<String, Value>,
}

impl Arguments {
    fn wrong(&self, key: &'static str, expected: &'static str, found: &str) -> ConfigError {
        ConfigError::Argument {
            bundle: self.bundle.clone(),
            key,
            expected,
            found: format!("{found:?}"),
        }
    }

    /// The value of a key, as `read` reads it; null is as good as none.
    fn take<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.values.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(ConfigError::Argument {
                    bundle: self.bundle.clone(),
                    key,
                    expected,
                    found: value.to_string(),
                }),
            },
        }
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        self.take(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn texts(&mut self, key: &'static str) -> Result<Vec<String>, ConfigError> {
        let texts = self.take(key, "a list of texts", |value| {
            let texts = value.as_array()?.iter();
            texts.map(|it| it.as_str().map(str::to_owned)).collect()
        })?;
        Ok(texts.unwrap_or_default())
    }

    fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        self.take(key, "true or false", Value::as_bool)
    }

    fn seconds(&mut self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        self.take(key, "a whole number of seconds", |value| {
            value.as_u64().map(Duration::from_secs)
        })
    }

    fn no_more(&self, known: &[&'static str]) -> Result<(), ConfigError> {
        let Some(key) = self.values.keys().next() else {
            return Ok(());
        };
        let near = known.iter().filter(|it| strsim::levenshtein(it, key) <= 2);
        Err(ConfigError::UnknownArgument {
            bundle: self.bundle.clone(),
            key: key.clone(),
            similar: near.min_by_key(|it| strsim::levenshtein(it, key)).copied(),
        })
    }
}

#[cfg(test)]
mod tests;
