//! A layer around a Kubernetes API that counts what goes through it, by verb and resource.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Method, Request, Response, Uri};
use tokio::time::Instant;
use tower::Service;

use crate::metrics::Metrics;

/// A service whose requests are counted, as those of one client.
#[derive(Clone, Debug)]
pub struct CountRequests<S> {
    service: S,
    client: &'static str,
    metrics: Metrics,
}

impl<S> CountRequests<S> {
    /// Counts the requests of `client` (`dags`, `node`, …) to this service.
    pub fn new(service: S, client: &'static str, metrics: Metrics) -> Self {
        Self {
            service,
            client,
            metrics,
        }
    }
}

impl<S, In, Out> Service<Request<In>> for CountRequests<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (verb, resource) = target(request.method(), request.uri());
        let (client, metrics) = (self.client, self.metrics.clone());
        let asked_at = Instant::now();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answered = answer.await;
            let code = answered
                .as_ref()
                .map_or(0, |answer| answer.status().as_u16());
            metrics.request(client, verb, resource, code, asked_at.elapsed());
            answered
        })
    }
}

/// The verb in Kubernetes' words, and the resource with its subresource; `other` for what is about no object.
fn target(method: &Method, uri: &Uri) -> (&'static str, String) {
    let parts: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let of_version = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let (resource, name, subresource) = match of_version {
        // A namespace's own subresources are its status and its finalization.
        ["namespaces", name, sub @ ("status" | "finalize")] => {
            ("namespaces", Some(name), Some(sub))
        }
        ["namespaces", _, resource] | [resource] => (*resource, None, None),
        ["namespaces", _, resource, name] | [resource, name] => (*resource, Some(name), None),
        ["namespaces", _, resource, name, sub, ..] | [resource, name, sub, ..] => {
            (*resource, Some(name), Some(sub))
        }
        [] => ("other", None, None),
    };
    let is_watch = uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "watch=true" | "watch=1"))
    });
    let verb = match (method.as_str(), name) {
        ("GET", _) if is_watch => "watch",
        ("GET", Some(_)) => "get",
        ("GET", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => "other",
    };
    let resource = match subresource {
        Some(sub) => format!("{resource}/{sub}"),
        None => resource.to_owned(),
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_verb_and_resource() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/pods?watch=true", "watch", "pods"),
            ("GET", "/api/v1/namespaces/a/pods?limit=5", "list", "pods"),
            ("GET", "/api/v1/namespaces/a/pods/p", "get", "pods"),
            ("GET", "/api/v1/namespaces/a/pods/p/log", "get", "pods/log"),
            (
                "PATCH",
                "/api/v1/namespaces/a/pods/p/status",
                "patch",
                "pods/status",
            ),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update",
                "namespaces/finalize",
            ),
            ("GET", "/api/v1/nodes/n/status", "get", "nodes/status"),
            (
                "POST",
                "/apis/apps/v1/namespaces/a/deployments",
                "create",
                "deployments",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments/d",
                "delete",
                "deployments",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods",
                "deletecollection",
                "pods",
            ),
            ("GET", "/version", "list", "other"),
        ] {
            let method = method.parse().unwrap();
            let (found, of) = target(&method, &uri.parse().unwrap());
            assert_eq!((found, of.as_str()), (verb, resource), "{method} {uri}");
        }
    }
}
