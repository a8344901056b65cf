//! Requests to addresses that the configuration of the process names.

use std::{error::Error, fmt, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tower::BoxError;

use crate::{
    gated::{GatedConnector, Permit},
    tls::{BadTrust, Trust, tls},
};

mod failure;

use failure::{ConnectFailure, LastFailure, Noting};

/// How long a connection may take to come about: look-up, TCP and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// A connection is given up whose server has acknowledged nothing for this long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// How often a request is sent again that a server says not to have begun.
const MAX_REPEATS: usize = 2;

/// Sends requests to addresses that the operator names. Its clones share their connections.
///
/// It may reach private addresses and loopback, follows no redirect, and uses no proxy of the environment: either would
/// send the data of tasks, and credentials, to a server that the operator has not configured. The caller sets the limits
/// of its requests.
#[derive(Clone)]
pub struct OperatorClient {
    http: Client<Noting<TimeoutConnector<Https>>, Full<Bytes>>,
    last_failure: LastFailure,
}

type Https = HttpsConnector<GatedConnector<HttpConnector>>;

/// Pings on the connections of HTTP/2 that have requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Between two pings.
    pub interval: Duration,
    /// How long a ping may take to be answered.
    pub timeout: Duration,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No server listens there, or its certificate is not trusted. Nothing was sent.
    #[error("no connection came about")]
    NotConnected(#[source] BoxError),
    /// The connection broke. It is unknown whether the server has done what the request says.
    #[error("the connection broke")]
    Broken(#[source] BoxError),
}

impl fmt::Debug for OperatorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorClient").finish_non_exhaustive()
    }
}

impl OperatorClient {
    /// A client that sends for as long as `permit` holds: HTTP/2 where TLS negotiates it, else HTTP/1.1.
    ///
    /// # Errors
    /// This machine trusts no certificate authority.
    pub fn new(permit: Permit) -> Result<Self, BadTrust> {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(Trust::Machine)?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(GatedConnector::new(tcp(), permit));
        Ok(Self::over(https, &mut builder()))
    }

    /// A client that speaks HTTP/2 from the start, and sends for as long as `permit` holds.
    ///
    /// # Errors
    /// The authorities cannot be used.
    pub fn http2(
        permit: Permit,
        trust: Trust<'_>,
        keep_alive: KeepAlive,
    ) -> Result<Self, BadTrust> {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(trust)?)
            .https_or_http()
            .enable_http2()
            .wrap_connector(GatedConnector::new(tcp(), permit));
        let mut builder = builder();
        builder
            .http2_only(true)
            .http2_keep_alive_interval(keep_alive.interval)
            .http2_keep_alive_timeout(keep_alive.timeout);
        Ok(Self::over(https, &mut builder))
    }

    fn over(https: Https, builder: &mut legacy::Builder) -> Self {
        let mut connector = TimeoutConnector::new(https);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let last_failure = LastFailure::default();
        let connector = Noting {
            connector,
            last: last_failure.clone(),
        };
        Self {
            http: builder.build(connector),
            last_failure,
        }
    }

    /// Sends a request, and returns the response, whose body is still under way.
    ///
    /// A request that the server says not to have begun, as one that shuts down, is sent again.
    ///
    /// *Cancellation*: after a dropped call it is not known whether the server has done what the request says.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        let mut n_repeats = 0;
        loop {
            let error = match self.http.request(request.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if error.is_connect() {
                let is_own = error.source().is_some_and(|it| it.is::<ConnectFailure>());
                let of_another = || self.last_failure.of(request.uri().authority());
                return Err(RequestError::NotConnected(match of_another() {
                    Some(failure) if !is_own => failure.into(),
                    Some(_) | None => error.into(),
                }));
            }
            if n_repeats == MAX_REPEATS || !is_not_begun(&error) {
                return Err(RequestError::Broken(error.into()));
            }
            n_repeats += 1;
        }
    }
}

impl From<hyper::Error> for RequestError {
    /// What breaks the body of a response.
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.into())
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

fn builder() -> legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE);
    builder
}

/// Whether the server says that it has not begun what was asked for (RFC 9113, section 8.7).
fn is_not_begun(error: &legacy::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_going = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (is_going || is_refused);
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
