//! The bearer token that authenticates a client.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// A bearer token. Its text is written only to the client's file and to the `Authorization` header.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// A new one: 244 random bits, as 64 hexadecimal digits.
    pub fn generate() -> Self {
        Self(format!(
            "{}{}",
            Uuid::new_v4().simple(),
            Uuid::new_v4().simple()
        ))
    }

    /// The token with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text, for a place that keeps secrets.
    pub fn into_text(self) -> String {
        self.0
    }

    /// Whether a caller's text is the token, in a time that does not reveal how much of it is right.
    pub fn is(&self, text: &str) -> bool {
        !self.0.is_empty() && bool::from(self.0.as_bytes().ct_eq(text.as_bytes()))
    }

    /// The value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new("abc");
        assert!(token.is("abc"));
        for other in ["", "ab", "abcd", "ABC"] {
            assert!(!token.is(other), "{other}");
        }
        assert!(!Token::new("").is(""), "an empty token lets no client in");
    }

    #[test]
    fn a_token_is_new_each_time_and_never_printed() {
        let (one, other) = (Token::generate(), Token::generate());
        assert!(!one.is(&other.0));
        assert_eq!(one.0.len(), 64);
        assert_eq!(format!("{one:?}"), "Token(hidden)");
    }
}
