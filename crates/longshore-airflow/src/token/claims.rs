//! What a token says.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use super::{TokenError, TokenRules};

/// What a token says. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The task instance.
    pub sub: Uuid,
    /// What it permits.
    #[serde(default)]
    pub scope: TokenScope,
    /// The token's own id.
    #[serde(default)]
    pub jti: String,
    /// Whom it is for: a text, or a list of several.
    #[serde(serialize_with = "write_one", deserialize_with = "read_one")]
    pub aud: Vec<String>,
    /// Who issued it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// It is valid from then on.
    pub nbf: i64,
    /// It is valid until then.
    pub exp: i64,
    /// It was issued then.
    pub iat: i64,
}

/// What a token permits. A token that does not say it is that of an execution.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// To begin the task.
    Workload,
    /// All that a running task may do.
    #[default]
    Execution,
}

impl TokenScope {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Execution => "execution",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn write_one<S: Serializer>(audiences: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    match audiences {
        [one] => one.serialize(serializer),
        many => many.serialize(serializer),
    }
}

fn read_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

impl Claims {
    /// Reads claims whose signature is good, and judges them.
    pub(super) fn read(
        payload: &[u8],
        rules: &TokenRules,
        now: Timestamp,
    ) -> Result<Self, TokenError> {
        let value: Value = serde_json::from_slice(payload)
            .map_err(|error| TokenError::Claims(error.to_string()))?;
        let issuer = rules.issuer.is_some().then_some("iss");
        let required = ["sub", "aud", "exp", "iat", "nbf"]
            .into_iter()
            .chain(issuer);
        for name in required {
            if value.get(name).is_none_or(Value::is_null) {
                return Err(TokenError::NoClaim(name));
            }
        }
        let claims: Self =
            serde_json::from_value(value).map_err(|error| TokenError::Claims(error.to_string()))?;
        claims.judge(rules, now)?;
        Ok(claims)
    }

    fn judge(&self, rules: &TokenRules, now: Timestamp) -> Result<(), TokenError> {
        let leeway = i64::try_from(rules.leeway.as_secs()).unwrap_or(i64::MAX);
        let now = now.as_second();
        let instant = |second| Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        // Python compares in this way: the second of the end is not valid any more.
        if self.exp <= now.saturating_sub(leeway) {
            let at = instant(self.exp);
            return Err(TokenError::Expired { at });
        }
        let from = self.nbf.max(self.iat);
        if from > now.saturating_add(leeway) {
            let from = instant(from);
            return Err(TokenError::NotYetValid { from });
        }
        if !self.aud.iter().any(|it| rules.audiences.contains(it)) {
            let found = self.aud.clone();
            return Err(TokenError::Audience { found });
        }
        match (&rules.issuer, &self.iss) {
            (Some(expected), found) if found.as_ref() != Some(expected) => {
                let found = found.clone().unwrap_or_default();
                Err(TokenError::Issuer { found })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}
