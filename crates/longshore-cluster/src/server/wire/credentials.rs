//! Identity and authentication of the server: a certificate authority of our own, a serving
//! certificate, a token, and the kubeconfig with everything that a client needs of these.
//!
//! The authority's key and the token stay across restarts, so that kubeconfigs stay valid; each
//! start makes a new serving certificate, for the address of that start.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use uuid::Uuid;

use super::{ServeError, clients::Clients, files, kubeconfig};

/// Names under which pods and people know an API server.
pub(super) const SERVER_NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Local addresses, and the first service address of a cluster with default settings.
pub(super) const SERVER_ADDRESSES: &[&str] = &["127.0.0.1", "::1", "10.96.0.1"];

/// What the server needs to prove its identity and to authenticate its users.
pub(super) struct Credentials {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) clients: Clients,
    /// The certificate of the authority, in PEM.
    pub(super) authority: String,
    pub(super) token: String,
    pub(super) kubeconfig: PathBuf,
}

impl Credentials {
    /// Takes what the directory has kept, makes what is missing, and brings the kubeconfig up to
    /// date with this address.
    pub(super) fn open(directory: &Path, address: SocketAddr) -> Result<Credentials, ServeError> {
        files::make_directory(directory)?;
        let key = authority_key(&directory.join("ca.key"))?;
        let params = authority_params();
        let certificate = params.self_signed(&key).map_err(ServeError::Certificate)?;
        files::write(&directory.join("ca.crt"), &certificate.pem())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = Clients::new(certificate.der().clone(), Arc::clone(&provider))
            .map_err(ServeError::Tls)?;
        let tls = serving_config(&Issuer::new(params, key), address, &clients, provider)?;
        let token = token(&directory.join("token"))?;
        let kubeconfig = directory.join("kubeconfig");
        // One that cannot be read has nothing that could stay.
        let old = files::read(&kubeconfig).ok().flatten();
        let text = kubeconfig::text(address, &certificate.pem(), &token, old.as_deref());
        if let Some(text) = text {
            files::write(&kubeconfig, &text)?;
        }
        Ok(Credentials {
            tls,
            clients,
            authority: certificate.pem(),
            token,
            kubeconfig,
        })
    }
}

fn authority_key(path: &Path) -> Result<KeyPair, ServeError> {
    if let Some(pem) = files::read(path)? {
        return KeyPair::from_pem(&pem).map_err(|source| ServeError::Authority {
            path: path.to_owned(),
            source,
        });
    }
    let key = KeyPair::generate().map_err(ServeError::Certificate)?;
    files::write(path, &key.serialize_pem())?;
    Ok(key)
}

/// Constant, so that the same key yields the same authority after every restart.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "longshore-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn serving_config(
    authority: &Issuer<'_, KeyPair>,
    address: SocketAddr,
    clients: &Clients,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, ServeError> {
    let mut names: Vec<String> = SERVER_NAMES
        .iter()
        .chain(SERVER_ADDRESSES)
        .map(|name| (*name).to_owned())
        .collect();
    let own = address.ip().to_string();
    if !address.ip().is_unspecified() && !names.contains(&own) {
        names.push(own);
    }
    let mut params = CertificateParams::new(names).map_err(ServeError::Certificate)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "longshore-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(ServeError::Certificate)?;
    let certificate = params
        .signed_by(&key, authority)
        .map_err(ServeError::Certificate)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ServeError::Tls)?
        .with_client_cert_verifier(clients.in_handshake())
        .with_single_cert(vec![certificate.der().clone()], key)
        .map_err(ServeError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn token(path: &Path) -> Result<String, ServeError> {
    if let Some(kept) = files::read(path)?
        && !kept.trim().is_empty()
    {
        return Ok(kept.trim().to_owned());
    }
    // 244 random bits.
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    files::write(path, &token)?;
    Ok(token)
}
