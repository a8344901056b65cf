//! The key that signs tokens: a shared secret, or a private key.

use std::fmt;

use aws_lc_rs::{
    error::Unspecified,
    hmac,
    rand::SystemRandom,
    signature::{
        ED25519, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
        RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair, RsaParameters, UnparsedPublicKey,
    },
};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The key id of a shared secret, as upstream writes it.
const ID_OF_SECRET: &str = "not-used";

/// How tokens are signed: `[api_auth] jwt_algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512: the default of a secret.
    Hs512,
    /// RSA (PKCS #1 v1.5) with SHA-256.
    Rs256,
    /// RSA (PKCS #1 v1.5) with SHA-384.
    Rs384,
    /// RSA (PKCS #1 v1.5) with SHA-512: the default of an RSA key.
    Rs512,
    /// Ed25519: of such a key.
    EdDsa,
}

impl Algorithm {
    const ALL: [Self; 7] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::EdDsa,
    ];

    /// The algorithm of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// The name in the header of a token.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::EdDsa => "EdDSA",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret is empty.
    #[error(
        "the secret that signs tokens is empty; set `[api_auth] jwt_secret` to 64 random hexadecimal digits"
    )]
    EmptySecret,
    /// The text is no private key that can be read.
    #[error(
        "expected a private key in PEM form without a password (RSA of 2048 bits or more, or Ed25519) in the file of \
         `[api_auth] jwt_private_key_path`: {0}"
    )]
    Pem(String),
    /// The key cannot sign so.
    #[error("`[api_auth] jwt_algorithm` {algorithm} does not fit {key}")]
    Algorithm {
        /// What was asked for.
        algorithm: Algorithm,
        /// What the key is.
        key: &'static str,
    },
    /// The library refuses to sign.
    #[error("the key cannot sign")]
    Sign,
}

impl From<Unspecified> for KeyError {
    fn from(_: Unspecified) -> Self {
        Self::Sign
    }
}

/// The key that signs tokens. `Debug` does not show it.
pub struct SigningKey {
    algorithm: Algorithm,
    id: String,
    pair: Pair,
}

enum Pair {
    Secret(Box<hmac::Key>),
    Rsa {
        pair: Box<RsaKeyPair>,
        sign: &'static dyn RsaEncoding,
        verify: &'static RsaParameters,
    },
    Ed25519(Ed25519KeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SigningKey");
        shown
            .field("algorithm", &self.algorithm)
            .field("id", &self.id);
        shown.finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A shared secret: `[api_auth] jwt_secret`. Without an algorithm it is HS512.
    ///
    /// # Errors
    /// The secret is empty, or the algorithm is not one of a secret.
    pub fn secret(secret: &str, algorithm: Option<Algorithm>) -> Result<Self, KeyError> {
        let algorithm = algorithm.unwrap_or(Algorithm::Hs512);
        let digest = match algorithm {
            Algorithm::Hs256 => hmac::HMAC_SHA256,
            Algorithm::Hs384 => hmac::HMAC_SHA384,
            Algorithm::Hs512 => hmac::HMAC_SHA512,
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::EdDsa => {
                let key = "a shared secret";
                return Err(KeyError::Algorithm { algorithm, key });
            }
        };
        if secret.is_empty() {
            return Err(KeyError::EmptySecret);
        }
        Ok(Self {
            algorithm,
            id: ID_OF_SECRET.to_owned(),
            pair: Pair::Secret(Box::new(hmac::Key::new(digest, secret.as_bytes()))),
        })
    }

    /// A private key in PEM form: the file of `[api_auth] jwt_private_key_path`. `id` is `[api_auth] jwt_kid`; without
    /// it the id is the thumbprint of RFC 7638.
    ///
    /// # Errors
    /// The text is no such key, or the algorithm is not one of it.
    pub fn private(
        pem: &str,
        algorithm: Option<Algorithm>,
        id: Option<&str>,
    ) -> Result<Self, KeyError> {
        let (label, der) = read_pem(pem)?;
        let ed25519 = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der);
        let (pair, algorithm) = if let Ok(pair) = ed25519 {
            let algorithm = algorithm.unwrap_or(Algorithm::EdDsa);
            if algorithm != Algorithm::EdDsa {
                let key = "an Ed25519 key";
                return Err(KeyError::Algorithm { algorithm, key });
            }
            (Pair::Ed25519(pair), algorithm)
        } else {
            let pair = match label {
                "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der),
                _ => RsaKeyPair::from_pkcs8(&der),
            };
            let pair = pair.map_err(|error| KeyError::Pem(error.to_string()))?;
            rsa(pair, algorithm.unwrap_or(Algorithm::Rs512))?
        };
        let mut key = Self {
            algorithm,
            id: String::new(),
            pair,
        };
        key.id = id.map_or_else(|| key.thumbprint(), str::to_owned);
        Ok(key)
    }

    /// How it signs.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The id by which tokens name the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::Secret(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Pair::Rsa { pair, sign, .. } => {
                let mut signature = vec![0; pair.public_modulus_len()];
                // This kind of signature has nothing random in it: the source is not asked.
                pair.sign(*sign, &SystemRandom::new(), message, &mut signature)?;
                Ok(signature)
            }
            Pair::Ed25519(pair) => Ok(pair.try_sign(message)?.as_ref().to_vec()),
        }
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let outcome = match &self.pair {
            Pair::Secret(key) => hmac::verify(key, message, signature),
            Pair::Rsa { pair, verify, .. } => {
                let public = UnparsedPublicKey::new(*verify, pair.public_key().as_ref());
                public.verify(message, signature)
            }
            Pair::Ed25519(pair) => {
                let public = UnparsedPublicKey::new(&ED25519, pair.public_key().as_ref());
                public.verify(message, signature)
            }
        };
        outcome.is_ok()
    }

    /// The public key; `None` of a shared secret.
    pub(super) fn to_jwk(&self) -> Option<Value> {
        let mut jwk = self.public_members()?;
        jwk["kid"] = self.id.as_str().into();
        jwk["alg"] = self.algorithm.as_str().into();
        jwk["use"] = "sig".into();
        Some(jwk)
    }

    /// The members that a thumbprint is made of.
    fn public_members(&self) -> Option<Value> {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Secret(_) => None,
            Pair::Rsa { pair, .. } => {
                let public = pair.public_key();
                let modulus = encode(public.modulus().big_endian_without_leading_zero());
                let exponent = encode(public.exponent().big_endian_without_leading_zero());
                Some(json!({"kty": "RSA", "e": exponent, "n": modulus}))
            }
            Pair::Ed25519(pair) => {
                let x = encode(pair.public_key().as_ref());
                Some(json!({"kty": "OKP", "crv": "Ed25519", "x": x}))
            }
        }
    }

    /// RFC 7638: the digest of these members, sorted by name.
    fn thumbprint(&self) -> String {
        let members = self.public_members().unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(members.to_string()))
    }
}

fn rsa(pair: RsaKeyPair, algorithm: Algorithm) -> Result<(Pair, Algorithm), KeyError> {
    let (sign, verify): (&'static dyn RsaEncoding, &'static RsaParameters) = match algorithm {
        Algorithm::Rs256 => (&RSA_PKCS1_SHA256, &RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => (&RSA_PKCS1_SHA384, &RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => (&RSA_PKCS1_SHA512, &RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 | Algorithm::EdDsa => {
            let key = "an RSA key";
            return Err(KeyError::Algorithm { algorithm, key });
        }
    };
    let pair = Box::new(pair);
    Ok((Pair::Rsa { pair, sign, verify }, algorithm))
}

/// The label and the bytes of the first block of a PEM text.
fn read_pem(pem: &str) -> Result<(&str, Vec<u8>), KeyError> {
    let wrong = |why: &str| KeyError::Pem(why.to_owned());
    let (_, rest) = pem
        .split_once("-----BEGIN ")
        .ok_or_else(|| wrong("it has no line -----BEGIN …-----"))?;
    let (label, rest) = rest
        .split_once("-----")
        .ok_or_else(|| wrong("its first line does not end"))?;
    let (body, _) = rest
        .split_once("-----END ")
        .ok_or_else(|| wrong("it has no line -----END …-----"))?;
    let body: String = body.split_whitespace().collect();
    let der = BASE64_STANDARD.decode(body);
    let der = der.map_err(|_| wrong("its body is not base64"))?;
    Ok((label, der))
}
