//! Secrets in flags of the configuration: every user of the machine can list the command lines of processes. Pure.

use serde_json::Value;

use super::config_file::at;

/// How the names of keys end whose values are secrets, without `-`, `_` and capitals: `secret-key`, but also the
/// `FLYTE_AWS_SECRET_ACCESS_KEY` of `default-env-vars`. Keys that name a Secret or a file end otherwise.
const ENDS: [&str; 6] = [
    "secretkey",
    "secretaccesskey",
    "apikey",
    "password",
    "secret",
    "token",
];
/// The key of a service account of Google, and that of a storage account of Azure.
const OF_STORES: [&str; 2] = ["storage.stow.config.json", "storage.stow.config.key"];

/// One note for each secret on the command line: where it belongs instead.
pub(crate) fn notes(pairs: &[(String, String)]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for (key, value) in pairs {
        collect("", &at(key, value), &mut keys);
    }
    keys.sort();
    keys.dedup();
    let notes = keys.into_iter().map(|key| {
        let in_file = key
            .rsplit('.')
            .fold("…".to_owned(), |inner, part| match inner.as_str() {
                "…" => format!("{part}: …"),
                inner => format!("{part}: {{{inner}}}"),
            });
        format!(
            "the secret in {key} is on the command line, where every user of this machine can read it: write it into a file of yours as `{in_file}`, and name that with --config"
        )
    });
    notes.collect()
}

/// The keys below a value whose values are secrets.
fn collect(path: &str, value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                collect(&path, value, keys);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(path, item, keys);
            }
        }
        Value::String(text) if !text.is_empty() && (is_secret(path) || has_password(text)) => {
            keys.push(path.to_owned());
        }
        Value::Number(_) if is_secret(path) => keys.push(path.to_owned()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn is_secret(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    let plain = plain.to_lowercase();
    let is_of_store = OF_STORES.iter().any(|key| path.eq_ignore_ascii_case(key));
    is_of_store || ENDS.iter().any(|end| plain.ends_with(end))
}

/// Whether a text is a URL with a password: `scheme://user:password@host`.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.is_some_and(|user| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that are named for `key=value`.
    fn named(key: &str, value: &str) -> Vec<String> {
        let notes = notes(&[(key.to_owned(), value.to_owned())]);
        for note in &notes {
            assert!(!note.contains("canary"), "{note}");
        }
        let key = |note: String| note.split(' ').nth(3).unwrap().to_owned();
        notes.into_iter().map(key).collect()
    }

    #[test]
    fn each_key_that_takes_a_secret_is_named_and_no_value_is() {
        for (key, value, expected) in [
            ("storage.connection.secret-key", "canary", None),
            ("Storage.Connection.Secret-Key", "7312", None),
            ("storage.stow.config.secret_key", "canary", None),
            ("storage.stow.config.json", "canary", None),
            ("storage.stow.config.key", "canary", None),
            (
                "storage.connection",
                "{access-key: id, secret-key: canary}",
                Some("storage.connection.secret-key"),
            ),
            (
                "plugins.k8s.default-env-vars",
                "[{FLYTE_AWS_SECRET_ACCESS_KEY: canary}, {A: b}]",
                Some("plugins.k8s.default-env-vars.FLYTE_AWS_SECRET_ACCESS_KEY"),
            ),
            (
                "plugins.k8s.co-pilot.storage-config-override",
                "{stow: {config: {secret_key: canary}}}",
                Some("plugins.k8s.co-pilot.storage-config-override.stow.config.secret_key"),
            ),
            ("executor.cacheServiceURL", "http://id:canary@cache", None),
        ] {
            assert_eq!(named(key, value), [expected.unwrap_or(key)], "{key}");
        }
    }

    #[test]
    fn keys_that_only_name_where_a_secret_is_are_none() {
        for (key, value) in [
            ("storage.connection.secret-key", ""),
            ("storage.connection.access-key", "id"),
            ("storage.connection.endpoint", "http://minio:9000"),
            ("webhook.secretName", "certificates"),
            ("webhook.cacheInvalidationTokenFile", "/run/token"),
            ("plugins.k8s.default-env-from-secrets", "[keys]"),
            ("plugins.k8s.co-pilot.storage-config-secret-name", "storage"),
            ("executor.cluster", "a"),
        ] {
            assert_eq!(named(key, value), [] as [&str; 0], "{key}");
        }
    }

    #[test]
    fn the_key_of_the_file_is_written_as_in_the_file() {
        let pair = ("storage.connection.secret-key".to_owned(), "x".to_owned());
        let notes = notes(&[pair]);
        let expected = "as `storage: {connection: {secret-key: …}}`, and name that with --config";
        assert!(notes[0].ends_with(expected), "{notes:?}");
    }
}
