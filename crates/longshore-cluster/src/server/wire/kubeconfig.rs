//! The kubeconfig for clients of the server. What its user has added or changed stays, as with `kind`. Pure.

use std::net::SocketAddr;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

/// The name of the cluster, the user and the context.
const NAME: &str = "longshore";

/// The text of the kubeconfig at this start, in JSON, which every reader of YAML takes; `None`: that of the last start says
/// the same already.
///
/// Cluster and user are the server's: address, certificate and token. The context is its user's once it is there, and so
/// are all other entries, and which context is the current one.
pub(super) fn text(
    address: SocketAddr,
    authority_pem: &str,
    token: &str,
    old: Option<&str>,
) -> Option<String> {
    let old = old.and_then(|text| serde_saphyr::from_str::<Map<String, Value>>(text).ok());
    let mut new = old.clone().unwrap_or_default();
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        new.insert(key.to_owned(), value.into());
    }
    put(&mut new, "clusters", cluster(address, authority_pem));
    put(
        &mut new,
        "users",
        json!({"name": NAME, "user": {"token": token}}),
    );
    if !has(&new, "contexts", NAME) {
        let context = json!({"cluster": NAME, "user": NAME, "namespace": "default"});
        put(
            &mut new,
            "contexts",
            json!({"name": NAME, "context": context}),
        );
    }
    let current = new.get("current-context").and_then(Value::as_str);
    if !current.is_some_and(|current| has(&new, "contexts", current)) {
        new.insert("current-context".to_owned(), NAME.into());
    }
    new.entry("preferences").or_insert_with(|| json!({}));
    let is_same = old.is_some_and(|old| old == new);
    (!is_same).then(|| format!("{:#}\n", Value::Object(new)))
}

fn cluster(address: SocketAddr, authority_pem: &str) -> Value {
    let host = if address.ip().is_unspecified() {
        SocketAddr::from(([127, 0, 0, 1], address.port()))
    } else {
        address
    };
    let authority = ByteString(authority_pem.as_bytes().to_vec());
    json!({"name": NAME, "cluster": {
        "server": format!("https://{host}"),
        "certificate-authority-data": authority,
    }})
}

fn has(config: &Map<String, Value>, list: &str, name: &str) -> bool {
    let mut entries = config
        .get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    entries.any(|entry| entry["name"] == name)
}

/// Puts our entry in the place of that of its name, or behind the others.
fn put(config: &mut Map<String, Value>, list: &str, entry: Value) {
    let list = config.entry(list).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(entries) = list.as_array_mut() else {
        return;
    };
    match entries.iter_mut().find(|it| it["name"] == NAME) {
        Some(old) => *old = entry,
        None => entries.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16, old: Option<&str>) -> Option<Value> {
        let address = SocketAddr::from(([0, 0, 0, 0], port));
        let text = text(address, "PEM", "secret", old)?;
        Some(serde_json::from_str(&text).unwrap())
    }

    fn ours(port: u16) -> Value {
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": "UEVN",
        });
        let context = json!({"cluster": "longshore", "user": "longshore", "namespace": "default"});
        json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "longshore", "cluster": cluster}],
            "users": [{"name": "longshore", "user": {"token": "secret"}}],
            "contexts": [{"name": "longshore", "context": context}],
            "current-context": "longshore", "preferences": {},
        })
    }

    #[test]
    fn a_start_with_nothing_new_writes_nothing() {
        let first = at(1, None).unwrap();
        assert_eq!(first, ours(1));
        assert_eq!(at(1, Some(&first.to_string())), None);
        // Another port is another address.
        assert_eq!(at(2, Some(&first.to_string())), Some(ours(2)));
    }

    /// As `kubectl config` writes it.
    #[test]
    fn what_a_user_has_changed_stays() {
        let changed = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: OLD\n    \
            server: https://127.0.0.1:1\n  name: longshore\n- cluster: {server: 'https://far:6443'}\n  name: far\n\
            contexts:\n- context: {cluster: longshore, namespace: mine, user: longshore}\n  name: longshore\n\
            - context: {cluster: far, user: me}\n  name: far\ncurrent-context: far\nkind: Config\n\
            preferences: {}\nusers:\n- name: me\n  user: {token: t}\n- name: longshore\n  user: {token: old}\n";
        let merged = at(2, Some(changed)).unwrap();
        let mut expected = ours(2);
        let far = json!({"name": "far", "cluster": {"server": "https://far:6443"}});
        let me = json!({"name": "me", "user": {"token": "t"}});
        let context = json!({"name": "far", "context": {"cluster": "far", "user": "me"}});
        expected["clusters"] = json!([expected["clusters"][0], far]);
        expected["users"] = json!([me, expected["users"][0]]);
        expected["contexts"] = json!([expected["contexts"][0], context]);
        expected["contexts"][0]["context"]["namespace"] = json!("mine");
        expected["current-context"] = json!("far");
        assert_eq!(merged, expected);
        assert_eq!(at(2, Some(&merged.to_string())), None);
    }

    #[test]
    fn what_is_broken_is_written_anew() {
        for broken in [
            "",
            "{",
            "[1]",
            "clusters: 1\ncontexts: {}\ncurrent-context: gone\n",
        ] {
            let found = at(1, Some(broken)).unwrap();
            assert_eq!(found, ours(1), "{broken:?}");
        }
    }
}
