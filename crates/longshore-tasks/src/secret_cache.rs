//! Values of secrets that the webhook has looked up, and how it learns that one has changed (task action spec §13).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use http::StatusCode;
use longshore_plugins::secret_name;
use serde::Deserialize;

/// So many values are kept; one more, and all are looked up again.
const MAX_VALUES: usize = 10_000;

/// A secret that was looked up.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptSecret {
    /// Under which key the Kubernetes Secret has it.
    pub key: Arc<str>,
    /// Its value.
    pub value: Arc<[u8]>,
}

impl std::fmt::Debug for KeptSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptSecret").finish_non_exhaustive()
    }
}

/// Values of secrets by the names of the Kubernetes Secrets that hold them.
#[derive(Default)]
pub struct SecretCache {
    values: Mutex<BTreeMap<String, KeptSecret>>,
}

impl std::fmt::Debug for SecretCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretCache").finish_non_exhaustive()
    }
}

/// A secret that was changed, in the words of the secret service. An empty project or domain is any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Changed {
    org: String,
    domain: String,
    project: String,
    name: String,
}

impl SecretCache {
    /// The value in a Kubernetes Secret, where it was looked up.
    pub fn get(&self, name: &str) -> Option<KeptSecret> {
        self.values().get(name).cloned()
    }

    /// Keeps the value in a Kubernetes Secret.
    pub fn keep(&self, name: &str, secret: KeptSecret) {
        let mut values = self.values();
        if values.len() >= MAX_VALUES {
            values.clear();
        }
        values.insert(name.to_owned(), secret);
    }

    /// Looks a value up again when it is asked for next.
    pub fn forget(&self, name: &str) {
        self.values().remove(name);
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<String, KeptSecret>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `POST /invalidate-secret`, for the peer's secret service: plain HTTP at `webhook.cacheInvalidationPort`.
pub fn router(cache: Arc<SecretCache>) -> Router {
    Router::new()
        .route("/invalidate-secret", post(invalidate))
        .with_state(cache)
}

async fn invalidate(
    State(cache): State<Arc<SecretCache>>,
    body: Bytes,
) -> Result<StatusCode, (StatusCode, String)> {
    let refuse = |why: String| Err((StatusCode::BAD_REQUEST, why));
    let changed: Changed = match serde_json::from_slice(&body) {
        Ok(changed) => changed,
        Err(error) => return refuse(format!("expected org, domain, project and name: {error}")),
    };
    if changed.name.is_empty() {
        return refuse("name is required".to_owned());
    }
    let Changed {
        org,
        domain,
        project,
        name,
    } = &changed;
    cache.forget(&secret_name(org, domain, project, name));
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::serve;

    #[tokio::test]
    async fn a_secret_that_was_changed_is_looked_up_again_and_no_other_one() {
        let cache = Arc::new(SecretCache::default());
        let names = [
            secret_name("o", "d", "p", "k"),
            secret_name("o", "d", "", "k"),
        ];
        for name in &names {
            let secret = KeptSecret {
                key: Arc::from("k"),
                value: Arc::from(&b"v"[..]),
            };
            cache.keep(name, secret);
        }
        let url = serve(router(Arc::clone(&cache))).await + "/invalidate-secret";
        let http = reqwest::Client::new();
        let post = async |body: &'static str| {
            let sent = http.post(&url).body(body).send().await.unwrap();
            sent.status().as_u16()
        };
        for bad in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"org":"o","domain":"d","project":"p"}"#,
        ] {
            assert_eq!(post(bad).await, 400, "{bad}");
        }
        assert_eq!(http.get(&url).send().await.unwrap().status().as_u16(), 405);
        assert!(names.iter().all(|name| cache.get(name).is_some()));
        let changed = r#"{"org":"o","domain":"d","project":"p","name":"k"}"#;
        assert_eq!(post(changed).await, 200);
        assert_eq!(cache.get(&names[0]), None);
        assert!(cache.get(&names[1]).is_some());
    }
}
