//! The certificates of the components, and the key that signs service account tokens.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{ClusterError, control_plane::write};

/// Names and addresses under which the API server is found.
const SERVER_NAMES: [&str; 5] = [
    "127.0.0.1",
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default.svc",
];

/// Writes `ca.crt`, a certificate and a key for serving (`server`) and for calling nodes (`kubelet-client`) and
/// webhooks (`webhook-client`), and `service-accounts.key` and `.pub`; returns the text of `ca.crt`.
pub(super) fn make(folder: &Path) -> Result<String, ClusterError> {
    let key = KeyPair::generate().map_err(ClusterError::Certificate)?;
    let mut params = params(&[], "longshore-test-ca")?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = params
        .self_signed(&key)
        .map_err(ClusterError::Certificate)?;
    let authority_text = authority.pem();
    write(&folder.join("ca.crt"), &authority_text)?;
    let issuer = Issuer::new(params, key);
    let server = (
        &SERVER_NAMES[..],
        "kube-apiserver",
        ExtendedKeyUsagePurpose::ServerAuth,
    );
    signed(folder, "server", server, &issuer)?;
    let client = (
        &[][..],
        "kube-apiserver-kubelet-client",
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    signed(folder, "kubelet-client", client, &issuer)?;
    let client = (
        &[][..],
        "kube-apiserver-webhook-client",
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    signed(folder, "webhook-client", client, &issuer)?;
    let accounts = KeyPair::generate().map_err(ClusterError::Certificate)?;
    write(
        &folder.join("service-accounts.key"),
        &accounts.serialize_pem(),
    )?;
    write(
        &folder.join("service-accounts.pub"),
        &accounts.public_key_pem(),
    )?;
    Ok(authority_text)
}

fn signed(
    folder: &Path,
    file: &str,
    (names, common_name, purpose): (&[&str], &str, ExtendedKeyUsagePurpose),
    issuer: &Issuer<'_, KeyPair>,
) -> Result<(), ClusterError> {
    let key = KeyPair::generate().map_err(ClusterError::Certificate)?;
    let mut params = params(names, common_name)?;
    params.extended_key_usages = vec![purpose];
    let certificate = params
        .signed_by(&key, issuer)
        .map_err(ClusterError::Certificate)?;
    write(&folder.join(format!("{file}.crt")), &certificate.pem())?;
    write(&folder.join(format!("{file}.key")), &key.serialize_pem())
}

fn params(names: &[&str], common_name: &str) -> Result<CertificateParams, ClusterError> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(ClusterError::Certificate)?;
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}
