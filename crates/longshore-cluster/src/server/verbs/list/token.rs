//! `continue` tokens: where the next page starts, and in which state.

use serde_json::{Value, json};

use crate::server::error::{ApiError, Result};

/// The place at which a list continues: the content of the token `continue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Continuation {
    /// The revision of the first page; `None` goes on in the newest state.
    pub(super) revision: Option<u64>,
    /// The first key of the next page.
    pub(super) start: String,
}

impl Continuation {
    /// The token: hexadecimal JSON, opaque to clients and safe in a URL.
    pub(super) fn encode(&self) -> String {
        let revision = self.revision.map_or(json!(-1), Value::from);
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": self.start});
        token
            .to_string()
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Reads a token.
    pub(super) fn decode(token: &str) -> Result<Continuation> {
        read(token).ok_or_else(|| ApiError::bad_request("continue key is not valid: unknown token"))
    }
}

fn read(token: &str) -> Option<Continuation> {
    let pairs = token.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let token: Value = serde_json::from_slice(&bytes?).ok()?;
    Some(Continuation {
        revision: token.get("rv")?.as_u64(),
        start: token.get("start")?.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_way_to_the_client_and_back() {
        for revision in [None, Some(7)] {
            let continuation = Continuation {
                revision,
                start: "ns/näme".to_owned(),
            };
            assert_eq!(
                Continuation::decode(&continuation.encode()),
                Ok(continuation)
            );
        }
        for broken in ["x", "zz", "7b7d", "{}", ""] {
            assert!(Continuation::decode(broken).is_err(), "{broken:?}");
        }
    }
}
