//! Which client certificates the webhooks take.

use std::{fs, io, path::PathBuf, sync::Arc};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

/// The authorities of client certificates, in PEM. With them a caller needs a certificate for client authentication, and
/// no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuthority {
    /// They are known.
    Pem(String),
    /// They are in this file, which is read again from time to time.
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
    /// It holds something else.
    #[error(
        "expected certificates in PEM form of the authorities that sign the client certificates of API servers: {0}"
    )]
    Unusable(String),
}

impl ClientAuthority {
    /// The certificates as they are now.
    pub(crate) fn read(&self) -> Result<String, NoClientAuthority> {
        match self {
            Self::Pem(pem) => Ok(pem.clone()),
            Self::File(path) => {
                fs::read_to_string(path).map_err(|source| NoClientAuthority::Unreadable {
                    path: path.clone(),
                    source,
                })
            }
        }
    }
}

/// Checks the certificates that callers show. A caller without one is answered with 401, not with a broken connection.
pub(crate) fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, NoClientAuthority> {
    let unusable = |why: &dyn ToString| NoClientAuthority::Unusable(why.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(&error))
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
    }
}
