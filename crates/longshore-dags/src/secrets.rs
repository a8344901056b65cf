//! Variables and connections are encrypted before the store sees them, as Airflow does it.

use std::fmt;

use jiff::Timestamp;
use longshore_airflow::fernet::{Fernet, FernetError};
use longshore_store::Sealed;
use uuid::Uuid;

/// Encrypts and decrypts with the keys of `[core] fernet_key`.
pub struct Secrets {
    /// `None` where the key is empty: then nothing is encrypted, as in Airflow.
    fernet: Option<Fernet>,
}

/// Why a secret cannot be read, or not be encrypted. No message has anything of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is encrypted, and there is no key.
    #[error(
        "the value is encrypted, and `[core] fernet_key` is empty; set the key that it was encrypted with"
    )]
    NoKey,
    /// The token does not fit.
    #[error(transparent)]
    Fernet(#[from] FernetError),
    /// What was encrypted is no text.
    #[error("expected an encrypted text, found other bytes; set the value again")]
    NoText,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Secrets");
        shown.field("fernet", &self.fernet).finish()
    }
}

impl Secrets {
    /// With these keys; without any, secrets are stored as they are.
    pub fn new(fernet: Option<Fernet>) -> Self {
        Self { fernet }
    }

    /// The form in which a secret is stored. Each call encrypts anew: equal secrets do not look equal.
    ///
    /// # Errors
    /// The library refuses to encrypt.
    pub fn seal(&self, secret: &str, now: Timestamp) -> Result<Sealed, SecretError> {
        match &self.fernet {
            None => Ok(Sealed::plain(secret.to_owned())),
            Some(fernet) => {
                // 122 of its bits are random, and no two are equal.
                let iv = Uuid::new_v4().into_bytes();
                let token = fernet.encrypt(secret.as_bytes(), now, iv)?;
                Ok(Sealed::encrypted(token))
            }
        }
    }

    /// The secret in a stored form.
    ///
    /// # Errors
    /// It is encrypted, and no key fits.
    pub fn open(&self, sealed: &Sealed) -> Result<String, SecretError> {
        if !sealed.is_encrypted() {
            return Ok(sealed.text().to_owned());
        }
        let fernet = self.fernet.as_ref().ok_or(SecretError::NoKey)?;
        let bytes = fernet.decrypt(sealed.text())?;
        String::from_utf8(bytes).map_err(|_| SecretError::NoText)
    }
}

#[cfg(test)]
mod tests {
    use longshore_store::{Shared, Store, StoredConnection, StoredVariable, ToldStore as _};

    use super::*;

    /// 32 bytes of 0, and 32 bytes of 255.
    const KEYS: [&str; 2] = [
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "__________________________________________8=",
    ];

    fn secrets(keys: &str) -> Secrets {
        Secrets::new(Fernet::new(keys).unwrap())
    }

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn whoever_has_the_key_reads_the_secret_and_nobody_else() {
        for secret in ["hunter2", "", "ünï \u{0}"] {
            let [old, new] = KEYS.map(secrets);
            let sealed = old.seal(secret, now()).unwrap();
            assert!(sealed.is_encrypted());
            assert!(secret.is_empty() || !sealed.text().contains(secret));
            assert_ne!(sealed, old.seal(secret, now()).unwrap());
            assert_eq!(old.open(&sealed).as_deref(), Ok(secret));
            let both = secrets(&format!("{},{}", KEYS[1], KEYS[0]));
            assert_eq!(both.open(&sealed).as_deref(), Ok(secret));
            let expected = Err(SecretError::Fernet(FernetError::NoKey));
            assert_eq!(new.open(&sealed), expected);
            assert_eq!(secrets("").open(&sealed), Err(SecretError::NoKey));
        }
    }

    #[test]
    fn without_a_key_nothing_is_encrypted_and_with_one_plain_values_are_read_on() {
        let sealed = secrets("").seal("open", now()).unwrap();
        assert!(!sealed.is_encrypted());
        for keys in ["", KEYS[0]] {
            assert_eq!(secrets(keys).open(&sealed).as_deref(), Ok("open"));
        }
    }

    #[tokio::test]
    async fn no_secret_is_in_the_file_of_the_database() {
        const SECRET: &str = "correct horse battery staple";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("longshore.db");
        let of_connection = secrets(KEYS[0]);
        // The search finds what is not encrypted.
        for (of_variable, is_found) in [(secrets(KEYS[0]), false), (secrets(""), true)] {
            let store = Store::open(&path).await.unwrap();
            let variable = StoredVariable {
                key: "key".to_owned(),
                value: of_variable.seal(SECRET, now()).unwrap(),
                description: None,
            };
            let seal = || Some(of_connection.seal(SECRET, now()).unwrap());
            let connection = StoredConnection {
                conn_id: "shop".to_owned(),
                conn_type: "http".to_owned(),
                description: None,
                host: None,
                schema: None,
                login: None,
                port: None,
                password: seal(),
                extra: seal(),
            };
            store.keep(Shared::Variable(variable)).await.unwrap();
            store.keep(Shared::Connection(connection)).await.unwrap();
            let found = store.variable("key").await.unwrap().unwrap();
            assert_eq!(of_variable.open(&found.value).as_deref(), Ok(SECRET));
            let found = store.connection("shop").await.unwrap().unwrap();
            for sealed in [found.password, found.extra] {
                let opened = of_connection.open(&sealed.unwrap());
                assert_eq!(opened.as_deref(), Ok(SECRET));
            }
            store.close().await;
            let mut files = std::fs::read_dir(directory.path()).unwrap();
            let has_secret = files.any(|file| {
                let content = std::fs::read(file.unwrap().path()).unwrap();
                let mut windows = content.windows(SECRET.len());
                windows.any(|it| it == SECRET.as_bytes())
            });
            assert_eq!(has_secret, is_found);
        }
    }
}
