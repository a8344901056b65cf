//! The ConfigMaps, Secrets and tokens that a pod refers to, read once per preparation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::{env::EnvError, pod::ephemeral};

/// Between the requests for a token at least, in seconds: also where the API server grants a shorter life.
const SHORTEST_WAIT: i64 = 10;
/// At most, in seconds.
const LONGEST_WAIT: i64 = 24 * 3600;

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

/// The tokens of a pod.
pub(crate) type Tokens = BTreeMap<TokenKey, Token>;

/// A token of a service account.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    text: String,
    /// When the node gets the next one.
    pub(crate) renew_at: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("renew_at", &self.renew_at)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// A token that was issued just now. It is renewed after 80 % of its life, and after a day at the latest, as by a
    /// kubelet.
    fn new(text: String, expires_at: Timestamp, now: Timestamp) -> Self {
        let life = expires_at.duration_since(now).as_secs();
        let wait = (life.saturating_mul(4) / 5).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        let renew_at = now.checked_add(SignedDuration::from_secs(wait));
        Self {
            text,
            renew_at: renew_at.unwrap_or(Timestamp::MAX),
        }
    }
}

/// Everything a pod refers to; an object that does not exist is there as `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    objects: BTreeMap<(Kind, String), Option<Data>>,
    tokens: Tokens,
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
        self.tokens.get(key).map(|token| token.text.as_str())
    }

    /// The tokens, for the next read.
    pub(crate) fn into_tokens(self) -> Tokens {
        self.tokens
    }

    pub(crate) fn insert(&mut self, kind: Kind, name: &str, data: Option<Data>) {
        self.objects.insert((kind, name.to_owned()), data);
    }
}

/// Reads everything that the pod refers to, each object once. Of the tokens it requests those that are not known, or are to be
/// renewed.
pub(crate) async fn read(
    client: &Client,
    pod: &Pod,
    known: &Tokens,
    now: Timestamp,
) -> Result<Sources, kube::Error> {
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
        let token = match known.get(&key) {
            Some(token) if token.renew_at > now => token.clone(),
            Some(_) | None => request_token(client, pod, &namespace, &key, now).await?,
        };
        sources.tokens.insert(key, token);
    }
    Ok(sources)
}

fn config_map_data(map: ConfigMap) -> Data {
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

fn secret_data(secret: Secret) -> Data {
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
    let ephemeral = ephemeral::containers(spec);
    let init = spec.init_containers.iter().flatten();
    for container in init.chain(&spec.containers).chain(&ephemeral) {
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

/// Whether volumes of the pod hold tokens.
pub(crate) fn has_tokens(pod: &Pod) -> bool {
    !token_references(pod).is_empty()
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
    now: Timestamp,
) -> Result<Token, kube::Error> {
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
    let status = answer.status;
    let expires_at = status.as_ref().map_or(now, |s| s.expiration_timestamp.0);
    let text = status.map(|s| s.token).unwrap_or_default();
    Ok(Token::new(text, expires_at, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_after_four_fifths_of_its_life_and_within_a_day() {
        let now = Timestamp::UNIX_EPOCH;
        let in_seconds = |seconds| now + SignedDuration::from_secs(seconds);
        for (life, expected) in [
            (3600, 2880),
            (600, 480),
            (30 * 24 * 3600, 24 * 3600),
            (1, 10),
            (-5, 10),
        ] {
            let token = Token::new("secret".to_owned(), in_seconds(life), now);
            assert_eq!(token.renew_at, in_seconds(expected), "{life}");
            assert!(!format!("{token:?}").contains("secret"));
        }
    }
}
