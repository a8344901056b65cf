//! Makes a serving certificate, with an authority that signs nothing else and whose key is dropped
//! at once: no key exists that could sign a certificate for another server.

use jiff::{SignedDuration, Timestamp, tz::Offset};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// How long a certificate is good.
pub(crate) const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Clocks of API servers may be behind the clock of this process.
const BACKDATED: SignedDuration = SignedDuration::from_hours(24);

/// A serving certificate with its key, and the authority that vouches for it. All in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// Until when both are good.
    pub(crate) not_after: Timestamp,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// A new certificate for a server of these names.
pub(crate) fn issue(names: &[String], now: Timestamp) -> Result<Pair, rcgen::Error> {
    let not_after = now.saturating_add(LIFETIME).unwrap_or(Timestamp::MAX);
    // Midnight of that day.
    let day = |at: Timestamp| {
        let date = Offset::UTC.to_datetime(at);
        let part = |number: i8| number.unsigned_abs();
        date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    };
    let good = |params: &mut CertificateParams, common_name: &str| {
        let common_name = common_name.to_owned();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let since = now.saturating_sub(BACKDATED).unwrap_or(Timestamp::MIN);
        params.not_before = day(since);
        // The end of its last day, so that no client calls it expired before this process does.
        let until = not_after.saturating_add(SignedDuration::from_hours(24));
        params.not_after = day(until.unwrap_or(Timestamp::MAX));
    };
    let mut authority = CertificateParams::default();
    good(&mut authority, "longshore-webhook-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;

    let mut server = CertificateParams::new(names)?;
    good(&mut server, "longshore-webhook");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &Issuer::new(authority, authority_key))?;
    Ok(Pair {
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        not_after,
    })
}
