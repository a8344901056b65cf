//! Volumes that hold files made from API objects: configMap, secret, downwardAPI, projected.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};

use super::Store;
use crate::{
    env::{field_of, resource_of},
    private_dir,
    refusal::Refusal,
    sources::Kind,
};

/// Kubernetes' mode of files that ask for none.
const DEFAULT_MODE: i32 = 0o644;

/// One file of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Relative to the volume.
    path: String,
    content: Vec<u8>,
    mode: u32,
}

type Payload = Result<Vec<Entry>, Refusal>;

/// The files of a volume; `None` when it is of another kind.
pub(super) fn payload(store: &Store<'_>, volume: &Volume) -> Result<Option<Vec<Entry>>, Refusal> {
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

fn entry(path: &str, content: Vec<u8>, mode: Option<i32>, default: Option<i32>) -> Entry {
    let mode = mode.or(default).unwrap_or(DEFAULT_MODE);
    Entry {
        path: path.to_owned(),
        content,
        mode: mode.cast_unsigned() & 0o777,
    }
}

/// Writes the files as Kubernetes lays them out: real ones in a hidden directory, links to them on top.
///
/// A program that follows `..data` sees all files of one version; a volume that exists stays as it is.
pub(super) fn write(dir: &Path, files: &[Entry]) -> io::Result<()> {
    if dir.join("..data").exists() {
        return Ok(());
    }
    let hidden = dir.join("..1");
    private_dir::make_readable(dir, &hidden)?;
    for file in files {
        let path = hidden.join(&file.path);
        if let Some(parent) = path.parent() {
            private_dir::make_readable(&hidden, parent)?;
        }
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
        let top = Path::new(&file.path).components().next();
        if let Some(top) = top.filter(|top| !dir.join(top).exists()) {
            let link = dir.join(top);
            drop(fs::remove_file(&link));
            symlink(Path::new("..data").join(top), link)?;
        }
    }
    // Last, because it says that the volume is complete.
    symlink("..1", dir.join("..data"))
}
