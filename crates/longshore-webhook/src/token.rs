//! The secret part of a webhook's path.

use std::fmt;

use rustls::crypto::aws_lc_rs::default_provider;
use serde::{Deserialize, Serialize};
use subtle::{Choice, ConstantTimeEq};

/// Bytes of a token: 256 bits.
const BYTES: usize = 32;

/// What a caller has to name in the path of a webhook. Its text is in the Secret and in the webhook configurations, and
/// nowhere else: `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Token(String);

impl Token {
    /// A new token, from the operating system's randomness.
    pub(crate) fn generate() -> Result<Self, rustls::Error> {
        let mut bytes = [0_u8; BYTES];
        default_provider().secure_random.fill(&mut bytes)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    #[cfg(test)]
    pub(crate) fn of_test(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// For the path in a webhook configuration.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text can be a token at all. What cannot be one is refused without another look at the Secret.
    pub(crate) fn is_possible(text: &str) -> bool {
        text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Whether a caller's text is this token. The time that this takes does not reveal how much of the text is right.
    pub(crate) fn is(&self, text: &str) -> Choice {
        self.0.as_bytes().ct_eq(text.as_bytes())
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
    fn a_token_has_256_random_bits_and_debug_hides_them() {
        let token = Token::generate().unwrap();
        assert!(Token::is_possible(token.text()), "{}", token.text());
        assert_ne!(token, Token::generate().unwrap());
        assert_eq!(format!("{token:?}"), "Token(hidden)");
        assert!(bool::from(token.is(token.text())));
        let shorter = &token.text()[1..];
        for other in ["", shorter, &"0".repeat(64)] {
            assert!(!bool::from(token.is(other)), "{other}");
        }
        for other in ["", shorter, &"x".repeat(64), &"0".repeat(65)] {
            assert!(!Token::is_possible(other), "{other}");
        }
    }
}
