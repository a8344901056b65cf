//! Built-in admission of new pods: each runs as a service account, and finds the token of it in a volume.
//!
//! Upstream's plugin `ServiceAccount`, but for the annotation `kubernetes.io/enforce-mountable-secrets`, which is
//! deprecated there.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::server::{
    error::{ApiError, Result},
    hub::Key,
    meta, names,
    registry::Strategy,
    verbs::Call,
};

/// Whether new pods need a service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodIdentity {
    /// Pods are taken as they are; nobody has to make accounts first.
    #[default]
    None,
    /// The account must exist, and its token is mounted into the containers. Needs
    /// [`controllers::run_service_accounts`](crate::controllers::run_service_accounts), which makes an account `default`
    /// in each namespace.
    ServiceAccounts,
}

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// How long a pod waits for the account of a new namespace.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
/// Where programs look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the names of such volumes begin with.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// An hour, and so much more that upstream can tell these requests from others, in seconds.
const TOKEN_LIFE: i64 = 3607;
/// The permissions of the files.
const MODE: i64 = 0o644;

/// Completes a new pod; other objects stay as they are.
///
/// # Errors
/// The account does not exist.
pub(crate) async fn admit(call: &Call, mut pod: Value) -> Result<Value> {
    let is_new_pod = call.resource().strategy == Strategy::Pod && call.subresource.is_none();
    let is_mirror = pod
        .pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some();
    if !is_new_pod || is_mirror || call.server.pod_identity == PodIdentity::None {
        return Ok(pod);
    }
    let name = match meta::text(&pod, "/spec/serviceAccountName") {
        // The field's former name.
        "" => meta::text(&pod, "/spec/serviceAccount"),
        name => name,
    };
    let name = if name.is_empty() { DEFAULT } else { name }.to_owned();
    let Some(account) = account(call, &name).await else {
        let namespace = call.namespace.as_deref().unwrap_or_default();
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        );
        return Err(ApiError::forbidden(call.resource(), shown_name(&pod), &why));
    };
    meta::member(&mut pod, "spec").insert("serviceAccountName".into(), name.into());
    let volume = names::generate(VOLUME_PREFIX, call.server.random.next());
    complete(&mut pod, &account, volume);
    Ok(pod)
}

/// The account; that of a new namespace may take a moment.
async fn account(call: &Call, name: &str) -> Option<Value> {
    let accounts = call.server.registry.find("", "v1", "serviceaccounts")?;
    let accounts = accounts.collection;
    let key = Key::new(call.namespace.as_deref(), name);
    let mut writes = accounts.writes();
    let until = Instant::now() + DEFAULT_TIMEOUT;
    loop {
        if let Some(account) = accounts.get(&key) {
            return Some(account.value());
        }
        let may_come = name == DEFAULT;
        if !may_come || timeout_at(until, writes.changed()).await.is_err() {
            return None;
        }
    }
}

/// The name of a pod that may not have one yet, in a refusal.
pub(super) fn shown_name(pod: &Value) -> &str {
    let names = [meta::name(pod), meta::text(pod, "/metadata/generateName")];
    let known = names.into_iter().find(|name| !name.is_empty());
    known.unwrap_or("Unknown")
}

/// Mounts the token of an account, and takes over the secrets of images. `new_volume` is a free name.
fn complete(pod: &mut Value, account: &Value, new_volume: String) {
    if mounts_token(pod, account) {
        mount_token(pod, new_volume);
    }
    let secrets = |of: &Value, pointer: &str| {
        let list = of.pointer(pointer).and_then(Value::as_array).cloned();
        list.filter(|list| !list.is_empty())
    };
    if secrets(pod, "/spec/imagePullSecrets").is_none()
        && let Some(secrets) = secrets(account, "/imagePullSecrets")
    {
        pod["spec"]["imagePullSecrets"] = secrets.into();
    }
}

/// The pod decides, else the account; with neither, the token is mounted.
fn mounts_token(pod: &Value, account: &Value) -> bool {
    let of_pod = pod.pointer("/spec/automountServiceAccountToken");
    let of_account = account.get("automountServiceAccountToken");
    let decided = of_pod.and_then(Value::as_bool);
    decided
        .or_else(|| of_account.and_then(Value::as_bool))
        .unwrap_or(true)
}

fn mount_token(pod: &mut Value, new_volume: String) {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let mut names = volumes
        .into_iter()
        .flatten()
        .map(|volume| meta::text(volume, "/name"));
    let present = names.find(|name| name.starts_with(VOLUME_PREFIX));
    let present = present.map(str::to_owned);
    let (volume, is_new) = match present {
        Some(present) => (present, false),
        None => (new_volume, true),
    };
    let mut is_mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = pod
            .pointer_mut(&format!("/spec/{list}"))
            .and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            is_mounted |= mount(container, &volume);
        }
    }
    if is_new && is_mounted {
        push(&mut pod["spec"], "volumes", token_volume(&volume));
    }
}

/// Mounts the volume, unless the container has something else in its place.
fn mount(container: &mut Value, volume: &str) -> bool {
    let mounts = container.get("volumeMounts").and_then(Value::as_array);
    let mut mounts = mounts.into_iter().flatten();
    if mounts.any(|mount| meta::text(mount, "/mountPath") == MOUNT_PATH) {
        return false;
    }
    let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
    push(container, "volumeMounts", mount);
    true
}

/// Adds an item to a list, which is made if it is missing. What is no list is left for the validation.
fn push(object: &mut Value, key: &str, item: Value) {
    let list = meta::members(object).entry(key).or_insert(json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": MODE, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_LIFE, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{
            "path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
        }]}},
    ]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(spec: Value, account: Value) -> Value {
        let mut pod = json!({"spec": spec});
        complete(&mut pod, &account, "kube-api-access-abcde".to_owned());
        pod["spec"].take()
    }

    fn mount_of(volume: &str) -> Value {
        json!([{"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}])
    }

    #[test]
    fn the_token_is_mounted_into_each_container() {
        let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}]});
        let completed = completed(spec, json!({}));
        let mount = mount_of("kube-api-access-abcde");
        assert_eq!(completed["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(completed["containers"][0]["volumeMounts"], mount);
        assert_eq!(completed["containers"][1]["volumeMounts"], mount);
        let volumes = completed["volumes"].as_array().unwrap();
        assert_eq!(*volumes, [token_volume("kube-api-access-abcde")]);
    }

    #[test]
    fn a_volume_of_that_kind_is_used_and_a_mount_in_its_place_stays() {
        let own = json!([{"name": "own", "mountPath": MOUNT_PATH}]);
        let spec = json!({
            "containers": [{"name": "a", "volumeMounts": own.clone()}, {"name": "b"}],
            "volumes": [{"name": "own"}, {"name": "kube-api-access-mine"}],
        });
        let completed = completed(spec.clone(), json!({}));
        assert_eq!(completed["volumes"], spec["volumes"]);
        assert_eq!(completed["containers"][0]["volumeMounts"], own);
        let mount = mount_of("kube-api-access-mine");
        assert_eq!(completed["containers"][1]["volumeMounts"], mount);
    }

    #[test]
    fn a_volume_that_no_container_mounts_is_not_added() {
        let own = json!([{"name": "own", "mountPath": MOUNT_PATH}]);
        let spec = json!({"containers": [{"name": "a", "volumeMounts": own}]});
        assert_eq!(completed(spec.clone(), json!({})), spec);
    }

    #[test]
    fn the_pod_decides_whether_its_token_is_mounted_and_then_the_account() {
        for (of_pod, of_account, expected) in [
            (None, None, true),
            (Some(false), None, false),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), Some(true), false),
        ] {
            let pod = json!({"spec": {"automountServiceAccountToken": of_pod}});
            let account = json!({"automountServiceAccountToken": of_account});
            let found = mounts_token(&pod, &account);
            assert_eq!(found, expected, "{of_pod:?} {of_account:?}");
        }
    }

    #[test]
    fn secrets_of_images_come_from_the_account_where_the_pod_has_none() {
        let account = json!({
            "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "registry"}],
        });
        let without = completed(json!({"containers": []}), account.clone());
        assert_eq!(without["imagePullSecrets"], account["imagePullSecrets"]);
        let own = json!({"containers": [], "imagePullSecrets": [{"name": "own"}]});
        assert_eq!(completed(own.clone(), account), own);
    }

    #[test]
    fn a_refused_pod_is_named_as_far_as_it_is_known() {
        for (metadata, expected) in [
            (json!({"name": "p", "generateName": "g-"}), "p"),
            (json!({"generateName": "g-"}), "g-"),
            (json!({}), "Unknown"),
        ] {
            assert_eq!(shown_name(&json!({"metadata": metadata})), expected);
        }
    }
}
