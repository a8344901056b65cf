//! Requests to addresses that tenants name.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use rustls_platform_verifier::BuilderVerifierExt;

use crate::{
    boundaries::{Boundaries, NotAllowed},
    connector::{ConnectError, GuardedConnector, LookUp, SystemLookUp, surroundings},
};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Idle connections to one host.
const MAX_IDLE: usize = 2;

/// How long a request may take, and how large its response may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit for a connection: look-up and TCP.
    pub connect: Duration,
    /// The limit for the whole request, the last byte of the response included.
    pub total: Duration,
    /// The largest body of a response, in bytes. The client reads no more of it.
    pub answer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(30),
            answer: 1024 * 1024,
        }
    }
}

/// The certificate authorities that a client trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// The authorities that this machine trusts.
    Machine,
    /// The authorities in this PEM, and no others.
    Pem(&'a [u8]),
}

/// Sends requests to addresses that tenants name. Its clones share their connections.
#[derive(Clone)]
pub struct TenantClient {
    http: Client<HttpsConnector<GuardedConnector>, Full<Bytes>>,
    limits: Limits,
}

/// The response of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of the response. A redirect is a response like any other, and is not followed.
    pub status: StatusCode,
    /// The body, which is not larger than the limit.
    pub body: Bytes,
}

/// Why there is no response. The texts are for tenants: they say nothing of the network.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The URL cannot be used.
    #[error("expected an http:// or https:// URL with a host")]
    BadUrl,
    /// The URL leads to an address that tenants may not name.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// No server listens there, it does not speak HTTP, or its certificate is not trusted. Tenants
    /// do not learn which of these it is.
    #[error("it is not reached")]
    NotReached(#[source] Box<dyn Error + Send + Sync>),
    /// The response did not come in time.
    #[error("it does not answer within {0:?}")]
    TimedOut(Duration),
    /// The response is larger than allowed.
    #[error("its answer has more than {0} bytes")]
    TooLarge(usize),
    /// The certificate authorities cannot be used.
    #[error("{0}")]
    BadTrust(String),
}

impl fmt::Debug for TenantClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantClient")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl TenantClient {
    /// A client within these boundaries.
    ///
    /// # Errors
    /// [`OutboundError::BadTrust`].
    pub fn new(
        boundaries: Arc<Boundaries>,
        trust: Trust<'_>,
        limits: Limits,
    ) -> Result<Self, OutboundError> {
        Self::looking_up_with(Arc::new(SystemLookUp), boundaries, trust, limits)
    }

    /// A client whose host names are looked up by `names`.
    fn looking_up_with(
        names: Arc<dyn LookUp>,
        boundaries: Arc<Boundaries>,
        trust: Trust<'_>,
        limits: Limits,
    ) -> Result<Self, OutboundError> {
        let tcp = GuardedConnector {
            names,
            boundaries,
            timeout: limits.connect,
        };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(trust)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(https);
        Ok(Self { http, limits })
    }

    /// Posts JSON, and reads the whole response.
    ///
    /// # Errors
    /// There is no usable response: see [`OutboundError`].
    pub async fn post(&self, url: &str, json: Vec<u8>) -> Result<Answer, OutboundError> {
        self.send(Method::POST, url, json).await
    }

    /// Gets what is at a URL, and reads the whole response.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn get(&self, url: &str) -> Result<Answer, OutboundError> {
        self.send(Method::GET, url, Vec::new()).await
    }

    /// Gets what is at a URL with one more pair in its query, and reads the whole response.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn get_with(
        &self,
        url: &str,
        (key, value): (&str, &str),
    ) -> Result<Answer, OutboundError> {
        let mut url = parse(url)?;
        url.query_pairs_mut().append_pair(key, value);
        self.get(url.as_str()).await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Vec<u8>,
    ) -> Result<Answer, OutboundError> {
        let request = request(method, url, body)?;
        let exchanged = tokio::time::timeout(self.limits.total, self.exchange(request)).await;
        exchanged.unwrap_or(Err(OutboundError::TimedOut(self.limits.total)))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, OutboundError> {
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| unanswered(error.into()))?;
        let (parts, body) = answer.into_parts();
        let limit = self.limits.answer;
        let body = Limited::new(body, limit).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => OutboundError::TooLarge(limit),
            None => unanswered(error),
        })?;
        Ok(Answer {
            status: parts.status,
            body: body.to_bytes(),
        })
    }

    /// Whether a request to a URL is possible at all, as far as its text says: its scheme is HTTP
    /// or HTTPS, and its host is no address that tenants may not name. This check makes no
    /// connection; host names are looked up when a request is sent.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub async fn may_reach(boundaries: &Boundaries, url: &str) -> Result<(), OutboundError> {
        let url = parse(url)?;
        let host = url.host_str().ok_or(OutboundError::BadUrl)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = host.parse::<IpAddr>() else {
            return Ok(());
        };
        let port = url.port_or_known_default().ok_or(OutboundError::BadUrl)?;
        let now = surroundings(&SystemLookUp, boundaries).await;
        let now = now.map_err(|error| OutboundError::NotReached(error.into()))?;
        Ok(boundaries.check(SocketAddr::new(address, port), &now)?)
    }
}

/// A URL as it may be shown: its scheme, host, port and path. The user and the password are left out, and of a query,
/// which may have a key of the API, there is `?…`.
pub fn shown(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let has_host = |url: &Url| url.host_str().is_some_and(|host| !host.is_empty());
    let Some(mut parsed) = parsed.filter(has_host) else {
        return without_secrets(url);
    };
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    let has_query = parsed.query().is_some();
    if !has_user && !has_query && parsed.fragment().is_none() {
        return url.to_owned();
    }
    // Only URLs without a host refuse: those have no user either.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.set_query(None);
    parsed.set_fragment(None);
    let query = if has_query { "?…" } else { "" };
    format!("{parsed}{query}")
}

/// The same of a text that is no URL: the part before the last `@` may be a user and a password, and the part behind
/// the first `?` or `#` may be a key.
fn without_secrets(text: &str) -> String {
    let at = text.find(['?', '#']).unwrap_or(text.len());
    let (address, rest) = text.split_at(at);
    let is_scheme = |it: &&str| !it.contains([':', '@', '/']);
    let scheme = address.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.filter(is_scheme).map(|it| format!("{it}://"));
    let scheme = scheme.unwrap_or_default();
    // The password may have a `?`: then all of the address is a part of it.
    if rest.contains('@') {
        return format!("{scheme}…");
    }
    let address = match address.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}…@{host}"),
        None => address.to_owned(),
    };
    let query = if rest.starts_with('?') { "?…" } else { "" };
    format!("{address}{query}")
}

fn parse(url: &str) -> Result<Url, OutboundError> {
    let url = Url::parse(url).map_err(|_| OutboundError::BadUrl)?;
    let is_http = ["http", "https"].contains(&url.scheme()) && url.has_host();
    if is_http {
        Ok(url)
    } else {
        Err(OutboundError::BadUrl)
    }
}

fn request(
    method: Method,
    url: &str,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, OutboundError> {
    let mut url = parse(url)?;
    let credentials = credentials(&url);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let mut request = Request::builder().method(method).uri(url.as_str());
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some(credentials) = credentials {
        request = request.header(AUTHORIZATION, credentials);
    }
    request
        .body(Full::new(body.into()))
        .map_err(|_| OutboundError::BadUrl)
}

/// What `https://user:password@host` says, as `Basic`.
fn credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
    let mut pair = decoded(url.username());
    pair.push(b':');
    pair.extend(decoded(url.password().unwrap_or_default()));
    let header = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut header = HeaderValue::from_str(&header).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Why there is no response, as far as tenants may know. A [`ConnectError`] among the causes says why
/// no connection was made.
fn unanswered(error: Box<dyn Error + Send + Sync>) -> OutboundError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(found) = cause {
        match found.downcast_ref::<ConnectError>() {
            Some(ConnectError::NotAllowed(refused)) => return OutboundError::NotAllowed(*refused),
            Some(ConnectError::TimedOut(limit)) => return OutboundError::TimedOut(*limit),
            Some(ConnectError::NotReached(_)) | None => {}
        }
        cause = found.source();
    }
    OutboundError::NotReached(error)
}

fn tls(trust: Trust<'_>) -> Result<ClientConfig, OutboundError> {
    let bad = |why: String| OutboundError::BadTrust(why);
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
    };
    Ok(builder.with_no_client_auth())
}

#[cfg(test)]
mod tests;
