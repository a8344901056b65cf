//! What the TLS server needs: a certificate, and the authority of accepted client certificates.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{CertificateError, client_authority::verifier, issue::Pair};

/// What is served. Another value is served to new connections only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) pair: Pair,
    /// In PEM; `None` where callers name a token.
    pub(crate) client_authority: Option<String>,
}

impl Served {
    /// For the server. The certificate comes from the Secret of this name.
    pub(crate) fn config(&self, secret: &str) -> Result<Arc<ServerConfig>, CertificateError> {
        let unusable = |why: &dyn ToString| CertificateError::Unusable {
            secret: secret.to_owned(),
            why: why.to_string(),
        };
        let pair = &self.pair;
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let key = key.map_err(|error| unusable(&error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(pem) => builder.with_client_cert_verifier(verifier(pem)?),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
