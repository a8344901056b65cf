//! The peer's configuration: files, and flags as `--executor.cluster=c1` (task action spec §16).

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

use longshore_plugins::ConfigWarning;
use longshore_tasks::Settings;
use serde_json::{Map, Value};

use crate::error::{CliError, ConfigError};

/// What files and `key=value` pairs say, where a later one wins over earlier ones, and warnings about keys that work
/// otherwise here.
pub(crate) fn read(
    files: &[PathBuf],
    keys: &[(String, String)],
) -> Result<(Settings, Vec<ConfigWarning>), CliError> {
    let mut document = Value::Object(Map::new());
    for path in files {
        for path in matching(path)? {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|source| CliError::in_file(path.clone(), source))?;
            let file = serde_saphyr::from_str(&text);
            // Not the lines around the place: the file has keys of stores, and passwords in URLs.
            let file = file.map_err(|error| ConfigError::NoYaml {
                path,
                source: error.without_snippet().to_string().into(),
            })?;
            merge(&mut document, file);
        }
    }
    for (key, value) in keys {
        merge(&mut document, at(key, value));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    let env = |name: &str| std::env::var(name).ok();
    let settings = Settings::read(&document, &env);
    Ok(settings.map_err(|problems| ConfigError::Mistakes { problems })?)
}

/// The peer's flags `--section.key=value` and `--section.key value` of `longshore controller` as `--set
/// section.key=value`; everything else as it is.
pub(crate) fn with_peers_flags(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut known: Vec<OsString> = Vec::new();
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let is_ours = known.iter().any(|arg| arg == "controller");
        let flag = arg.to_str().and_then(|arg| arg.strip_prefix("--"));
        let Some(flag) = flag.filter(|flag| is_ours && is_key(flag)) else {
            known.push(arg);
            continue;
        };
        let mut pair = OsString::from(flag);
        if !flag.contains('=') {
            // A flag without value is true.
            let is_value = |next: &OsString| !next.to_string_lossy().starts_with('-');
            let value = args.next_if(is_value);
            pair.push("=");
            pair.push(value.as_deref().unwrap_or(OsStr::new("true")));
        }
        known.extend([OsString::from("--set"), pair]);
    }
    known
}

/// Whether a flag is one of a section: flags of Longshore have no dots.
fn is_key(flag: &str) -> bool {
    let (key, _) = flag.split_once('=').unwrap_or((flag, ""));
    key.contains('.') && !key.starts_with('.')
}

/// The files that a path means: as upstream, the last part of it may hold `*`.
fn matching(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else {
        return Ok(vec![path.to_owned()]);
    };
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let unreadable = |source: io::Error| CliError::in_file(folder.to_owned(), source);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_long_enough = name.len() >= start.len() + end.len();
        // Entries that a mounted ConfigMap has beside its files.
        let is_hidden = name.starts_with('.');
        if is_long_enough && !is_hidden && name.starts_with(start) && name.ends_with(end) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Sections are put together, key by key, whatever the case of keys; everything else is replaced.
fn merge(document: &mut Value, later: Value) {
    match (document, later) {
        (Value::Object(document), Value::Object(later)) => {
            for (key, value) in later {
                let known = document
                    .keys()
                    .find(|known| known.eq_ignore_ascii_case(&key));
                let key = known.cloned().unwrap_or(key);
                merge(document.entry(key).or_insert(Value::Null), value);
            }
        }
        // An empty file says nothing.
        (_, Value::Null) => {}
        (document, later) => *document = later,
    }
}

/// A document with one key. Values are YAML; what is none is text.
pub(super) fn at(key: &str, value: &str) -> Value {
    let value = serde_saphyr::from_str(value).unwrap_or_else(|_| Value::from(value));
    key.rsplit('.').fold(value, |value, part| {
        Value::Object(Map::from_iter([(part.to_owned(), value)]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_of_sections_are_settings_and_no_others() {
        let args = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        for (given, expected) in [
            (
                &["longshore", "controller", "--executor.cluster=a", "-v"][..],
                &[
                    "longshore",
                    "controller",
                    "--set",
                    "executor.cluster=a",
                    "-v",
                ][..],
            ),
            (
                &[
                    "l",
                    "controller",
                    "--executor.gc.maxTTL",
                    "1h",
                    "--plugins.k8s.inject-finalizer",
                    "--quiet",
                ],
                &[
                    "l",
                    "controller",
                    "--set",
                    "executor.gc.maxTTL=1h",
                    "--set",
                    "plugins.k8s.inject-finalizer=true",
                    "--quiet",
                ],
            ),
            (
                &[
                    "l",
                    "controller",
                    "--address=1.2.3.4:5",
                    "--data-dir",
                    "a.b",
                ],
                &[
                    "l",
                    "controller",
                    "--address=1.2.3.4:5",
                    "--data-dir",
                    "a.b",
                ],
            ),
            (&["l", "run", "--a.b"], &["l", "run", "--a.b"]),
        ] {
            assert_eq!(with_peers_flags(args(given)), args(expected));
        }
    }

    #[test]
    fn later_files_and_flags_win_key_by_key() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "1.yaml",
            "executor: {cluster: a, maxSystemFailures: 9}\nruns: {x: 1}\n",
        );
        write("2.yaml", "Executor: {Cluster: b, gc: {interval: 1m}}\n");
        write("3.yaml", "");
        write("other.txt", "{{{");
        let flags = [("executor.GC.maxTTL".to_owned(), "2h".to_owned())];
        let (settings, _) = read(&[folder.path().join("*.yaml")], &flags).unwrap();
        let policy = &settings.tasks.policy;
        assert_eq!(
            (policy.cluster.as_str(), policy.max_system_failures),
            ("b", 9)
        );
        let collection = settings.tasks.collection;
        assert_eq!(
            (collection.interval.as_secs(), collection.ttl.as_secs()),
            (60, 7200)
        );
    }

    #[test]
    fn mistakes_and_what_is_no_yaml_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let code = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = read(std::slice::from_ref(&path), &[]).unwrap_err();
            (error.code(), error.to_string())
        };
        assert_eq!(code("a: [").0, "LS1007");
        let (code, message) = code("executor: {clutser: a}");
        assert_eq!(code, "LS1008");
        assert!(message.contains("did you mean \"cluster\"?"), "{message}");
        let missing = read(&[folder.path().join("none")], &[]).unwrap_err();
        assert_eq!(missing.code(), "LS1001");
    }

    #[test]
    fn values_of_flags_are_yaml() {
        assert_eq!(at("a.b", "[x, z]"), json!({"a": {"b": ["x", "z"]}}));
        assert_eq!(at("a", "3"), json!({"a": 3}));
        assert_eq!(at("a", ":9443"), json!({"a": ":9443"}));
    }
}
