//! The client certificate that the server shows to webhooks. Its authority signs no other certificate.

use std::sync::{Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The name in the certificate.
const COMMON_NAME: &str = "kube-apiserver-webhook-client";

/// The certificate, made when it is first needed: most clusters have no webhooks. The server drops
/// the key of the authority after signing, so no other process can call webhooks as this server.
#[derive(Default)]
pub(super) struct Identity(Mutex<Option<Made>>);

#[derive(Clone)]
pub(super) struct Made {
    /// The certificate of the authority, in PEM.
    pub(super) authority: String,
    /// The client certificate and its key, in PEM.
    pub(super) client: String,
}

impl Identity {
    pub(super) fn get(&self) -> Result<Made, rcgen::Error> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made {
            return Ok(made.clone());
        }
        let new = make()?;
        *made = Some(new.clone());
        Ok(new)
    }
}

fn make() -> Result<Made, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "longshore-webhook-client-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let authority_key = KeyPair::generate()?;
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let mut client = CertificateParams::default();
    client
        .distinguished_name
        .push(DnType::CommonName, COMMON_NAME);
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    client.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    client.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = client.signed_by(&key, &Issuer::new(authority, authority_key))?;
    Ok(Made {
        authority: authority_pem,
        client: certificate.pem() + &key.serialize_pem(),
    })
}
