//! The tokens of workers: JSON Web Tokens that name a task instance, and what they permit.
//!
//! | Token | Where it travels | What it permits | How long |
//! |---|---|---|---|
//! | workload | in the pod's arguments | `/run` | [`workload_validity`] |
//! | execution | in the answer of `/run`, refreshed in later answers | everything | `[execution_api] jwt_expiration_time` |
//!
//! A task instance has a new id for each try, so a token of an earlier try names a task instance that is no more.
//! Source: spec 3.3; upstream `airflow.api_fastapi.auth.tokens` and `airflow.api_fastapi.execution_api.security`.

mod claims;
mod key;

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

pub use claims::{Claims, TokenScope};
pub use key::{Algorithm, KeyError, SigningKey};

use crate::api::{Access, ApiError};

/// `[execution_api] jwt_audience`.
pub const DEFAULT_AUDIENCE: &str = "urn:airflow.apache.org:task";
/// `[api_auth] jwt_leeway`.
pub const DEFAULT_LEEWAY: Duration = Duration::from_secs(10);
/// `[execution_api] jwt_expiration_time`.
pub const DEFAULT_VALIDITY: Duration = Duration::from_secs(600);

/// Signs and verifies tokens.
#[derive(Debug)]
pub struct Tokens {
    key: SigningKey,
    rules: TokenRules,
}

/// What a token has to say, besides its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// Whom a token is for: `[execution_api] jwt_audience`. The first one is written, any of them is accepted.
    pub audiences: Vec<String>,
    /// Who issues tokens: `[api_auth] jwt_issuer`. Without it, the issuer is neither written nor looked at.
    pub issuer: Option<String>,
    /// How far the clocks of two machines may be apart.
    pub leeway: Duration,
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            audiences: vec![DEFAULT_AUDIENCE.to_owned()],
            issuer: None,
            leeway: DEFAULT_LEEWAY,
        }
    }
}

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The request has none.
    #[error("Missing auth token")]
    Missing,
    /// The text is no token.
    #[error("expected three segments in base64url with a dot between them")]
    Malformed,
    /// It is signed in another way than this server signs.
    #[error("the token is signed with {found}, expected {expected}")]
    Algorithm {
        /// What its header says.
        found: String,
        /// What this server signs with.
        expected: Algorithm,
    },
    /// Its signature is not that of this server's key.
    #[error("Signature verification failed")]
    Forged,
    /// A claim is not there.
    #[error("Token is missing the \"{0}\" claim")]
    NoClaim(&'static str),
    /// A claim has another form.
    #[error("claims of another form: {0}")]
    Claims(String),
    /// Its time is over.
    #[error("Signature has expired")]
    Expired {
        /// Since then.
        at: Timestamp,
    },
    /// Its time has not come, or it was issued in the future.
    #[error("The token is not yet valid")]
    NotYetValid {
        /// Before then.
        from: Timestamp,
    },
    /// It is for somebody else.
    #[error("Audience doesn't match")]
    Audience {
        /// Whom it is for.
        found: Vec<String>,
    },
    /// Somebody else issued it.
    #[error("Invalid issuer")]
    Issuer {
        /// Who.
        found: String,
    },
    /// A token of this scope is not accepted here.
    #[error("a token of scope {0} is not accepted here")]
    TokenScope(TokenScope),
    /// It is the token of another task instance, perhaps of an earlier try of the same task.
    #[error("the token is that of task instance {found}")]
    OtherTaskInstance {
        /// Whose it is.
        found: Uuid,
    },
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        match &error {
            TokenError::Missing => Self::missing_token(),
            TokenError::TokenScope(scope) => {
                Self::scope_not_allowed(scope.as_str(), &[TokenScope::Execution.as_str()])
            }
            TokenError::OtherTaskInstance { .. } => Self::other_task_instance(),
            TokenError::Malformed
            | TokenError::Algorithm { .. }
            | TokenError::Forged
            | TokenError::NoClaim(_)
            | TokenError::Claims(_)
            | TokenError::Expired { .. }
            | TokenError::NotYetValid { .. }
            | TokenError::Audience { .. }
            | TokenError::Issuer { .. } => Self::invalid_token(&error),
        }
    }
}

/// The token of a header `Authorization: Bearer …`.
///
/// # Errors
/// There is no such header, or it holds something else.
pub fn bearer(authorization: Option<&str>) -> Result<&str, TokenError> {
    let (scheme, token) = authorization
        .and_then(|it| it.split_once(' '))
        .ok_or(TokenError::Missing)?;
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(TokenError::Missing)
    }
}

/// How long the token of a workload is valid: `[scheduler] task_queued_timeout`, and never shorter than the time for
/// which a pod may wait in Pending, which upstream does not look at.
#[must_use]
pub fn workload_validity(task_queued_timeout: Duration, longest_pending: Duration) -> Duration {
    task_queued_timeout.max(longest_pending)
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    typ: String,
}

impl Tokens {
    /// Tokens of this key and these rules.
    #[must_use]
    pub fn new(key: SigningKey, rules: TokenRules) -> Self {
        Self { key, rules }
    }

    /// The public key, as RFC 7517 has it; `None` of a shared secret.
    #[must_use]
    pub fn public_key(&self) -> Option<serde_json::Value> {
        self.key.to_jwk()
    }

    /// Issues the token of a task instance. `id` is random, and tells tokens apart.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn issue(
        &self,
        task_instance: Uuid,
        scope: TokenScope,
        validity: Duration,
        now: Timestamp,
        id: [u8; 16],
    ) -> Result<String, KeyError> {
        let validity = i64::try_from(validity.as_secs()).unwrap_or(i64::MAX);
        let claims = Claims {
            sub: task_instance,
            scope,
            jti: Uuid::from_bytes(id).simple().to_string(),
            aud: self.rules.audiences.iter().take(1).cloned().collect(),
            iss: self.rules.issuer.clone(),
            nbf: now.as_second(),
            exp: now.as_second().saturating_add(validity),
            iat: now.as_second(),
        };
        let header = Header {
            alg: self.key.algorithm().as_str().to_owned(),
            kid: self.key.id().to_owned(),
            typ: "JWT".to_owned(),
        };
        let encode = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(json!(header)), encode(json!(claims)));
        let signature = self.key.sign(signed.as_bytes())?;
        Ok(format!(
            "{signed}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    /// Issues the token that follows one which ends soon: the same task instance and scope, from now on.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn refresh(
        &self,
        claims: &Claims,
        validity: Duration,
        now: Timestamp,
        id: [u8; 16],
    ) -> Result<String, KeyError> {
        self.issue(claims.sub, claims.scope, validity, now, id)
    }

    /// Verifies a token: its signature first, then its time, and whom it is for.
    ///
    /// # Errors
    /// The first reason for which it is not accepted.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |text: &str| {
            let decoded = BASE64_URL_SAFE_NO_PAD.decode(text);
            decoded.map_err(|_| TokenError::Malformed)
        };
        let header: Header =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        let expected = self.key.algorithm();
        if header.alg != expected.as_str() {
            let found = header.alg;
            return Err(TokenError::Algorithm { found, expected });
        }
        let signature = decode(signature)?;
        if !self.key.has_signed(signed.as_bytes(), &signature) {
            return Err(TokenError::Forged);
        }
        Claims::read(&decode(payload)?, &self.rules, now)
    }
}

impl Claims {
    /// Whether the token permits a request to a route with this access. `task_instance` is the one of the path.
    ///
    /// # Errors
    /// The scope is not enough, or the token is that of another task instance.
    pub fn permit(&self, access: Access, task_instance: Option<Uuid>) -> Result<(), TokenError> {
        let is_own = task_instance == Some(self.sub);
        let (accepts_workload, needs_own) = match access {
            Access::Open => return Ok(()),
            Access::Task => (false, false),
            Access::TaskOrWorkload => (true, false),
            Access::SameTask => (false, true),
            Access::SameTaskOrWorkload => (true, true),
        };
        if self.scope == TokenScope::Workload && !accepts_workload {
            return Err(TokenError::TokenScope(self.scope));
        }
        if needs_own && !is_own {
            return Err(TokenError::OtherTaskInstance { found: self.sub });
        }
        Ok(())
    }

    /// Whether an answer should carry a new token: at most a fifth of `validity`, or 30 s if that is more, is left.
    /// The token of a workload is exchanged by `/run` alone.
    #[must_use]
    pub fn is_due(&self, validity: Duration, now: Timestamp) -> bool {
        let limit = i64::try_from(validity.as_secs() / 5)
            .unwrap_or(i64::MAX)
            .max(30);
        let left = self.exp.saturating_sub(now.as_second());
        self.scope == TokenScope::Execution && left <= limit
    }
}

#[cfg(test)]
mod tests;
