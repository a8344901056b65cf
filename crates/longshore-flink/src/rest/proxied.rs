//! Reaches JobManagers through the API server (`services/proxy`): the way that there is from everywhere, where the names of
//! Services mean nothing.

use std::{error::Error, fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Client, client::Body};
use longshore_core::{AskError, NoAnswer};
use serde::Deserialize;

use super::{
    HttpRequest,
    transport::{ANSWER_BYTES, HttpAnswer, HttpTransport, TOTAL, Transport, content},
};

const FORBIDDEN: u16 = 403;
const METHOD_NOT_ALLOWED: u16 = 405;

/// Sends requests to JobManagers through the API server, and fetches jars itself.
pub struct ProxiedTransport {
    client: Client,
    jars: Arc<HttpTransport>,
}

impl fmt::Debug for ProxiedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxiedTransport").finish_non_exhaustive()
    }
}

impl ProxiedTransport {
    /// Asks the API server of this client; `jars` fetches the jars of session jobs.
    pub fn new(client: Client, jars: Arc<HttpTransport>) -> Self {
        Self { client, jars }
    }

    async fn send(&self, request: Request<Body>) -> Result<HttpAnswer, AskError> {
        let response = self.client.send(request).await.map_err(|error| {
            AskError::new(
                NoAnswer::Unreachable,
                format!("the API server is not reached: {}", last(&error)),
            )
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
        let body = body.await.map_err(|error| unread(&*error))?;
        Ok(HttpAnswer {
            status,
            body: body.to_bytes(),
        })
    }
}

#[async_trait]
impl Transport for ProxiedTransport {
    async fn exchange(
        &self,
        address: &str,
        _: &'static str,
        request: &HttpRequest,
    ) -> Result<HttpAnswer, AskError> {
        let path = proxied(address, &request.path)
            .ok_or_else(|| refused(format!("{address:?} is no Service of a cluster")))?;
        let mut sent = Request::builder().method(request.method.clone()).uri(path);
        let mut body = Bytes::new();
        if let Some((kind, content)) = content(&request.body)? {
            sent = sent.header(CONTENT_TYPE, kind);
            body = content;
        }
        let sent = sent.body(Body::from(body));
        let sent = sent.map_err(|error| refused(format!("no request is made: {error}")))?;
        let answered = tokio::time::timeout(TOTAL, self.send(sent)).await;
        let answer = answered.unwrap_or_else(|_| {
            let message = format!("the JobManager did not answer within {TOTAL:?}");
            Err(AskError::new(NoAnswer::TimedOut, message))
        })?;
        match of_api_server(&answer) {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    async fn fetch(&self, url: &str) -> Result<Bytes, AskError> {
        self.jars.fetch(url).await
    }
}

fn refused(message: String) -> AskError {
    AskError::new(NoAnswer::Refused, message)
}

/// The path of the API server that leads to a path of the Service at `name.namespace:port`.
fn proxied(address: &str, path: &str) -> Option<String> {
    let (name, port) = address.rsplit_once(':')?;
    let (name, namespace) = name.split_once('.')?;
    Some(format!(
        "/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy{path}"
    ))
}

/// Why the API server did not hand a request on. Its answers are `Status` objects, which Flink has not: what it says of the
/// Service must not be read as what a JobManager says of a job.
fn of_api_server(answer: &HttpAnswer) -> Option<AskError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        api_version: String,
        kind: String,
        #[serde(default)]
        message: String,
    }
    if answer.status < 400 {
        return None;
    }
    let status: Status = serde_json::from_slice(&answer.body).ok()?;
    if status.kind != "Status" || status.api_version != "v1" {
        return None;
    }
    let said = format!(
        "the JobManager is not reached through the API server, which answered {}: {}",
        answer.status, status.message
    );
    Some(match answer.status {
        FORBIDDEN | METHOD_NOT_ALLOWED => refused(format!(
            "{said}; grant this controller get, create, patch and delete of services/proxy, or run it in the cluster"
        )),
        _ => AskError::new(NoAnswer::Unreachable, said),
    })
}

fn unread(error: &(dyn Error + 'static)) -> AskError {
    if error.is::<LengthLimitError>() {
        let message = format!("the JobManager's response has more than {ANSWER_BYTES} bytes");
        return AskError::new(NoAnswer::NotUnderstood, message);
    }
    let message = format!("the JobManager's response broke off: {}", last(error));
    AskError::new(NoAnswer::Unreachable, message)
}

/// The last cause: kube's errors repeat their sources.
fn last(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(status: u16, body: &Value) -> Option<NoAnswer> {
        let body = body.to_string().into_bytes().into();
        of_api_server(&HttpAnswer { status, body }).map(|error| error.why)
    }

    #[test]
    fn the_api_server_hands_the_path_on_as_it_is() {
        let path = proxied("basic-rest.team:8081", "/jobs/overview?a=b");
        let expected = "/api/v1/namespaces/team/services/basic-rest:8081/proxy/jobs/overview?a=b";
        assert_eq!(path.as_deref(), Some(expected));
        assert_eq!(proxied("basic-rest", "/config"), None);
    }

    #[test]
    fn what_the_api_server_says_of_a_service_says_nothing_of_a_job() {
        let status = |code: u16| {
            let said = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "message": "services \"basic-rest\" not found", "reason": "NotFound",
            });
            judged(code, &said)
        };
        assert_eq!(status(404), Some(NoAnswer::Unreachable));
        assert_eq!(status(503), Some(NoAnswer::Unreachable));
        assert_eq!(status(403), Some(NoAnswer::Refused));
        let of_flink = json!({"errors": ["org.apache.flink…NotFoundException"]});
        assert_eq!(judged(404, &of_flink), None);
        assert_eq!(
            judged(200, &json!({"kind": "Status", "apiVersion": "v1"})),
            None
        );
    }
}
