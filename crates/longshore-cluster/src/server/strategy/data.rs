//! ConfigMaps and Secrets: `stringData`, keys, what types of Secrets ask for, immutability and the size limit.

use serde_json::Value;

use crate::server::{error::Cause, meta};

/// Largest sum of values, in bytes.
const SIZE_LIMIT: usize = 1024 * 1024;
/// Longest key, in bytes.
const MAX_KEY: usize = 253;

const KEY_MESSAGE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
     (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The annotation of a Secret that names the service account whose token it is to hold.
const ACCOUNT: &str = "kubernetes.io/service-account.name";

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Secrets: `stringData` moves into `data`, the type is `Opaque` unless given.
pub(super) fn prepare(object: &mut Value) {
    if meta::text(object, "/kind") != "Secret" {
        return;
    }
    let members = meta::members(object);
    members.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(texts)) = members.remove("stringData") else {
        return;
    };
    let data = meta::member(object, "data");
    for (key, text) in texts {
        data.insert(
            key,
            encode_base64(text.as_str().unwrap_or("").as_bytes()).into(),
        );
    }
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let sextet = usize::try_from((bits >> (18 - 6 * index)) & 63).unwrap_or(0);
            let is_padding = index > chunk.len();
            out.push(if is_padding {
                '='
            } else {
                char::from(BASE64[sextet])
            });
        }
    }
    out
}

/// What is wrong with the data.
pub(super) fn violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = old.map_or_else(Vec::new, |old| change_violations(new, old));
    causes.extend(key_violations(new, "data"));
    causes.extend(key_violations(new, "binaryData"));
    let is_secret = is_secret(new);
    let size_of = |list: &str, is_encoded: bool| -> usize {
        let lengths = values(new, list)
            .filter_map(|(_, value)| value.as_str())
            .map(str::len)
            .sum::<usize>();
        if is_encoded { lengths / 4 * 3 } else { lengths }
    };
    if size_of("data", is_secret) + size_of("binaryData", true) > SIZE_LIMIT {
        causes.push(Cause::too_long(
            if is_secret { "data" } else { "" },
            SIZE_LIMIT,
        ));
    }
    if is_secret {
        causes.extend(type_violations(new));
    }
    causes
}

fn is_secret(object: &Value) -> bool {
    meta::text(object, "/kind") == "Secret"
}

fn values<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let values = object.get(list).and_then(Value::as_object);
    values.into_iter().flatten()
}

/// Keys are names of files in volumes. A ConfigMap has each of them once.
fn key_violations(object: &Value, list: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, _) in values(object, list) {
        let field = format!("{list}[{key}]");
        let mut complaints = config_key_violations(key);
        if list == "data" && values(object, "binaryData").any(|(other, _)| other == key) {
            complaints.push("duplicate of key present in binaryData".to_owned());
        }
        let key: Value = key.as_str().into();
        causes.extend(
            complaints
                .iter()
                .map(|why| Cause::invalid(&field, &key, why)),
        );
    }
    causes
}

/// What is wrong with a key of a ConfigMap or a Secret; empty when nothing is.
fn config_key_violations(key: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if key.len() > MAX_KEY {
        complaints.push(format!("must be no more than {MAX_KEY} characters"));
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_inner) {
        complaints.push(KEY_MESSAGE.to_owned());
    }
    match key {
        "." | ".." => complaints.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// What the type of a Secret asks for and its author left out.
fn type_violations(secret: &Value) -> Vec<Cause> {
    let value = |key: &str| secret.get("data").and_then(|data| data.get(key));
    let required = |key: &str| Cause::required(&format!("data[{key}]"), "");
    let missing = |key: &str| value(key).is_none().then(|| required(key));
    match meta::text(secret, "/type") {
        "kubernetes.io/service-account-token" => {
            let annotations = secret.pointer("/metadata/annotations");
            let account = annotations.and_then(|it| it.get(ACCOUNT));
            let is_named = account
                .and_then(Value::as_str)
                .is_some_and(|it| !it.is_empty());
            let field = format!("metadata.annotations[{ACCOUNT}]");
            (!is_named)
                .then(|| Cause::required(&field, ""))
                .into_iter()
                .collect()
        }
        "kubernetes.io/dockercfg" => missing(".dockercfg").into_iter().collect(),
        "kubernetes.io/dockerconfigjson" => missing(".dockerconfigjson").into_iter().collect(),
        // One of the two is enough.
        "kubernetes.io/basic-auth" => match (missing("username"), missing("password")) {
            (Some(name), Some(password)) => vec![name, password],
            (Some(_) | None, _) => Vec::new(),
        },
        "kubernetes.io/ssh-auth" => {
            let key = value("ssh-privatekey").and_then(Value::as_str);
            let is_given = key.is_some_and(|key| !key.is_empty());
            (!is_given)
                .then(|| required("ssh-privatekey"))
                .into_iter()
                .collect()
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"]
            .into_iter()
            .filter_map(missing)
            .collect(),
        _ => Vec::new(),
    }
}

/// What may not change.
fn change_violations(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_secret(new) && new.get("type") != old.get("type") {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if new.get("immutable") != Some(&Value::Bool(true)) {
            let why = "field is immutable when `immutable` is set";
            causes.push(Cause::forbidden("immutable", why));
        }
        for key in ["data", "binaryData"] {
            if new.get(key) != old.get(key) {
                let why = "field is immutable when `immutable` is set";
                causes.push(Cause::forbidden(key, why));
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base64_pads_as_the_standard_says() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode_base64(text.as_bytes()), expected);
        }
    }

    fn told(object: &Value) -> Vec<String> {
        let causes = violations(object, None);
        causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect()
    }

    #[test]
    fn keys_are_names_of_files() {
        for (key, expected) in [
            ("a.b-C_9", ""),
            ("...", "must not start with '..'"),
            ("", "a valid config key must consist of"),
            ("a/b", "a valid config key must consist of"),
            (".", "must not be '.'"),
            ("..", "must not be '..'"),
            ("..a", "must not start with '..'"),
            (&"k".repeat(253), ""),
            (&"k".repeat(254), "must be no more than 253 characters"),
        ] {
            for object in [
                json!({"kind": "Secret", "data": {key: ""}}),
                json!({"kind": "ConfigMap", "data": {key: ""}}),
                json!({"kind": "ConfigMap", "binaryData": {key: ""}}),
            ] {
                let told = told(&object);
                assert_eq!(told.is_empty(), expected.is_empty(), "{key}: {told:?}");
                assert!(told.concat().contains(expected), "{key}: {told:?}");
            }
        }
        assert_eq!(
            told(&json!({"kind": "ConfigMap", "data": {"a": "x"}, "binaryData": {"a": ""}})),
            ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
        );
    }

    #[test]
    fn types_of_secrets_ask_for_their_keys() {
        for (kind, data, expected) in [
            ("tls", json!({"tls.crt": ""}), &["data[tls.key]"][..]),
            ("tls", json!({"tls.crt": "", "tls.key": ""}), &[]),
            ("dockercfg", json!({}), &["data[.dockercfg]"]),
            ("dockerconfigjson", json!({}), &["data[.dockerconfigjson]"]),
            (
                "basic-auth",
                json!({}),
                &["data[username]", "data[password]"],
            ),
            ("basic-auth", json!({"password": ""}), &[]),
            ("basic-auth", json!({"username": ""}), &[]),
            (
                "ssh-auth",
                json!({"ssh-privatekey": ""}),
                &["data[ssh-privatekey]"],
            ),
            ("ssh-auth", json!({"ssh-privatekey": "eA=="}), &[]),
            (
                "service-account-token",
                json!({}),
                &["metadata.annotations[kubernetes.io/service-account.name]"],
            ),
        ] {
            let kind = format!("kubernetes.io/{kind}");
            let secret = json!({"kind": "Secret", "type": kind, "data": data});
            let causes = violations(&secret, None);
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, expected, "{secret}");
            assert!(causes.iter().all(|cause| cause.message == "Required value"));
        }
    }
}
