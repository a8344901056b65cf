//! The tower layer between an API client and an API server.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::json;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{Injected, Process, Refusal, watch};

/// The body of an answer that came through the layer.
pub type FaultBody = UnsyncBoxBody<Bytes, BoxError>;

/// Puts the faults of a run between a client and an API server.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    process: Process,
}

impl FaultLayer {
    pub(super) fn new(process: Process) -> Self {
        Self { process }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FaultService {
            process: self.process.clone(),
            inner,
        }
    }
}

/// See [`FaultLayer`].
#[derive(Clone, Debug)]
pub struct FaultService<S> {
    process: Process,
    inner: S,
}

impl<S, ReqBody, B> Service<Request<ReqBody>> for FaultService<S>
where
    S: Service<Request<ReqBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    ReqBody: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<FaultBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(())) // `call` polls the inner service, after the faults.
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let process = self.process.clone();
        let inner = self.inner.clone();
        Box::pin(async move {
            let asked = Asked::of(request.method(), request.uri());
            if asked.is_watch {
                return watch::connect(&process, &asked, request, inner).await;
            }
            let sent = async move {
                let response = inner.oneshot(request).await.map_err(Into::into)?;
                // The effect is done once the whole answer is there.
                let (parts, body) = response.into_parts();
                let body = body.collect().await.map_err(Into::into)?.to_bytes();
                Ok::<_, BoxError>((parts, body))
            };
            let (parts, body) = match process.request(&asked.what(), sent).await {
                Ok(answered) => answered?,
                Err(injected) => return answer(injected),
            };
            if asked.verb == "list" {
                process.forget_events(&asked);
            }
            Ok(Response::from_parts(parts, whole(body)))
        })
    }
}

/// An injected failure as an API client sees it.
pub(super) fn answer(injected: Injected) -> Result<Response<FaultBody>, BoxError> {
    match injected {
        Injected::Lost | Injected::Refused(Refusal::NoConnection) => Err(Box::new(io::Error::new(
            io::ErrorKind::ConnectionReset,
            injected.to_string(),
        ))),
        Injected::Refused(refusal) => {
            let (code, reason, seconds) = refusal.answer().unwrap_or_default();
            status(code, reason, &injected.to_string(), seconds)
        }
    }
}

/// A `metav1.Status` as an answer.
pub(super) fn status(
    code: u16,
    reason: &str,
    message: &str,
    retry_after_seconds: u32,
) -> Result<Response<FaultBody>, BoxError> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
        "details": {"retryAfterSeconds": retry_after_seconds},
    });
    let mut response = Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json");
    if retry_after_seconds > 0 {
        response = response.header(http::header::RETRY_AFTER, retry_after_seconds);
    }
    Ok(response.body(whole(body.to_string().into()))?)
}

fn whole(body: Bytes) -> FaultBody {
    let body = Full::new(body).map_err(|never: Infallible| match never {});
    body.boxed_unsync()
}

/// The verb and the resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    /// Plural name, with the subresource: `pods/status`.
    pub(super) resource: String,
    pub(super) is_watch: bool,
    /// The `resourceVersion` that a watch starts at.
    pub(super) version: Option<String>,
}

impl Asked {
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let mut path: Vec<&str> = uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let root = if path.first() == Some(&"apis") { 3 } else { 2 };
        path.drain(..root.min(path.len()));
        if path.first() == Some(&"namespaces") && path.len() > 2 {
            path.drain(..2);
        }
        let query = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&');
            let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        let is_watch = query("watch").is_some_and(|value| value == "true" || value == "1");
        let resource = match path.as_slice() {
            [] => "discovery".to_owned(),
            [plural] | [plural, _] => (*plural).to_owned(),
            [plural, _, subresource, ..] => format!("{plural}/{subresource}"),
        };
        let verb = match method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ if is_watch => "watch",
            _ if path.len() > 1 => "get",
            _ => "list",
        };
        Self {
            verb,
            resource,
            is_watch,
            version: query("resourceVersion"),
        }
    }

    /// Whether it is about this resource; without one, always.
    pub(super) fn is_of(&self, resource: Option<&str>) -> bool {
        resource.is_none_or(|name| name == self.resource)
    }

    pub(super) fn what(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }
}

/// A response whose body is a stream.
pub(super) fn streamed<S>(parts: http::response::Parts, lines: S) -> Response<FaultBody>
where
    S: futures::Stream<Item = Result<http_body::Frame<Bytes>, BoxError>> + Send + 'static,
{
    let body = http_body_util::StreamBody::new(lines);
    Response::from_parts(parts, BodyExt::boxed_unsync(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        let table = [
            ("GET", "/api/v1/namespaces/default/pods/a", "get pods"),
            ("GET", "/api/v1/pods?limit=500", "list pods"),
            (
                "GET",
                "/api/v1/pods?&watch=true&resourceVersion=7",
                "watch pods",
            ),
            ("POST", "/api/v1/namespaces/default/pods?", "create pods"),
            (
                "PATCH",
                "/api/v1/namespaces/default/pods/a/status?",
                "patch pods/status",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/default/pods/a?",
                "delete pods",
            ),
            ("GET", "/api/v1/namespaces/default", "get namespaces"),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/x/deployments/a",
                "patch deployments",
            ),
            ("GET", "/version", "list discovery"),
        ];
        for (method, uri, what) in table {
            let asked = Asked::of(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(asked.what(), what, "{method} {uri}");
        }
    }
}
