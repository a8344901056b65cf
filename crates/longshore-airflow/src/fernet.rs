//! Fernet, by which Airflow keeps passwords and variables in its database: AES-128 in CBC mode, and an HMAC of SHA-256.
//!
//! A token is base64url of: a byte 0x80, the time in seconds (64 bits, big-endian), the initialization vector (16 bytes),
//! the encrypted message, and the HMAC (32 bytes) of all before. Source: the Fernet specification; upstream
//! `airflow.models.crypto`.

use std::{fmt, time::Duration};

use aws_lc_rs::{
    cipher::{
        AES_128, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
        PaddedBlockEncryptingKey, UnboundCipherKey,
    },
    error::Unspecified,
    hmac,
    iv::FixedLength,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use jiff::Timestamp;

const VERSION: u8 = 0x80;
/// Version, time and initialization vector.
const HEAD: usize = 1 + 8 + 16;
const BLOCK: usize = 16;
const MAC: usize = 32;
/// How far a token may be from the future, in seconds.
const MAX_SKEW: u64 = 60;

/// The keys of `[core] fernet_key`: the first one encrypts, any of them decrypts. `Debug` shows none.
pub struct Fernet {
    first: FernetKey,
    others: Vec<FernetKey>,
}

struct FernetKey {
    signing: hmac::Key,
    encryption: [u8; 16],
}

/// Why `[core] fernet_key` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "key {place} of `[core] fernet_key` must be 32 bytes in base64url, but is {found}; make one with \
     `python -c \"from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())\"`"
)]
pub struct FernetKeyError {
    /// Which of the keys, from 1.
    pub place: usize,
    /// What it is instead, without its text.
    pub found: String,
}

/// Why a token cannot be decrypted, or a message not be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FernetError {
    /// The text is no token.
    #[error("expected a Fernet token")]
    Malformed,
    /// The token was changed, or was made with a key that is not in `[core] fernet_key` any more.
    #[error(
        "no key of `[core] fernet_key` fits the token; add the key that it was encrypted with to the end of the list"
    )]
    NoKey,
    /// The token is older than it may be.
    #[error("the token has expired")]
    Expired,
    /// The token is from the future.
    #[error("the token is from the future")]
    Future,
    /// The library refuses to encrypt.
    #[error("the message cannot be encrypted")]
    Cipher,
}

impl From<Unspecified> for FernetError {
    fn from(_: Unspecified) -> Self {
        Self::Cipher
    }
}

impl fmt::Debug for Fernet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Fernet");
        shown.field("n_keys", &(1 + self.others.len()));
        shown.finish_non_exhaustive()
    }
}

impl Fernet {
    /// Keys, with commas between them. `None` for an empty text: Airflow then encrypts nothing.
    ///
    /// # Errors
    /// One of them is no key.
    pub fn new(keys: &str) -> Result<Option<Self>, FernetKeyError> {
        if keys.trim().is_empty() {
            return Ok(None);
        }
        let keys = keys.split(',').enumerate();
        let keys: Result<Vec<FernetKey>, FernetKeyError> = keys
            .map(|(at, text)| FernetKey::parse(at + 1, text.trim()))
            .collect();
        let mut keys = keys?.into_iter();
        Ok(keys.next().map(|first| Self {
            first,
            others: keys.collect(),
        }))
    }

    fn keys(&self) -> impl Iterator<Item = &FernetKey> {
        [&self.first].into_iter().chain(&self.others)
    }

    /// Encrypts a message with the first key. `iv` is random, and never used twice.
    ///
    /// # Errors
    /// The library refuses to.
    pub fn encrypt(
        &self,
        message: &[u8],
        now: Timestamp,
        iv: [u8; 16],
    ) -> Result<String, FernetError> {
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        self.first.encrypt(message, seconds, iv)
    }

    /// Decrypts a token of any age, as Airflow does.
    ///
    /// # Errors
    /// The text is no token, or no key fits.
    pub fn decrypt(&self, token: &str) -> Result<Vec<u8>, FernetError> {
        self.open(token).map(|(_, message)| message)
    }

    /// Decrypts a token that is at most so old.
    ///
    /// # Errors
    /// The text is no token, no key fits, or it is too old or from the future.
    pub fn decrypt_within(
        &self,
        token: &str,
        longest: Duration,
        now: Timestamp,
    ) -> Result<Vec<u8>, FernetError> {
        let (seconds, message) = self.open(token)?;
        let now = u64::try_from(now.as_second()).unwrap_or(0);
        if seconds.saturating_add(longest.as_secs()) < now {
            return Err(FernetError::Expired);
        }
        if now.saturating_add(MAX_SKEW) < seconds {
            return Err(FernetError::Future);
        }
        Ok(message)
    }

    /// Encrypts a token anew with the first key, and keeps its time: `airflow rotate-fernet-key`.
    ///
    /// # Errors
    /// The text is no token, or no key fits.
    pub fn rotate(&self, token: &str, iv: [u8; 16]) -> Result<String, FernetError> {
        let (seconds, message) = self.open(token)?;
        self.first.encrypt(&message, seconds, iv)
    }

    /// The time of a token, and its message.
    fn open(&self, token: &str) -> Result<(u64, Vec<u8>), FernetError> {
        let bytes = BASE64_URL_SAFE.decode(token.trim());
        let bytes = bytes.map_err(|_| FernetError::Malformed)?;
        let signed = bytes.len().checked_sub(MAC).ok_or(FernetError::Malformed)?;
        let (signed, mac) = bytes.split_at(signed);
        let (head, encrypted) = signed
            .split_first_chunk::<HEAD>()
            .ok_or(FernetError::Malformed)?;
        if head[0] != VERSION || encrypted.is_empty() || encrypted.len() % BLOCK != 0 {
            return Err(FernetError::Malformed);
        }
        let mut seconds = [0; 8];
        seconds.copy_from_slice(&head[1..9]);
        let mut iv = [0; 16];
        iv.copy_from_slice(&head[9..]);
        for key in self.keys() {
            if hmac::verify(&key.signing, signed, mac).is_ok() {
                let message = key.decrypt(encrypted, iv)?;
                return Ok((u64::from_be_bytes(seconds), message));
            }
        }
        Err(FernetError::NoKey)
    }
}

impl FernetKey {
    fn parse(place: usize, text: &str) -> Result<Self, FernetKeyError> {
        let wrong = |found: String| FernetKeyError { place, found };
        let bytes = BASE64_URL_SAFE.decode(text);
        let bytes = bytes.map_err(|_| wrong("another text".to_owned()))?;
        let halves = bytes.split_first_chunk::<16>();
        let (signing, encryption) = match halves {
            Some((signing, rest)) if rest.len() == 16 => (signing, rest),
            Some(_) | None => return Err(wrong(format!("{} bytes", bytes.len()))),
        };
        let mut key = [0; 16];
        key.copy_from_slice(encryption);
        Ok(Self {
            signing: hmac::Key::new(hmac::HMAC_SHA256, signing),
            encryption: key,
        })
    }

    fn encrypt(&self, message: &[u8], seconds: u64, iv: [u8; 16]) -> Result<String, FernetError> {
        let key = UnboundCipherKey::new(&AES_128, &self.encryption)?;
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(key)?;
        let mut encrypted = message.to_vec();
        let context = EncryptionContext::Iv128(FixedLength::from(&iv));
        key.less_safe_encrypt(&mut encrypted, context)?;
        let mut token = vec![VERSION];
        token.extend(seconds.to_be_bytes());
        token.extend(iv);
        token.extend(encrypted);
        let mac = hmac::sign(&self.signing, &token);
        token.extend(mac.as_ref());
        Ok(BASE64_URL_SAFE.encode(token))
    }

    fn decrypt(&self, encrypted: &[u8], iv: [u8; 16]) -> Result<Vec<u8>, FernetError> {
        let key = UnboundCipherKey::new(&AES_128, &self.encryption)?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key)?;
        let mut message = encrypted.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(&iv));
        // The signature is good, so this is a token whose maker padded it wrongly.
        let opened = key.decrypt(&mut message, context);
        let length = opened.map_err(|_| FernetError::Malformed)?.len();
        message.truncate(length);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const IV: [u8; 16] = [9; 16];

    fn vectors() -> Vec<Value> {
        let text = include_str!("../testdata/fernet/tokens.json");
        let vectors: Vec<Value> = serde_json::from_str(text).unwrap();
        assert_eq!(vectors.len(), 24);
        vectors
    }

    fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
        vector[name].as_str().unwrap()
    }

    fn fernet(keys: &str) -> Fernet {
        Fernet::new(keys).unwrap().unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn tokens_are_those_of_cryptography() {
        for vector in vectors() {
            let fernet = fernet(text(&vector, "key"));
            let message = text(&vector, "message").as_bytes();
            let iv: [u8; 16] = serde_json::from_value(vector["iv"].clone()).unwrap();
            let now = at(vector["time"].as_i64().unwrap());
            let token = fernet.encrypt(message, now, iv).unwrap();
            assert_eq!(token, text(&vector, "token"), "{vector}");
            assert_eq!(fernet.decrypt(&token).unwrap(), message, "{vector}");
        }
    }

    #[test]
    fn the_token_of_the_specification_is_read() {
        let fernet = fernet("cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=");
        let token = "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA==";
        assert_eq!(fernet.decrypt(token).unwrap(), b"hello");
        let made: Timestamp = "1985-10-26T01:20:00-07:00".parse().unwrap();
        let minute = Duration::from_secs(60);
        let within = |now: i64| fernet.decrypt_within(token, minute, at(made.as_second() + now));
        for (now, expected) in [
            (-61, Err(FernetError::Future)),
            (-60, Ok(b"hello".to_vec())),
            (60, Ok(b"hello".to_vec())),
            (61, Err(FernetError::Expired)),
        ] {
            assert_eq!(within(now), expected, "{now}");
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let vector = vectors().swap_remove(1);
        let fernet = fernet(text(&vector, "key"));
        let good = BASE64_URL_SAFE.decode(text(&vector, "token")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let expected = if at == 0 {
                FernetError::Malformed
            } else {
                FernetError::NoKey
            };
            let token = BASE64_URL_SAFE.encode(bad);
            assert_eq!(fernet.decrypt(&token), Err(expected), "byte {at}");
        }
        for n in 0..good.len() {
            let token = BASE64_URL_SAFE.encode(&good[..n]);
            assert!(fernet.decrypt(&token).is_err(), "{n} bytes");
        }
        for garbage in ["", "%", "gAAAAA", "plain text"] {
            assert_eq!(
                fernet.decrypt(garbage),
                Err(FernetError::Malformed),
                "{garbage}"
            );
        }
    }

    #[test]
    fn a_signed_token_with_wrong_padding_is_malformed() {
        let key = "AQEBAQEBAQEBAQEBAQEBAQICAgICAgICAgICAgICAgI=";
        let fernet = fernet(key);
        let mut bytes = vec![VERSION];
        bytes.extend([0; 8 + 16 + BLOCK]);
        bytes.extend(hmac::sign(&fernet.first.signing, &bytes.clone()).as_ref());
        let token = BASE64_URL_SAFE.encode(bytes);
        assert_eq!(fernet.decrypt(&token), Err(FernetError::Malformed));
    }

    #[test]
    fn keys_rotate() {
        let vectors = vectors();
        let (old, new) = (text(&vectors[0], "key"), text(&vectors[23], "key"));
        assert_ne!(old, new);
        let token = fernet(old).encrypt(b"secret", at(7), IV).unwrap();
        assert_eq!(fernet(new).decrypt(&token), Err(FernetError::NoKey));
        let both = fernet(&format!("{new}, {old}"));
        assert_eq!(both.decrypt(&token).unwrap(), b"secret");
        let rotated = both.rotate(&token, [1; 16]).unwrap();
        assert_eq!(fernet(new).decrypt(&rotated).unwrap(), b"secret");
        // The time stays.
        assert_eq!(
            rotated,
            fernet(new).encrypt(b"secret", at(7), [1; 16]).unwrap()
        );
    }

    #[test]
    fn no_key_encrypts_nothing_and_a_wrong_key_is_told_without_its_text() {
        assert!(Fernet::new("").unwrap().is_none());
        assert!(Fernet::new(" ").unwrap().is_none());
        let good = "AQEBAQEBAQEBAQEBAQEBAQICAgICAgICAgICAgICAgI=";
        for (keys, place, found) in [
            ("hunter2!", 1, "another text"),
            ("AAAA", 1, "3 bytes"),
            (&format!("{good},"), 2, "0 bytes"),
        ] {
            let error = Fernet::new(keys).unwrap_err();
            assert_eq!((error.place, error.found.as_str()), (place, found));
            assert!(!error.to_string().contains("hunter2"));
        }
        assert!(!format!("{:?}", fernet(good)).contains("AQEB"));
    }
}
