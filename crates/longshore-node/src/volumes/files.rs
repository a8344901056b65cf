//! Volumes that hold files made from API objects: configMap, secret, downwardAPI, projected.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};

use super::{Store, atomic::File};
use crate::{
    env::{field_of, resource_of},
    refusal::Refusal,
    sources::Kind,
};

/// Kubernetes' mode of files that ask for none.
const DEFAULT_MODE: i32 = 0o644;

type Payload = Result<Vec<File>, Refusal>;

/// Whether a volume holds files made from API objects.
pub(super) fn is_of_files(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// The files of a volume; `None` when it is of another kind.
pub(super) fn payload(store: &Store<'_>, volume: &Volume) -> Result<Option<Vec<File>>, Refusal> {
    let name = volume.name.as_str();
    let files = if let Some(v) = &volume.config_map {
        let items = Items {
            keys: v.items.as_deref(),
            optional: v.optional,
            mode: v.default_mode,
        };
        object(store, name, Kind::ConfigMap, &v.name, &items)
    } else if let Some(v) = &volume.secret {
        let items = Items {
            keys: v.items.as_deref(),
            optional: v.optional,
            mode: v.default_mode,
        };
        let secret = v.secret_name.as_deref().unwrap_or_default();
        object(store, name, Kind::Secret, secret, &items)
    } else if let Some(v) = &volume.downward_api {
        downward(
            store,
            name,
            v.items.as_deref().unwrap_or_default(),
            v.default_mode,
        )
    } else if let Some(v) = &volume.projected {
        let sources = v.sources.iter().flatten();
        let parts: Result<Vec<_>, _> = sources
            .map(|s| projection(store, name, s, v.default_mode))
            .collect();
        parts.map(|parts| parts.into_iter().flatten().collect())
    } else {
        return Ok(None);
    };
    files.map(Some)
}

fn projection(
    store: &Store<'_>,
    name: &str,
    source: &VolumeProjection,
    mode: Option<i32>,
) -> Payload {
    if let Some(v) = &source.config_map {
        let items = Items {
            keys: v.items.as_deref(),
            optional: v.optional,
            mode,
        };
        object(store, name, Kind::ConfigMap, &v.name, &items)
    } else if let Some(v) = &source.secret {
        let items = Items {
            keys: v.items.as_deref(),
            optional: v.optional,
            mode,
        };
        object(store, name, Kind::Secret, &v.name, &items)
    } else if let Some(v) = &source.downward_api {
        downward(store, name, v.items.as_deref().unwrap_or_default(), mode)
    } else if let Some(v) = &source.service_account_token {
        let token = store
            .sources
            .token(&(v.audience.clone(), v.expiration_seconds));
        let content = token.unwrap_or_default().as_bytes().to_vec();
        Ok(vec![entry(&v.path, content, None, mode)])
    } else {
        Err(Refusal::pod(format!(
            "volume {name} projects a source that this node does not know: it supports configMap, secret, \
             downwardAPI and serviceAccountToken"
        )))
    }
}

struct Items<'a> {
    keys: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
    mode: Option<i32>,
}

fn object(store: &Store<'_>, volume: &str, kind: Kind, name: &str, items: &Items<'_>) -> Payload {
    let is_optional = items.optional == Some(true);
    let Some(data) = store.sources.get(kind, name) else {
        if is_optional {
            return Ok(Vec::new());
        }
        return Err(Refusal::volume(format!(
            "volume {volume}: {kind} \"{name}\" not found"
        )));
    };
    let Some(keys) = items.keys.filter(|keys| !keys.is_empty()) else {
        return Ok(data
            .iter()
            .map(|(k, v)| entry(k, v.clone(), None, items.mode))
            .collect());
    };
    let mut all = Vec::new();
    for item in keys {
        match data.get(&item.key) {
            Some(value) => all.push(entry(&item.path, value.clone(), item.mode, items.mode)),
            None if is_optional => {}
            None => {
                let key = &item.key;
                let message = format!("volume {volume}: {kind} \"{name}\" has no key {key}");
                return Err(Refusal::volume(message));
            }
        }
    }
    Ok(all)
}

fn downward(
    store: &Store<'_>,
    volume: &str,
    items: &[DownwardAPIVolumeFile],
    mode: Option<i32>,
) -> Payload {
    let spec = store.pod.spec.as_ref();
    let value = |item: &DownwardAPIVolumeFile| {
        if let Some(field) = &item.field_ref {
            return field_of(store.pod, field, store.host);
        }
        let field = item.resource_field_ref.as_ref()?;
        let wanted = field.container_name.as_deref()?;
        let mut containers = spec.into_iter().flat_map(|s| &s.containers);
        resource_of(containers.find(|c| c.name == wanted)?, field, store.host)
    };
    let file = |item: &DownwardAPIVolumeFile| match value(item) {
        Some(text) => Ok(entry(&item.path, text.into_bytes(), item.mode, mode)),
        None => {
            let path = &item.path;
            Err(Refusal::pod(format!(
                "volume {volume}: the node cannot give the value of {path}"
            )))
        }
    };
    items.iter().map(file).collect()
}

fn entry(path: &str, content: Vec<u8>, mode: Option<i32>, default: Option<i32>) -> File {
    let mode = mode.or(default).unwrap_or(DEFAULT_MODE);
    File {
        path: path.to_owned(),
        content,
        mode: mode.cast_unsigned() & 0o777,
    }
}
