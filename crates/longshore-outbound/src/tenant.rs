//! Requests to addresses that tenants name.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::ext::on_informational;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::sync::Notify;

use crate::{
    boundaries::{Boundaries, NotAllowed},
    connector::{ConnectError, GuardedConnector, LookUp, SystemLookUp, surroundings},
    gated::{GatedConnector, Permit},
    request::{BadUrl, parse, request},
    tls::{BadTrust, Trust, tls},
};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Idle connections to one host.
const MAX_IDLE: usize = 2;

/// The most informational responses (1xx) that are read before the response: a server may send them without end, and each
/// one takes time.
const MAX_INFORMATIONAL: usize = 16;

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

/// Sends requests to addresses that tenants name. Its clones share their connections.
#[derive(Clone)]
pub struct TenantClient {
    http: Client<HttpsConnector<GatedConnector<GuardedConnector>>, Full<Bytes>>,
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
    #[error(transparent)]
    BadUrl(#[from] BadUrl),
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
    /// A client within these boundaries, which sends for as long as `permit` holds.
    ///
    /// # Errors
    /// [`OutboundError::BadTrust`].
    pub fn new(
        boundaries: Arc<Boundaries>,
        trust: Trust<'_>,
        limits: Limits,
        permit: Permit,
    ) -> Result<Self, OutboundError> {
        let names = Arc::new(SystemLookUp);
        Self::looking_up_with(names, boundaries, trust, limits, permit)
    }

    /// A client whose host names are looked up by `names`.
    fn looking_up_with(
        names: Arc<dyn LookUp>,
        boundaries: Arc<Boundaries>,
        trust: Trust<'_>,
        limits: Limits,
        permit: Permit,
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
            .wrap_connector(GatedConnector::new(tcp, permit));
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
        let json = HeaderValue::from_static("application/json");
        let content = (!body.is_empty()).then(|| (json, body.into()));
        self.exchange_with(method, url, content).await
    }

    /// Sends a request of this method, with a body of this content type where it has one, and reads the whole response.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub async fn exchange_with(
        &self,
        method: Method,
        url: &str,
        content: Option<(HeaderValue, Bytes)>,
    ) -> Result<Answer, OutboundError> {
        let (kind, body) = content.unzip();
        let mut request = request(method, url, body.unwrap_or_default())?;
        if let Some(kind) = kind {
            request.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let exchanged = tokio::time::timeout(self.limits.total, self.exchange(request)).await;
        exchanged.unwrap_or(Err(OutboundError::TimedOut(self.limits.total)))
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, OutboundError> {
        let too_many = count_informational(&mut request);
        let answer = tokio::select! {
            answer = self.http.request(request) => answer,
            // The connection ends with its request.
            () = too_many.notified() => {
                let why = format!("more than {MAX_INFORMATIONAL} informational responses");
                return Err(OutboundError::NotReached(why.into()));
            }
        };
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
        let host = url.host_str().ok_or(BadUrl)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = host.parse::<IpAddr>() else {
            return Ok(());
        };
        let port = url.port_or_known_default().ok_or(BadUrl)?;
        let now = surroundings(&SystemLookUp, boundaries).await;
        let now = now.map_err(|error| OutboundError::NotReached(error.into()))?;
        Ok(boundaries.check(SocketAddr::new(address, port), &now)?)
    }
}

impl From<BadTrust> for OutboundError {
    fn from(BadTrust(why): BadTrust) -> Self {
        Self::BadTrust(why)
    }
}

/// Tells when a request has more informational responses than are read.
fn count_informational<B>(request: &mut Request<B>) -> Arc<Notify> {
    let too_many = Arc::new(Notify::new());
    let (told, n_read) = (Arc::clone(&too_many), AtomicUsize::new(0));
    on_informational(request, move |_| {
        if n_read.fetch_add(1, Ordering::Relaxed) >= MAX_INFORMATIONAL {
            told.notify_one();
        }
    });
    too_many
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

#[cfg(test)]
mod tests;
