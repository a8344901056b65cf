//! Asks a service.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header::CONTENT_TYPE};
use longshore_core::{Class, Classify, text::shorten};
use longshore_outbound::{
    BadTrust, BodyError, BodyRoom, OperatorClient, Permit, RequestError, is_service_url, request,
    shown,
};
use prost::Message;

use crate::{Code, PROTO, TIMEOUT_HEADER, VERSION_HEADER, WireError};

/// How long a call may take, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// No answer is read beyond this, in bytes: outputs that a cache has inline are the largest.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// What is quoted of an answer that is no error of Connect's, in bytes.
const MAX_QUOTE: usize = 300;

/// A client of the services behind one URL. Its clones share the connections.
#[derive(Clone)]
pub struct ConnectClient {
    http: OperatorClient,
    /// May have a user and a password, which are sent and not shown.
    base: String,
    timeout: Duration,
    room: BodyRoom,
}

/// Why a call has no answer. All but a refusal say nothing about what the service did.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL of the service cannot be used.
    #[error("expected an http:// or https:// URL of a service, found {0:?}")]
    BadUrl(String),
    /// No HTTP client could be made.
    #[error("no HTTP client can be made")]
    NoClient(#[source] BadTrust),
    /// No server answers there, or the connection broke.
    #[error("{url} did not answer")]
    Unreachable {
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
    /// The answer is no answer to this.
    #[error("{url} answered what cannot be read: {why}")]
    Garbage {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

impl std::fmt::Debug for ConnectClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectClient")
            .field("base", &shown(&self.base))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl ConnectError {
    /// The service's code, where it refused.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::BadUrl(_)
            | Self::NoClient(_)
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Garbage { .. } => None,
        }
    }
}

impl Classify for ConnectError {
    fn class(&self) -> Class {
        match self {
            Self::BadUrl(_) | Self::NoClient(_) => Class::Invalid,
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Refused { .. }
            | Self::Garbage { .. } => Class::Retry,
        }
    }
}

impl ConnectClient {
    /// A client of the services at `http://host:port`, which waits for an answer for 30 s, and sends for as long as
    /// `permit` holds.
    ///
    /// # Errors
    /// Where that is no such URL.
    pub fn new(base: &str, permit: Permit) -> Result<Self, ConnectError> {
        if !is_service_url(base) {
            return Err(ConnectError::BadUrl(shown(base)));
        }
        let http = OperatorClient::new(permit).map_err(ConnectError::NoClient)?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
            timeout: TIMEOUT,
            room: BodyRoom::default(),
        })
    }

    /// Waits this long for an answer.
    #[must_use]
    pub fn waiting(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Calls a method, as `flyteidl2.workflow.EventsProxyService/Record`.
    ///
    /// *Cancellation*: after a dropped call it is not known whether the service has done it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, ConnectError> {
        let whole = format!("{}/{method}", self.base);
        // For errors, which are logged and stand in statuses.
        let url = shown(&whole);
        let body = request.encode_to_vec();
        let work = self.exchange(&whole, &url, body);
        let answer = self.within(&url, work).await??;
        A::decode(answer).map_err(|error| garbage(&url, error.to_string()))
    }

    async fn within<T>(&self, url: &str, work: impl Future<Output = T>) -> Result<T, ConnectError> {
        let done = tokio::time::timeout(self.timeout, work).await;
        done.map_err(|_| ConnectError::TimedOut {
            url: url.to_owned(),
            limit: self.timeout,
        })
    }

    /// `url` is `whole` as it may be shown.
    async fn exchange(&self, whole: &str, url: &str, body: Vec<u8>) -> Result<Bytes, ConnectError> {
        let request = request(Method::POST, whole, body.into());
        let mut request = request.map_err(|_| ConnectError::BadUrl(url.to_owned()))?;
        let limit = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let (version, number) = VERSION_HEADER;
        request.headers_mut().extend([
            (CONTENT_TYPE, HeaderValue::from_static(PROTO)),
            (
                HeaderName::from_static(version),
                HeaderValue::from_static(number),
            ),
            (HeaderName::from_static(TIMEOUT_HEADER), limit.into()),
        ]);
        let response = self.http.send(request).await;
        let response = response.map_err(|source| unreachable(url, source))?;
        let status = response.status();
        let is_proto = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|it| it.as_bytes().starts_with(PROTO.as_bytes()));
        let body = self.room.read(response.into_body(), MAX_ANSWER, |_| None);
        let body = body.await.map_err(|error| unread(url, error))?;
        let body = body.data.freeze();
        if !status.is_success() {
            let (code, message) = refusal(&body, status);
            return Err(ConnectError::Refused {
                url: url.to_owned(),
                code,
                message,
            });
        }
        if !is_proto {
            let why = format!("expected {PROTO}, found {:?}", quote(&body));
            return Err(garbage(url, why));
        }
        Ok(body)
    }
}

/// What an answer that is no success says.
fn refusal(body: &[u8], status: http::StatusCode) -> (Code, String) {
    let error = serde_json::from_slice::<WireError>(body).ok();
    let known = error.and_then(|error| Some((Code::parse(&error.code)?, shorten(error.message))));
    known.unwrap_or_else(|| {
        (
            Code::of_status(status),
            format!("{status}: {}", quote(body)),
        )
    })
}

fn quote(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTE)]).into_owned()
}

fn unread(url: &str, error: BodyError) -> ConnectError {
    match error {
        BodyError::Broken(source) => unreachable(url, source),
        BodyError::TooLarge(_) | BodyError::TooSlow(_) => garbage(url, error.to_string()),
    }
}

fn unreachable(url: &str, source: RequestError) -> ConnectError {
    ConnectError::Unreachable {
        url: url.to_owned(),
        source,
    }
}

fn garbage(url: &str, why: String) -> ConnectError {
    ConnectError::Garbage {
        url: url.to_owned(),
        why,
    }
}
