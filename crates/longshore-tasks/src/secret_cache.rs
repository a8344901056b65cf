//! Values of secrets that the webhook has looked up, and how it learns that one has changed (task action spec §13).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};
use longshore_plugins::secret_name;
use serde::Deserialize;
use subtle::ConstantTimeEq;

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

/// What callers of `POST /invalidate-secret` show as bearer token.
#[derive(Clone)]
pub struct InvalidationToken(Arc<str>);

/// Why a text cannot be the token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a token of at least {MIN_TOKEN} characters in webhook.cacheInvalidationTokenFile, found {0}; make one with `openssl rand -hex 32`"
)]
pub struct TooShort(usize);

/// Shorter tokens can be guessed.
const MIN_TOKEN: usize = 32;

impl InvalidationToken {
    /// The text of its file. Line breaks around it do not count.
    ///
    /// # Errors
    /// It is so short that it can be guessed.
    pub fn new(text: &str) -> Result<Self, TooShort> {
        let text = text.trim();
        if text.len() < MIN_TOKEN {
            return Err(TooShort(text.len()));
        }
        Ok(Self(text.into()))
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let header = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = header.and_then(|header| header.strip_prefix(b"Bearer "));
        token.is_some_and(|token| self.0.as_bytes().ct_eq(token).into())
    }
}

impl std::fmt::Debug for InvalidationToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InvalidationToken(hidden)")
    }
}

/// `POST /invalidate-secret`, for the peer's secret service: plain HTTP at `webhook.cacheInvalidationPort`. A client that does
/// not show the token gets 401, and its body is not read.
pub fn router(cache: Arc<SecretCache>, token: InvalidationToken) -> Router {
    Router::new()
        .route("/invalidate-secret", post(invalidate))
        .layer(middleware::from_fn_with_state(token, check))
        .with_state(cache)
}

async fn check(State(token): State<InvalidationToken>, request: Request, next: Next) -> Response {
    if token.is_in(request.headers()) {
        next.run(request).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
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
    use longshore_test::serve;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn kept() -> KeptSecret {
        KeptSecret {
            key: Arc::from("k"),
            value: Arc::from(&b"v"[..]),
        }
    }

    /// The body that the documentation shows.
    fn documented() -> &'static str {
        let page = include_str!("../../../docs/secrets.md");
        let (_, command) = page.split_once("/invalidate-secret -H").unwrap();
        let (_, body) = command.split_once(" -d '").unwrap();
        body.split_once('\'').unwrap().0
    }

    #[tokio::test]
    async fn whoever_does_not_show_the_token_gets_401_and_changes_nothing() {
        let cache = Arc::new(SecretCache::default());
        let name = secret_name("o", "d", "p", "k");
        cache.keep(&name, kept());
        let token = InvalidationToken::new(TOKEN).unwrap();
        assert_eq!(format!("{token:?}"), "InvalidationToken(hidden)");
        let url = serve(router(Arc::clone(&cache), token)).await + "/invalidate-secret";
        let changed = r#"{"org":"o","domain":"d","project":"p","name":"k"}"#;
        let longer = format!("{TOKEN}0");
        for token in [None, Some(""), Some(&TOKEN[1..]), Some(longer.as_str())] {
            let request = reqwest::Client::new().post(&url).body(changed);
            let request = match token {
                None => request,
                Some(token) => request.bearer_auth(token),
            };
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 401, "{token:?}");
            assert_eq!(answer.text().await.unwrap(), "");
        }
        assert!(cache.get(&name).is_some());
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        assert_eq!(InvalidationToken::new(" short\n").unwrap_err(), TooShort(5));
    }

    #[tokio::test]
    async fn a_secret_that_was_changed_is_looked_up_again_and_no_other_one() {
        let cache = Arc::new(SecretCache::default());
        let names = [
            secret_name("o", "d", "p", "k"),
            secret_name("o", "d", "", "k"),
        ];
        for name in &names {
            cache.keep(name, kept());
        }
        let token = InvalidationToken::new(&format!("{TOKEN}\n")).unwrap();
        let url = serve(router(Arc::clone(&cache), token)).await + "/invalidate-secret";
        let http = reqwest::Client::new();
        let post = async |body: &'static str| {
            let sent = http.post(&url).bearer_auth(TOKEN).body(body).send();
            sent.await.unwrap().status().as_u16()
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
        let got = http.get(&url).bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(got.status().as_u16(), 405);
        assert!(names.iter().all(|name| cache.get(name).is_some()));
        let changed = r#"{"org":"o","domain":"d","project":"p","name":"k"}"#;
        assert_eq!(post(changed).await, 200);
        assert_eq!(cache.get(&names[0]), None);
        assert!(cache.get(&names[1]).is_some());

        let of_page = secret_name("flyte", "production", "reports", "db-password");
        cache.keep(&of_page, kept());
        assert_eq!(post(documented()).await, 200);
        assert_eq!(cache.get(&of_page), None);
    }
}
