//! The authority of the client certificates that the webhooks accept.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

/// The authorities of client certificates, in PEM. With them a caller needs a certificate for client authentication, and
/// no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuthority {
    /// The authorities are given as text.
    Pem(String),
    /// The authorities are in this file, which is read again from time to time.
    File(PathBuf),
}

/// Why there are no authorities.
#[derive(Debug, thiserror::Error)]
pub enum NoClientAuthority {
    /// The file cannot be read.
    #[error("expected certificates in PEM form in {path}, which cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The text holds something else.
    #[error(
        "expected certificates in PEM form of the authorities that sign the client certificates of API servers: {0}"
    )]
    Unusable(String),
    /// The file holds something else.
    #[error(
        "expected certificates in PEM form of the authorities that sign the client certificates of API servers in {path}: {why}"
    )]
    UnusableFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl ClientAuthority {
    /// The certificates as they are now. Those of a file are good for a [`verifier`]; where they are not, the error names
    /// the file.
    pub(crate) fn read(&self) -> Result<String, NoClientAuthority> {
        match self {
            Self::Pem(pem) => Ok(pem.clone()),
            Self::File(path) => {
                let pem = fs::read_to_string(path);
                let pem = pem.map_err(|source| NoClientAuthority::Unreadable {
                    path: path.clone(),
                    source,
                })?;
                of_file(path, pem)
            }
        }
    }
}

/// What a file has, where it is good for a [`verifier`].
fn of_file(path: &Path, pem: String) -> Result<String, NoClientAuthority> {
    match built(&pem) {
        Ok(_) => Ok(pem),
        Err(why) => Err(NoClientAuthority::UnusableFile {
            path: path.to_owned(),
            why,
        }),
    }
}

/// Checks the certificates that callers show. A caller without one gets 401, not a broken connection.
pub(crate) fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, NoClientAuthority> {
    built(pem).map_err(NoClientAuthority::Unusable)
}

/// The verifier of clients whose certificates these authorities have signed.
///
/// # Errors
/// What is wrong with the certificates of the authorities.
fn built(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("found no certificate".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_authority_is_refused_with_what_was_expected() {
        let names = ["a.example".to_owned()];
        let now = "2026-11-23T00:00:00Z".parse().unwrap();
        let pair = crate::issue::issue(&names, now).unwrap();
        assert!(verifier(&pair.authority).is_ok());
        for text in ["", "x", &pair.key] {
            let refused = verifier(text).unwrap_err().to_string();
            assert!(
                refused.starts_with("expected certificates in PEM form"),
                "{refused}"
            );
        }
        let missing = ClientAuthority::File("/nowhere/ca.crt".into());
        let refused = missing.read().unwrap_err().to_string();
        assert!(refused.contains("/nowhere/ca.crt"), "{refused}");
        let path = Path::new("/etc/ca.crt");
        for text in ["", "x", &pair.key] {
            let refused = of_file(path, text.to_owned()).unwrap_err().to_string();
            let expected = "in /etc/ca.crt: found no certificate";
            assert!(refused.ends_with(expected), "{refused}");
        }
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let refused = of_file(path, broken.to_owned()).unwrap_err().to_string();
        assert!(refused.contains("in /etc/ca.crt: "), "{refused}");
        let usable = of_file(path, pair.authority.clone()).unwrap();
        assert_eq!(usable, pair.authority);
    }
}
