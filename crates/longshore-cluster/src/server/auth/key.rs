//! The keys that sign the tokens of service accounts.

use std::{io, path::Path};

use aws_lc_rs::{
    error::Unspecified,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot read or write the file")]
    File(#[from] io::Error),
    /// The text is no key that signs.
    #[error("expected a private key of curve P-256 in PEM form")]
    Key(#[from] rcgen::Error),
}

/// A key on curve P-256, for signatures of the kind `ES256`.
pub(crate) struct SigningKey {
    /// A digest of the public key: tokens name the key by it.
    pub(super) id: String,
    pair: EcdsaKeyPair,
    pem: String,
}

impl SigningKey {
    /// A new key.
    pub(super) fn generate() -> Result<SigningKey, rcgen::Error> {
        SigningKey::new(&KeyPair::generate()?)
    }

    fn from_pem(pem: &str) -> Result<SigningKey, rcgen::Error> {
        SigningKey::new(&KeyPair::from_pem(pem)?)
    }

    fn new(key: &KeyPair) -> Result<SigningKey, rcgen::Error> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der())
            .map_err(|error| rcgen::Error::RingKeyRejected(error.to_string()))?;
        let digest = Sha256::digest(key.subject_public_key_info());
        Ok(SigningKey {
            id: BASE64_URL_SAFE_NO_PAD.encode(digest),
            pair,
            pem: key.serialize_pem(),
        })
    }

    /// The key that a file keeps, if there is such a file.
    pub(super) fn read(path: &Path) -> Result<Option<SigningKey>, KeyError> {
        match std::fs::read_to_string(path) {
            Ok(pem) => Ok(Some(SigningKey::from_pem(&pem)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the key in a file that its owner alone can read, durably.
    pub(super) fn write(&self, path: &Path) -> Result<(), KeyError> {
        Ok(longshore_files::replace(path, 0o600, self.pem.as_bytes())?)
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let signature = self.pair.sign(&SystemRandom::new(), message)?;
        Ok(signature.as_ref().to_vec())
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = self.pair.public_key().as_ref();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
            .verify(message, signature)
            .is_ok()
    }

    /// The public key in the form of RFC 7517.
    pub(super) fn to_jwk(&self) -> Value {
        // An uncompressed point: one byte of form, and then both coordinates.
        let point = self.pair.public_key().as_ref();
        let coordinate = |from: usize, to: usize| {
            BASE64_URL_SAFE_NO_PAD.encode(point.get(from..to).unwrap_or_default())
        };
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1, 33), "y": coordinate(33, 65),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_kept_checks_what_it_signed_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sa.key");
        assert!(SigningKey::read(&path).unwrap().is_none());
        let key = SigningKey::generate().unwrap();
        key.write(&path).unwrap();
        let kept = SigningKey::read(&path).unwrap().unwrap();
        assert_eq!(kept.id, key.id);
        assert_eq!(kept.to_jwk(), key.to_jwk());
        let signature = key.sign(b"message").unwrap();
        assert_eq!(signature.len(), 64);
        assert!(kept.has_signed(b"message", &signature));
        assert!(!kept.has_signed(b"massage", &signature));
        let other = SigningKey::generate().unwrap();
        assert!(!other.has_signed(b"message", &signature));
        assert_ne!(other.id, key.id);
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(SigningKey::read(&path), Err(KeyError::Key(_))));
    }

    #[test]
    fn the_public_key_has_both_coordinates() {
        let jwk = SigningKey::generate().unwrap().to_jwk();
        for coordinate in ["x", "y"] {
            let text = jwk[coordinate].as_str().unwrap();
            assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(text).unwrap().len(), 32);
        }
    }
}
