//! What is kept of certificates and tokens, in a Secret with the keys of type `kubernetes.io/tls`: each replica serves and
//! accepts what the Secret holds. Pure.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{issue::Pair, tokens::Tokens};

/// Certificates and tokens, as the Secret has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The certificate that is served, with its key.
    pub(crate) current: Pair,
    /// The next certificate, served once every API server trusts it, and since when it waits for that.
    pub(crate) next: Option<(Pair, Timestamp)>,
    /// The authority of the certificate before: a replica may not have read the new certificate yet.
    pub(crate) previous_authority: Option<String>,
    /// The names that the certificates are issued for.
    pub(crate) names: Vec<String>,
    /// What callers name in the path; `None` where a version without tokens has written the Secret.
    pub(crate) tokens: Option<Tokens>,
}

/// Fields that certificates do not hold in a form that this crate reads.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct State {
    names: Vec<String>,
    not_after: Timestamp,
    next: Option<NextState>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NextState {
    not_after: Timestamp,
    made_at: Timestamp,
}

const STATE: &str = "state.json";
/// A key of its own: a version without tokens leaves it alone.
const TOKENS: &str = "tokens.json";
const PREVIOUS: &str = "previous-ca.crt";
/// Authority, certificate, key.
const CURRENT: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
const NEXT: [&str; 3] = ["next-ca.crt", "next-tls.crt", "next-tls.key"];

impl Kept {
    /// What a Secret holds; `None` where Longshore did not write it.
    pub(crate) fn of(secret: &Value) -> Option<Self> {
        let text = |key: &str| {
            let data = secret["data"][key].as_str()?;
            String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()
        };
        let pair = |[authority, certificate, key]: [&str; 3], not_after| {
            Some(Pair {
                authority: text(authority)?,
                certificate: text(certificate)?,
                key: text(key)?,
                not_after,
            })
        };
        let state: State = serde_json::from_str(&text(STATE)?).ok()?;
        Some(Self {
            current: pair(CURRENT, state.not_after)?,
            next: match state.next {
                None => None,
                Some(next) => Some((pair(NEXT, next.not_after)?, next.made_at)),
            },
            previous_authority: text(PREVIOUS),
            names: state.names,
            tokens: text(TOKENS).and_then(|tokens| serde_json::from_str(&tokens).ok()),
        })
    }

    /// The field `data` of the Secret; null removes what was there.
    pub(crate) fn data(&self) -> Value {
        let encode = |text: &str| Value::from(BASE64_STANDARD.encode(text));
        let state = State {
            names: self.names.clone(),
            not_after: self.current.not_after,
            next: self.next.as_ref().map(|(next, made_at)| NextState {
                not_after: next.not_after,
                made_at: *made_at,
            }),
        };
        let mut data = Map::new();
        data.insert(STATE.to_owned(), encode(&json!(state).to_string()));
        let tokens = self.tokens.as_ref();
        let tokens = tokens.map_or(Value::Null, |tokens| encode(&json!(tokens).to_string()));
        data.insert(TOKENS.to_owned(), tokens);
        let previous = self.previous_authority.as_deref();
        data.insert(PREVIOUS.to_owned(), previous.map_or(Value::Null, encode));
        for (keys, pair) in [
            (CURRENT, Some(&self.current)),
            (NEXT, self.next.as_ref().map(|(next, _)| next)),
        ] {
            let texts = pair.map(|pair| [&pair.authority, &pair.certificate, &pair.key]);
            for (at, key) in keys.into_iter().enumerate() {
                let text = texts.map_or(Value::Null, |texts| encode(texts[at]));
                data.insert(key.to_owned(), text);
            }
        }
        Value::Object(data)
    }

    /// Every authority that may vouch for what a replica serves now or soon.
    pub(crate) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|(next, _)| next.authority.as_str());
        let all = [
            self.previous_authority.as_deref(),
            Some(self.current.authority.as_str()),
            next,
        ];
        all.into_iter().flatten().collect()
    }
}
