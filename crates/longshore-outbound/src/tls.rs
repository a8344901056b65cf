//! Which servers a client believes.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::BuilderVerifierExt;

/// Why no client can encrypt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTrust(pub(crate) String);

/// The certificate authorities that a client trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// The authorities that this machine trusts.
    Machine,
    /// The authorities in this PEM, and no others.
    Pem(&'a [u8]),
    /// No authority: for a client that does not encrypt, which works on a machine without authorities, too.
    Nobody,
}

pub(crate) fn tls(trust: Trust<'_>) -> Result<ClientConfig, BadTrust> {
    let bad = |why: String| BadTrust(why);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    let builder = match trust {
        Trust::Machine => builder
            .with_platform_verifier()
            .map_err(|error| bad(format!("this machine has no authorities: {error}")))?,
        Trust::Pem(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let added = certificate
                    .map_err(|error| error.to_string())
                    .and_then(|it| roots.add(it).map_err(|error| error.to_string()));
                added.map_err(|why| bad(format!("failed to parse CABundle PEM, {why}")))?;
            }
            if roots.is_empty() {
                return Err(bad(
                    "failed to parse CABundle PEM, it has no certificate".to_owned()
                ));
            }
            builder.with_root_certificates(roots)
        }
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}
