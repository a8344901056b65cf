//! Unary gRPC calls: how connectors are spoken to.
//!
//! A call is a POST over HTTP/2 with one framed message each way, and a status behind the answer. Calls whose connection
//! did not come about are repeated, because nothing was sent; others only where the service configuration says so.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, TE},
};
use longshore_connect::Code;
use longshore_core::text::shorten;
use longshore_outbound::{
    BadTrust, BodyError, BodyRoom, KeepAlive, OperatorClient, Permit, RequestError, Trust,
    WholeBody, request, shown,
};
use longshore_plugins::MethodPolicy;
use prost::Message;
use url::Url;

/// For how long an address without a server is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// An idle connection is asked for a sign of life so often, and has so long to give it: upstream's.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
};
/// No answer is read beyond this, in bytes: outputs that a connector returns are the largest.
pub(super) const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// A flag whether the message is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// Where gRPC goes that names no port.
const DEFAULT_PORT: u16 = 443;
const GRPC: &str = "application/grpc";
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// A client of the services behind one endpoint. Its clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct GrpcClient {
    http: OperatorClient,
    base: String,
    room: BodyRoom,
    max_answer: usize,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    /// HTTP/2 without TLS.
    Plain,
    /// TLS with the certificates that the machine trusts, which `SSL_CERT_FILE` and `SSL_CERT_DIR` can say: as with the
    /// peer, which has no setting of its own for that.
    Tls,
}

/// Why a call has no answer. All but a refusal and a connection that did not come about say nothing about what the
/// service did.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The endpoint cannot be used.
    #[error("expected an endpoint as host:port or dns:///host:port, found {0:?}")]
    BadEndpoint(String),
    /// No HTTP client could be made.
    #[error("no HTTP/2 client can be made")]
    NoClient(#[source] BadTrust),
    /// No server answers there: nothing was sent.
    #[error("no connection to {url} came about")]
    NotConnected {
        /// What was to be asked.
        url: String,
        /// Why.
        source: RequestError,
    },
    /// The connection broke.
    #[error("{url} did not answer")]
    Broken {
        /// What was asked.
        url: String,
        /// Why.
        source: RequestError,
    },
    /// It took too long.
    #[error("{url} did not answer within {limit:?}")]
    TimedOut {
        /// What was asked.
        url: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The service says no.
    #[error("{url} refused with {code}: {message}")]
    Refused {
        /// What was asked.
        url: String,
        /// Why, as a code.
        code: Code,
        /// Why, for people.
        message: String,
    },
    /// The answer is larger than what is read.
    #[error("{url} answered with more than {most} bytes")]
    TooLarge {
        /// What was asked.
        url: String,
        /// So much is read.
        most: usize,
    },
    /// The answer is no answer to this.
    #[error("{url} answered what cannot be read: {why}")]
    Garbage {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

impl GrpcClient {
    /// `http://host:port` of an endpoint.
    ///
    /// # Errors
    /// Where that is no such endpoint.
    pub(crate) fn base(endpoint: &str, transport: Transport) -> Result<String, GrpcError> {
        let base = base_url(endpoint, transport);
        base.ok_or_else(|| GrpcError::BadEndpoint(shown(endpoint)))
    }

    /// A client of the services at `host:port`, which sends for as long as `permit` holds. Nothing is connected yet.
    ///
    /// # Errors
    /// Where that is no such endpoint.
    pub(crate) fn new(
        endpoint: &str,
        transport: Transport,
        permit: Permit,
    ) -> Result<Self, GrpcError> {
        let base = Self::base(endpoint, transport)?;
        let trust = match transport {
            // A machine without root certificates can do without as well.
            Transport::Plain => Trust::Nobody,
            Transport::Tls => Trust::Machine,
        };
        let http = OperatorClient::http2(permit, trust, KEEP_ALIVE);
        let http = http.map_err(GrpcError::NoClient)?;
        Ok(Self {
            http,
            base,
            room: BodyRoom::default(),
            max_answer: MAX_ANSWER,
        })
    }

    /// The same, which reads no answer beyond this, in bytes.
    #[must_use]
    pub(crate) fn reading(&self, max_answer: usize) -> Self {
        Self {
            max_answer,
            ..self.clone()
        }
    }

    /// Calls a method, as `flyteidl2.connector.AsyncConnectorService/GetTask`, and has the answer within the limit of
    /// the policy, retries included.
    ///
    /// *Cancellation*: after a dropped call it is not known whether the service has done it.
    ///
    /// # Errors
    /// See [`GrpcError`].
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        policy: &MethodPolicy,
    ) -> Result<A, GrpcError> {
        let url = format!("{}/{method}", self.base);
        let body = frame(request);
        let work = self.with_retry(&url, body, policy);
        let answer = match policy.timeout {
            None => work.await?,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(answer) => answer?,
                Err(_) => return Err(GrpcError::TimedOut { url, limit }),
            },
        };
        A::decode(answer).map_err(|error| garbage(&url, error.to_string()))
    }

    async fn with_retry(
        &self,
        url: &str,
        body: Bytes,
        policy: &MethodPolicy,
    ) -> Result<Bytes, GrpcError> {
        let began = tokio::time::Instant::now();
        // The last try ends before the limit does: its error says why there is no server.
        let patience = policy.timeout.map_or(PATIENCE, |limit| limit.min(PATIENCE));
        let mut n_calls = 1;
        loop {
            let error = match self.exchange(url, body.clone(), policy.timeout).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let wait = match &error {
                GrpcError::NotConnected { .. } if began.elapsed() + CONNECT_AGAIN < patience => {
                    CONNECT_AGAIN
                }
                GrpcError::Refused { code, .. } => {
                    match policy.wait_after(n_calls, code.number()) {
                        Some(wait) => wait,
                        None => return Err(error),
                    }
                }
                GrpcError::NotConnected { .. }
                | GrpcError::BadEndpoint(_)
                | GrpcError::NoClient(_)
                | GrpcError::Broken { .. }
                | GrpcError::TimedOut { .. }
                | GrpcError::TooLarge { .. }
                | GrpcError::Garbage { .. } => return Err(error),
            };
            if matches!(error, GrpcError::Refused { .. }) {
                n_calls += 1;
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn exchange(
        &self,
        url: &str,
        body: Bytes,
        limit: Option<Duration>,
    ) -> Result<Bytes, GrpcError> {
        let request = request(Method::POST, url, body);
        let mut request = request.map_err(|_| GrpcError::BadEndpoint(shown(url)))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
        // Servers refuse calls whose trailers would get lost.
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if let Some(limit) = limit.and_then(timeout_header) {
            headers.insert(HeaderName::from_static("grpc-timeout"), limit);
        }
        let response = self.http.send(request).await;
        let response = response.map_err(|source| unanswered(url, source))?;
        let (parts, body) = response.into_parts();
        if parts.status != StatusCode::OK {
            let code = Code::of_status(parts.status);
            return Err(refused(url, code, parts.status.to_string()));
        }
        if !is_grpc(&parts.headers) {
            return Err(garbage(url, format!("it is no {GRPC}")));
        }
        let body = self.room.read(body, self.max_answer, declared).await;
        let WholeBody { data, trailers } = body.map_err(|error| unread(url, error))?;
        // A refusal without any message has its status before the body.
        let status = if trailers.contains_key(STATUS) {
            trailers
        } else {
            parts.headers
        };
        ended_well(url, &status)?;
        unframe(url, data.freeze())
    }
}

/// A limit in milliseconds.
fn timeout_header(limit: Duration) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{}m", limit.as_millis())).ok()
}

/// `http://host:port` of an endpoint as gRPC has it.
fn base_url(endpoint: &str, transport: Transport) -> Option<String> {
    let address = match endpoint.split_once("://") {
        // What is before the slash is whom to ask for the address.
        Some(("dns" | "passthrough", rest)) => rest.split_once('/')?.1,
        Some(_) => return None,
        None => endpoint.strip_prefix("dns:").unwrap_or(endpoint),
    };
    let scheme = match transport {
        Transport::Plain => "http",
        Transport::Tls => "https",
    };
    let port = address.rsplit_once(':').map(|(_, port)| port);
    let address = if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        address.to_owned()
    } else {
        format!("{address}:{DEFAULT_PORT}")
    };
    let url = Url::parse(&format!("{scheme}://{address}")).ok()?;
    // gRPC has no user and no password: they would be shown with the address, and never sent.
    let has_user = !url.username().is_empty() || url.password().is_some();
    let is_address = url.has_host() && url.path() == "/" && !has_user;
    is_address.then(|| format!("{scheme}://{address}"))
}

fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(FRAME_HEAD + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message.encode_to_vec());
    framed.freeze()
}

fn unframe(url: &str, mut framed: Bytes) -> Result<Bytes, GrpcError> {
    if framed.len() < FRAME_HEAD {
        return Err(garbage(url, "it has no message".to_owned()));
    }
    if framed.get_u8() != 0 {
        return Err(garbage(
            url,
            "its message is compressed, which nobody asked for".to_owned(),
        ));
    }
    let length = framed.get_u32() as usize;
    if length != framed.len() {
        let found = framed.len();
        let why = format!("expected a message of {length} bytes, found {found}");
        return Err(garbage(url, why));
    }
    Ok(framed)
}

/// How many bytes the message that begins so has in all.
fn declared(mut beginning: &[u8]) -> Option<usize> {
    if beginning.len() < FRAME_HEAD {
        return None;
    }
    beginning.advance(1);
    FRAME_HEAD.checked_add(beginning.get_u32() as usize)
}

fn unread(url: &str, error: BodyError) -> GrpcError {
    match error {
        BodyError::Broken(source) => unanswered(url, source),
        BodyError::TooLarge(most) => GrpcError::TooLarge {
            url: url.to_owned(),
            most,
        },
        BodyError::TooSlow(_) => garbage(url, error.to_string()),
    }
}

/// What the status behind an answer says.
fn ended_well(url: &str, headers: &HeaderMap) -> Result<(), GrpcError> {
    let text = |name| headers.get(name).map(HeaderValue::as_bytes);
    let status = text(STATUS).and_then(|status| std::str::from_utf8(status).ok());
    match status.and_then(|status| status.parse().ok()) {
        Some(0) => Ok(()),
        Some(number) => {
            let message = percent_encoding::percent_decode(text(MESSAGE).unwrap_or_default());
            let message = message.decode_utf8_lossy().into_owned();
            Err(refused(url, Code::of_number(number), message))
        }
        None => Err(garbage(url, format!("it has no {STATUS}"))),
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(GRPC.as_bytes()))
}

fn unanswered(url: &str, source: RequestError) -> GrpcError {
    let url = url.to_owned();
    match source {
        RequestError::Broken(_) => GrpcError::Broken { url, source },
        RequestError::NotConnected(_) => GrpcError::NotConnected { url, source },
    }
}

fn refused(url: &str, code: Code, message: String) -> GrpcError {
    GrpcError::Refused {
        url: url.to_owned(),
        code,
        message: shorten(message),
    }
}

fn garbage(url: &str, why: String) -> GrpcError {
    GrpcError::Garbage {
        url: url.to_owned(),
        why,
    }
}

#[cfg(test)]
pub(super) mod server;
#[cfg(test)]
mod tests;
