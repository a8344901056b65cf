//! The ConfigMaps, Secrets and tokens that a pod refers to, read once per preparation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::env::EnvError;

/// A source of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        })
    }
}

/// The values of one object.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

/// What a service account token must be good for: its audience and its life in seconds.
pub(crate) type TokenKey = (Option<String>, Option<i64>);

/// Everything a pod refers to; an object that does not exist is there as `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    objects: BTreeMap<(Kind, String), Option<Data>>,
    tokens: BTreeMap<TokenKey, String>,
}

impl Sources {
    /// The values of an object, if it exists.
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Data> {
        self.objects.get(&(kind, name.to_owned()))?.as_ref()
    }

    /// One value; `None` where it is missing and may be.
    pub(crate) fn key(
        &self,
        kind: Kind,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, EnvError> {
        let name = name.to_owned();
        match self.get(kind, &name).map(|data| data.get(key)) {
            Some(Some(value)) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            _ if optional => Ok(None),
            Some(None) => Err(EnvError::NoKey {
                kind,
                name,
                key: key.to_owned(),
            }),
            None => Err(EnvError::NoObject { kind, name }),
        }
    }

    pub(crate) fn token(&self, key: &TokenKey) -> Option<&str> {
        self.tokens.get(key).map(String::as_str)
    }

    pub(crate) fn insert(&mut self, kind: Kind, name: &str, data: Option<Data>) {
        self.objects.insert((kind, name.to_owned()), data);
    }
}

/// Reads everything that the pod refers to, each object once.
pub(crate) async fn read(client: &Client, pod: &Pod) -> Result<Sources, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut sources = Sources::default();
    for (kind, name) in references(pod) {
        let data = match kind {
            Kind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
                api.get_opt(&name).await?.map(config_map_data)
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(client.clone(), &namespace);
                api.get_opt(&name).await?.map(secret_data)
            }
        };
        sources.insert(kind, &name, data);
    }
    for key in token_references(pod) {
        let token = request_token(client, pod, &namespace, &key).await?;
        sources.tokens.insert(key, token);
    }
    Ok(sources)
}

pub(crate) fn config_map_data(map: ConfigMap) -> Data {
    let text = map
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(k, v)| (k, v.into_bytes()));
    let binary = map
        .binary_data
        .unwrap_or_default()
        .into_iter()
        .map(|(k, v)| (k, v.0));
    text.chain(binary).collect()
}

pub(crate) fn secret_data(secret: Secret) -> Data {
    secret
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(k, v)| (k, v.0))
        .collect()
}

/// Every object that variables and volumes take values from.
fn references(pod: &Pod) -> BTreeSet<(Kind, String)> {
    let mut all = in_volumes(pod);
    let Some(spec) = &pod.spec else { return all };
    let mut add = |kind, name: &str| {
        all.insert((kind, name.to_owned()));
    };
    for container in spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
    {
        for from in container.env_from.iter().flatten() {
            from.config_map_ref
                .iter()
                .for_each(|r| add(Kind::ConfigMap, &r.name));
            from.secret_ref
                .iter()
                .for_each(|r| add(Kind::Secret, &r.name));
        }
        for from in container
            .env
            .iter()
            .flatten()
            .filter_map(|v| v.value_from.as_ref())
        {
            from.config_map_key_ref
                .iter()
                .for_each(|r| add(Kind::ConfigMap, &r.name));
            from.secret_key_ref
                .iter()
                .for_each(|r| add(Kind::Secret, &r.name));
        }
    }
    all
}

/// Every object that volumes take values from.
pub(crate) fn in_volumes(pod: &Pod) -> BTreeSet<(Kind, String)> {
    let mut all = BTreeSet::new();
    let Some(spec) = &pod.spec else { return all };
    let mut add = |kind, name: &str| {
        all.insert((kind, name.to_owned()));
    };
    for volume in spec.volumes.iter().flatten() {
        volume
            .config_map
            .iter()
            .for_each(|v| add(Kind::ConfigMap, &v.name));
        volume
            .secret
            .iter()
            .flat_map(|v| &v.secret_name)
            .for_each(|name| add(Kind::Secret, name));
        for source in volume.projected.iter().flat_map(|p| &p.sources).flatten() {
            source
                .config_map
                .iter()
                .for_each(|v| add(Kind::ConfigMap, &v.name));
            source
                .secret
                .iter()
                .for_each(|v| add(Kind::Secret, &v.name));
        }
    }
    all
}

fn token_references(pod: &Pod) -> BTreeSet<TokenKey> {
    let volumes = pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    let sources = volumes
        .filter_map(|v| v.projected.as_ref())
        .flat_map(|p| &p.sources)
        .flatten();
    let tokens = sources.filter_map(|s| s.service_account_token.as_ref());
    tokens
        .map(|t| (t.audience.clone(), t.expiration_seconds))
        .collect()
}

async fn request_token(
    client: &Client,
    pod: &Pod,
    namespace: &str,
    (audience, expiration_seconds): &TokenKey,
) -> Result<String, kube::Error> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|s| s.service_account_name.as_deref());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audience.iter().cloned().collect(),
            expiration_seconds: *expiration_seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let api = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.map(|s| s.token).unwrap_or_default())
}
