//! Who sends a request.
//!
//! `wire` finds the user of a request that comes over the network, and puts an `Arc<UserInfo>` into the
//! extensions of the request. `http` takes it from there; a request from this process without a user is one of
//! [`UserInfo::admin`]. A [`Call`](super::verbs::Call) carries the user to the verbs, to reviews and to webhooks.
//!
//! `token` is the form and the judgement of service account tokens (pure), `key` what signs them.

mod key;
#[cfg(test)]
mod tests;
mod token;
mod user;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use ::http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    error::{ApiError, Result},
    http::body::{self, ApiBody},
    hub::{Collection, Key},
    registry::Registry,
};

pub(crate) use key::KeyError;
pub(crate) use token::{Claims, ISSUER, Kubernetes, Named, TokenError};
pub(crate) use user::UserInfo;

use key::SigningKey;
use token::Present;

/// The file of a directory that keeps the key.
const KEY_FILE: &str = "sa.key";

/// What authentication knows: keys, tokens of the administrator, and the objects that tokens depend on.
pub(crate) struct Authentication {
    keys: RwLock<Keys>,
    /// Digests of the administrator's tokens, so that the time of a comparison reveals nothing about them.
    admins: RwLock<Vec<[u8; 32]>>,
    accounts: Arc<Collection>,
    pods: Arc<Collection>,
    secrets: Arc<Collection>,
    nodes: Arc<Collection>,
}

#[derive(Default)]
struct Keys {
    /// The first one signs, every one is accepted.
    all: Vec<Arc<SigningKey>>,
    /// A directory keeps the first one.
    is_kept: bool,
}

/// A token that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) user: UserInfo,
    /// The wanted audiences that the token is for.
    pub(crate) audiences: Vec<String>,
}

impl Authentication {
    #[expect(clippy::expect_used, reason = "rows of the built-in table")]
    pub(crate) fn new(registry: &Registry) -> Authentication {
        let collection = |plural: &str| {
            let served = registry.find("", "v1", plural);
            served.expect("find a built-in resource").collection
        };
        Authentication {
            keys: RwLock::default(),
            admins: RwLock::default(),
            accounts: collection("serviceaccounts"),
            pods: collection("pods"),
            secrets: collection("secrets"),
            nodes: collection("nodes"),
        }
    }

    /// Signs with the key that a directory keeps, from now on; makes one where there is none. A key that signed before is
    /// accepted as long as this process lives. Does nothing where a directory keeps the key already.
    pub(crate) fn keep_key(&self, directory: &Path) -> Result<(), KeyError> {
        let path = key_path(directory);
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.is_kept {
            return Ok(());
        }
        match (SigningKey::read(&path)?, keys.all.first()) {
            (Some(kept), _) => keys.all.insert(0, Arc::new(kept)),
            (None, Some(present)) => present.write(&path)?,
            (None, None) => {
                let new = SigningKey::generate()?;
                new.write(&path)?;
                keys.all.push(Arc::new(new));
            }
        }
        keys.is_kept = true;
        Ok(())
    }

    fn keys(&self) -> Vec<Arc<SigningKey>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.all.clone()
    }

    /// The key that signs. A cluster in memory that nobody serves makes one at the first token.
    fn signing_key(&self) -> Result<Arc<SigningKey>, rcgen::Error> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.all.first() {
            return Ok(Arc::clone(key));
        }
        let key = Arc::new(SigningKey::generate()?);
        keys.all.push(Arc::clone(&key));
        Ok(key)
    }

    /// Takes a token for one of the administrator from now on.
    pub(crate) fn add_admin(&self, token: &str) {
        let mut admins = self.admins.write().unwrap_or_else(PoisonError::into_inner);
        admins.push(digest(token));
    }

    fn is_admin(&self, token: &str) -> bool {
        let digest = digest(token);
        let admins = self.admins.read().unwrap_or_else(PoisonError::into_inner);
        admins.contains(&digest)
    }

    /// Signs a token.
    pub(crate) fn issue(&self, claims: &Claims) -> Result<String> {
        let key = self.signing_key().map_err(ApiError::internal)?;
        token::encode(&key, claims)
            .map_err(|_| ApiError::internal("failed to sign the token of a service account"))
    }

    /// The user of a bearer token, and the wanted audiences that the token is for.
    pub(crate) fn accept(
        &self,
        token: &str,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<Accepted, TokenError> {
        if self.is_admin(token) {
            return Ok(Accepted {
                user: UserInfo::admin(),
                audiences: wanted.to_vec(),
            });
        }
        let parts = token::parse(token).ok_or(TokenError::Unrecognised)?;
        let keys = self.keys();
        let key = keys.iter().find(|key| key.id == parts.key);
        let key = key.ok_or(TokenError::UnknownKey)?;
        if !key.has_signed(parts.signed.as_bytes(), &parts.signature) {
            return Err(TokenError::Signature);
        }
        let audiences = token::shared_audiences(&parts.claims, wanted)?;
        let user = token::judge(&parts.claims, &self.present(&parts.claims), now)?;
        Ok(Accepted { user, audiences })
    }

    /// The objects that claims name, as they are now.
    fn present(&self, claims: &Claims) -> Present {
        let about = &claims.kubernetes;
        let find = |collection: &Collection, namespace: Option<&str>, named: &Named| {
            let object = collection.get(&Key::new(namespace, &named.name));
            object.map(|object| object.value())
        };
        let namespace = Some(about.namespace.as_str());
        let bound = |collection: &Collection, named: &Option<Named>| {
            let named = named.as_ref()?;
            find(collection, namespace, named)
        };
        Present {
            account: find(&self.accounts, namespace, &about.serviceaccount),
            pod: bound(&self.pods, &about.pod),
            secret: bound(&self.secrets, &about.secret),
            node: match (&about.node, &about.pod) {
                (Some(node), None) => find(&self.nodes, None, node),
                (Some(_) | None, _) => None,
            },
        }
    }

    /// The public keys.
    fn public_keys(&self) -> Result<Value> {
        self.signing_key().map_err(ApiError::internal)?;
        let keys: Vec<Value> = self.keys().iter().map(|key| key.to_jwk()).collect();
        Ok(json!({"keys": keys}))
    }
}

/// What others need to check tokens themselves (OpenID Connect Discovery); `None` for another path.
pub(crate) fn document(auth: &Authentication, path: &str) -> Result<Option<Response<ApiBody>>> {
    Ok(match path {
        ".well-known/openid-configuration" => {
            let document = json!({
                "issuer": ISSUER,
                "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            });
            Some(body::json(StatusCode::OK, &document))
        }
        "openid/v1/jwks" => {
            let mut response = body::json(StatusCode::OK, &auth.public_keys()?);
            let content_type = HeaderValue::from_static("application/jwk-set+json");
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            Some(response)
        }
        _ => None,
    })
}

/// The file that keeps the key of a directory.
pub(crate) fn key_path(directory: &Path) -> PathBuf {
    directory.join(KEY_FILE)
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}
