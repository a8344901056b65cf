//! Rules about a FlinkSessionJob.

use std::net::IpAddr;

use super::{Invalid, Validity, autoscaler, cluster, job};
use crate::{
    conf::{FlinkConfig, operator},
    spec::{FlinkDeploymentSpec, FlinkSessionJobSpec, JobSpec},
};

/// A FlinkSessionJob to be validated.
#[derive(Clone, Copy, Debug)]
pub struct SessionJob<'a> {
    /// The wanted spec.
    pub spec: &'a FlinkSessionJobSpec,
    /// The spec that was last reconciled; none before the first submission.
    pub last: Option<&'a FlinkSessionJobSpec>,
    /// The configuration of the operator itself, which says where jars may come from.
    pub operator: &'a FlinkConfig,
    /// What the host of [`jar_host`] resolves to.
    pub jar_host: JarHost<'a>,
    /// The session cluster, if it exists.
    pub cluster: Option<SessionCluster<'a>>,
}

/// The session cluster of a FlinkSessionJob.
#[derive(Clone, Copy, Debug)]
pub struct SessionCluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its spec.
    pub spec: &'a FlinkDeploymentSpec,
    /// The defaults for namespace and version, above them what the cluster configures, and above that the job.
    pub config: &'a FlinkConfig,
}

/// What the host of a jar resolves to. Names are not resolved in this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JarHost<'a> {
    /// [`jar_host`] names none.
    NotNeeded,
    /// To nothing.
    Unknown,
    /// It is resolved when it is connected to, and then its addresses are checked.
    AtConnect,
    /// To these addresses. None of them may be restricted, because any of them may be asked.
    Addresses(&'a [IpAddr]),
}

/// Validates a FlinkSessionJob.
///
/// # Errors
/// The first rule that does not hold.
pub fn validate_session_job(it: &SessionJob<'_>) -> Result<(), Invalid> {
    let spec = it.spec;
    cluster::name(spec.deployment_name.as_deref())?;
    let Some(job) = &spec.job else {
        return Err(Invalid::new("The job spec should not be empty"));
    };
    if it
        .last
        .is_some_and(|last| last.deployment_name != spec.deployment_name)
    {
        return Err(Invalid::new("The deploymentName can't be changed"));
    }
    jar(job, it.operator, it.jar_host)?;
    let Some(cluster) = it.cluster else {
        return Ok(());
    };
    if cluster.spec.job.is_some() {
        return Err(Invalid::new(
            "Can not submit session job to application cluster",
        ));
    }
    if spec.deployment_name.as_deref() != Some(cluster.name) {
        return Err(Invalid::new(
            "The session job's cluster id is not match with the session cluster",
        ));
    }
    job::validate(job, None, cluster.config)?;
    autoscaler::validate(cluster.config)
}

/// The host that has to be resolved before a job is validated; none where its jar may come from anywhere, comes from no
/// host, or has an invalid URI.
///
/// # Errors
/// The configuration of the operator has an invalid value.
pub fn jar_host<'a>(job: &'a JobSpec, operator: &FlinkConfig) -> Result<Option<&'a str>, Invalid> {
    let restricts = operator.get(&operator::ARTIFACTS_RESTRICT_HOSTS)?;
    let uri = job
        .jar_uri
        .as_deref()
        .and_then(|text| Uri::parse(text).ok());
    Ok(uri
        .filter(|uri| restricts && uri.is_http())
        .and_then(|uri| uri.host))
}

fn jar(job: &JobSpec, operator: &FlinkConfig, resolved: JarHost<'_>) -> Validity {
    let Some(text) = &job.jar_uri else {
        return Ok(());
    };
    let uri = Uri::parse(text).map_err(|at| {
        let message = format!("Illegal character at index {at}: {text}");
        Invalid(format!("jarURI is not a valid URI: {message}"))
    })?;
    let Some(scheme) = uri.scheme else {
        return Err(Invalid::new("jarURI must include a scheme"));
    };
    let allowed = operator.get(&operator::ARTIFACTS_SCHEMES)?.0;
    if !allowed.contains(&scheme.to_ascii_lowercase()) {
        return Err(Invalid(format!(
            "jarURI scheme '{scheme}' is not in the allowlist [{}]. Configure '{}' to extend the allowlist.",
            allowed.join(", "),
            operator::ARTIFACTS_SCHEMES.key.name
        )));
    }
    if !uri.is_http() || !operator.get(&operator::ARTIFACTS_RESTRICT_HOSTS)? {
        return Ok(());
    }
    let Some(host) = uri.host else {
        return Err(Invalid::new(
            "jarURI must include a host for http/https schemes",
        ));
    };
    match resolved {
        JarHost::Addresses(addresses) if !addresses.is_empty() => {
            if addresses.iter().any(|address| is_restricted(*address)) {
                return Err(Invalid(format!(
                    "jarURI host '{host}' resolves to a restricted address"
                )));
            }
            Ok(())
        }
        JarHost::AtConnect => Ok(()),
        JarHost::Addresses(_) | JarHost::Unknown | JarHost::NotNeeded => {
            Err(Invalid(format!("jarURI host '{host}' cannot be resolved")))
        }
    }
}

/// Whether an address is of this machine or its networks. Upstream lets unique local addresses (`fc00::/7`) pass, which are
/// what site-local ones have become.
fn is_restricted(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_private()
                || v4.is_unspecified()
                || v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            let is_site_local = v6.segments()[0] & 0xffc0 == 0xfec0;
            is_site_local
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_unique_local()
                || v6.is_unspecified()
                || v6.is_multicast()
        }
    }
}

/// The parts of a URI that the rules need (RFC 2396, as `java.net.URI` reads it).
struct Uri<'a> {
    scheme: Option<&'a str>,
    host: Option<&'a str>,
}

impl<'a> Uri<'a> {
    /// Reads a URI. The error is where the first character is that no URI has.
    fn parse(text: &'a str) -> Result<Self, usize> {
        if let Some(at) = illegal_at(text) {
            return Err(at);
        }
        let end = text.find([':', '/', '?', '#']);
        let scheme = end
            .filter(|end| text[*end..].starts_with(':'))
            .map(|end| &text[..end]);
        let rest = match scheme {
            // Before a colon at the start a scheme is missing.
            Some("") => return Err(0),
            Some(scheme) => {
                if let Some(at) = scheme.find(|letter: char| !is_of_scheme(letter)) {
                    return Err(at);
                }
                if !scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
                    return Err(0);
                }
                &text[scheme.len() + 1..]
            }
            None => text,
        };
        Ok(Self {
            scheme,
            host: rest.strip_prefix("//").and_then(host),
        })
    }

    fn is_http(&self) -> bool {
        let is = |name: &str| self.scheme.is_some_and(|it| it.eq_ignore_ascii_case(name));
        is("http") || is("https")
    }
}

fn is_of_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.')
}

/// Where the first character is that no URI has, or a `%` without two hexadecimal digits.
fn illegal_at(text: &str) -> Option<usize> {
    let is_illegal = |at: usize, letter: char| match letter {
        '%' => {
            let digits = text.as_bytes().get(at + 1..at + 3);
            !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
        ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => true,
        _ => letter.is_control() || letter.is_whitespace(),
    };
    let mut letters = text.char_indices();
    letters
        .find(|&(at, letter)| is_illegal(at, letter))
        .map(|(at, _)| at)
}

/// The host after `//`; none where it is empty or no name of a host.
fn host(rest: &str) -> Option<&str> {
    let authority = rest.split(['/', '?', '#']).next()?;
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
    if let Some(inner) = host_and_port.strip_prefix('[') {
        let (address, _) = inner.split_once(']')?;
        return address
            .parse::<std::net::Ipv6Addr>()
            .is_ok()
            .then_some(address);
    }
    let host = host_and_port.split(':').next()?;
    let is_host = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    (!host.is_empty() && host.chars().all(is_host)).then_some(host)
}
