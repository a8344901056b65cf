//! Certificates of clients: the handshake takes every one, and each request is judged by it.
//!
//! A handshake that refused certificates of other authorities would refuse clients that have a token as well; upstream
//! lets the request fail with 401 instead.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::Request;
use jiff::Timestamp;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use sha2::{Digest as _, Sha256};
use tower::Service;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::peers::Peer;
use crate::server::auth::UserInfo;

/// The certificate of a connection.
#[derive(Debug, Clone)]
pub(super) enum ClientCertificate {
    /// Of our authority.
    Trusted {
        user: Arc<UserInfo>,
        /// The last second, since 1970, at which it is good.
        not_after: i64,
    },
    /// Of another one, for another purpose, or without a name.
    Untrusted,
}

impl ClientCertificate {
    /// The user, while the certificate is good.
    pub(super) fn user(&self, now: Timestamp) -> Option<&Arc<UserInfo>> {
        match self {
            ClientCertificate::Trusted { user, not_after } => {
                (now.as_second() <= *not_after).then_some(user)
            }
            ClientCertificate::Untrusted => None,
        }
    }
}

/// Judges certificates by one authority.
#[derive(Debug, Clone)]
pub(super) struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    /// Takes certificates of this authority.
    pub(super) fn new(
        authority: CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Clients, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = builder.build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        Ok(Clients(verifier))
    }

    /// What the handshake does with certificates: it takes them all.
    pub(super) fn in_handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(TakeAll(Arc::clone(&self.0)))
    }

    /// Judges the certificates that a client has presented, its own first.
    pub(super) fn judge(&self, presented: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        let (own, others) = presented.split_first()?;
        let is_good = self.0.verify_client_cert(own, others, UnixTime::now());
        let certificate = is_good.ok().and_then(|_| named(own));
        Some(certificate.unwrap_or(ClientCertificate::Untrusted))
    }
}

/// The user that a certificate names: the common name, and each organisation as a group.
fn named(certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups = subject
        .iter_organization()
        .filter_map(|it| it.as_str().ok());
    let digest = Sha256::digest(certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(ClientCertificate::Trusted {
        user: Arc::new(UserInfo::of_certificate(name, groups, &digest)),
        not_after: parsed.validity().not_after.timestamp(),
    })
}

#[derive(Debug)]
struct TakeAll(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for TakeAll {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A service whose requests carry the other end of their connection.
#[derive(Debug, Clone)]
pub(super) struct Accompanied<S> {
    service: S,
    peer: Arc<Peer>,
}

impl<S> Accompanied<S> {
    pub(super) fn new(service: S, peer: Arc<Peer>) -> Accompanied<S> {
        Accompanied { service, peer }
    }
}

impl<S, B> Service<Request<B>> for Accompanied<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(Arc::clone(&self.peer));
        self.service.call(request)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::*;

    /// An authority, and what it signs for a client.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        der: CertificateDer<'static>,
    }

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "longshore-ca");
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Authority {
            issuer: Issuer::new(params, key),
            der,
        }
    }

    fn signed(
        by: &Authority,
        name: Option<&str>,
        purpose: ExtendedKeyUsagePurpose,
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params
            .distinguished_name
            .push(DnType::OrganizationName, "developers");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &by.issuer).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_of_the_authority_names_a_user_and_others_name_nobody() {
        let (ours, theirs) = (authority(), authority());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = Clients::new(ours.der.clone(), provider).unwrap();
        assert!(clients.judge(&[]).is_none());
        let client = || ExtendedKeyUsagePurpose::ClientAuth;
        for (certificate, expected) in [
            (signed(&ours, Some("jane"), client()), Some("jane")),
            (signed(&theirs, Some("jane"), client()), None),
            (signed(&ours, None, client()), None),
            (
                signed(&ours, Some("jane"), ExtendedKeyUsagePurpose::ServerAuth),
                None,
            ),
        ] {
            let judged = clients.judge(&[certificate]).unwrap();
            let user = judged.user(Timestamp::UNIX_EPOCH);
            assert_eq!(user.map(|user| &*user.username), expected);
            assert!(judged.user(Timestamp::MAX).is_none());
            if let Some(user) = user {
                assert_eq!(user.groups, ["developers", "system:authenticated"]);
                let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
                assert_eq!(id.len(), "X509SHA256=".len() + 64);
            }
        }
    }
}
