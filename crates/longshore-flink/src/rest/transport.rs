//! Carries requests to JobManagers.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderValue;
use longshore_core::{AskError, NoAnswer};
use longshore_outbound::{Boundaries, Limits, OutboundError, Permit, TenantClient, Trust};
use serde_json::Value;

use super::{
    HttpBody, HttpRequest, RestAnswer, RestCall, RestQuestion, Submission,
    read::{jar_id, refusal},
};

/// The time limit of one HTTP request, the upload of a jar included. The kit has shorter ones for most kinds of questions.
pub(super) const TOTAL: Duration = Duration::from_mins(5);
/// The largest response of a JobManager, in bytes.
pub(super) const ANSWER_BYTES: usize = 4 << 20;
/// The largest jar, in bytes: it is held in memory while it is uploaded.
const JAR_BYTES: usize = 256 << 20;
/// A jar without an entry.
const EMPTY_JAR: &[u8] = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// What separates the parts of an uploaded form.
const BOUNDARY: &str = "longshore-5f0c6b1d9a2e47c8b3";

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status of the response.
    pub status: u16,
    /// The body of the response.
    pub body: Bytes,
}

/// Carries requests to JobManagers, and fetches jars.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends a request to the JobManager at this address. `kind` is the kind of the question that it belongs to.
    ///
    /// # Errors
    /// There is no response.
    async fn exchange(
        &self,
        address: &str,
        kind: &'static str,
        request: &HttpRequest,
    ) -> Result<HttpAnswer, AskError>;

    /// Fetches what is at a URL.
    ///
    /// # Errors
    /// There is no response, or it is no success.
    async fn fetch(&self, url: &str) -> Result<Bytes, AskError>;
}

/// Asks one question.
///
/// # Errors
/// Why there is no answer.
pub async fn ask(
    transport: &dyn Transport,
    question: &RestQuestion,
) -> Result<RestAnswer, AskError> {
    let kind = longshore_core::Question::kind(question);
    match (question.call.request(), &question.call) {
        (Some(request), call) => {
            let answer = transport.exchange(&question.address, kind, &request);
            call.read(&answer.await?)
        }
        (None, RestCall::Submit(submission)) => {
            submit(transport, &question.address, kind, submission).await
        }
        (None, call) => {
            let message = format!("{call:?} has no request");
            Err(AskError::new(NoAnswer::Refused, message))
        }
    }
}

/// Uploads a jar, runs it and deletes it again, whatever came of the run.
async fn submit(
    transport: &dyn Transport,
    address: &str,
    kind: &'static str,
    submission: &Arc<Submission>,
) -> Result<RestAnswer, AskError> {
    let jar = match &submission.jar {
        Some(url) => transport.fetch(url).await?,
        None => Bytes::from_static(EMPTY_JAR),
    };
    let upload = HttpRequest {
        body: HttpBody::Jar(jar),
        ..HttpRequest::post("/jars/upload", Value::Null)
    };
    let uploaded = transport.exchange(address, kind, &upload).await?;
    let jar = jar_id(&uploaded)?;
    let run = HttpRequest::post(format!("/jars/{jar}/run"), submission.body.clone());
    let ran = transport.exchange(address, kind, &run).await;
    let delete = HttpRequest {
        method: http::Method::DELETE,
        ..HttpRequest::get(format!("/jars/{jar}"))
    };
    // A jar that stays costs the JobManager some disk.
    if let Err(error) = transport.exchange(address, kind, &delete).await {
        tracing::debug!(%error, "an uploaded jar is not deleted");
    }
    RestCall::Submit(Arc::clone(submission)).read(&ran?)
}

/// Sends requests over HTTP, within boundaries: names of clusters and URLs of jars are written by tenants.
#[derive(Debug)]
pub struct HttpTransport {
    job_managers: TenantClient,
    jars: TenantClient,
}

impl HttpTransport {
    /// Connects to no address outside of these boundaries, and sends for as long as `permit` holds.
    ///
    /// # Errors
    /// This machine trusts no certificate authority.
    pub fn within(boundaries: &Arc<Boundaries>, permit: &Permit) -> Result<Self, OutboundError> {
        let client = |answer| {
            let limits = Limits {
                total: TOTAL,
                answer,
                ..Limits::default()
            };
            let boundaries = Arc::clone(boundaries);
            TenantClient::new(boundaries, Trust::Machine, limits, permit.clone())
        };
        Ok(Self {
            job_managers: client(ANSWER_BYTES)?,
            jars: client(JAR_BYTES)?,
        })
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn exchange(
        &self,
        address: &str,
        _: &'static str,
        request: &HttpRequest,
    ) -> Result<HttpAnswer, AskError> {
        let url = format!("http://{address}{}", request.path);
        let content = content(&request.body)?;
        let method = request.method.clone();
        let answer = self.job_managers.exchange_with(method, &url, content).await;
        let answer = answer.map_err(|error| unanswered(&error))?;
        Ok(HttpAnswer {
            status: answer.status.as_u16(),
            body: answer.body,
        })
    }

    async fn fetch(&self, url: &str) -> Result<Bytes, AskError> {
        let answer = self.jars.get(url).await.map_err(|error| {
            let error = unanswered(&error);
            AskError::new(error.why, format!("the jar is not fetched: {error}"))
        })?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let status = answer.status.as_u16();
        let body = Bytes::new();
        let AskError { why, .. } = refusal(&HttpAnswer { status, body });
        let message = format!("the jar is not fetched: the server answered {status}");
        Err(AskError::new(why, message))
    }
}

/// The content of a request, and its type.
pub(super) fn content(body: &HttpBody) -> Result<Option<(HeaderValue, Bytes)>, AskError> {
    Ok(match body {
        HttpBody::None => None,
        HttpBody::Json(body) => {
            let json = HeaderValue::from_static("application/json");
            Some((json, body.to_string().into()))
        }
        HttpBody::Jar(jar) => Some(form(jar)?),
    })
}

/// A form with a jar, and its content type.
fn form(jar: &Bytes) -> Result<(HeaderValue, Bytes), AskError> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"jarfile\"; filename=\"job.jar\"\r\n\
         Content-Type: application/x-java-archive\r\n\r\n"
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let mut body = BytesMut::with_capacity(head.len() + jar.len() + end.len());
    body.put_slice(head.as_bytes());
    body.put_slice(jar);
    body.put_slice(end.as_bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let kind = HeaderValue::from_str(&kind)
        .map_err(|error| AskError::new(NoAnswer::Refused, error.to_string()))?;
    Ok((kind, body.freeze()))
}

fn unanswered(error: &OutboundError) -> AskError {
    let why = match error {
        OutboundError::TimedOut(_) => NoAnswer::TimedOut,
        OutboundError::NotReached(_) => NoAnswer::Unreachable,
        OutboundError::TooLarge(_) => NoAnswer::NotUnderstood,
        OutboundError::BadUrl(_) | OutboundError::NotAllowed(_) | OutboundError::BadTrust(_) => {
            NoAnswer::Refused
        }
    };
    AskError::new(why, error.to_string())
}
