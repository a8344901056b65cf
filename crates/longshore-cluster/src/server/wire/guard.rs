//! Authentication of requests, and limits on how many run at once. The server reads nothing of a
//! request's body before the request passes.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{
    HeaderMap, Request, Response, Uri,
    header::{AUTHORIZATION, HOST},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, Service};

use super::{
    Limits,
    clients::ClientCertificate,
    credentials::{SERVER_ADDRESSES, SERVER_NAMES},
    upgrade::{Lease, asked_protocol},
};
use crate::server::{
    Server,
    auth::{ISSUER, UserInfo},
    error::{ApiError, Result},
    http::{
        body::{self, ApiBody, Live},
        query::Query,
        service::ApiService,
    },
};

/// Paths for probes: they need no token.
const ANONYMOUS: &[&str] = &["healthz", "livez", "readyz", "version"];

/// What every request is held against.
pub(super) struct Rules {
    server: Arc<Server>,
    address: SocketAddr,
    limits: Limits,
    requests: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    closing: CancellationToken,
}

impl Rules {
    pub(super) fn new(
        server: Arc<Server>,
        address: SocketAddr,
        limits: Limits,
        closing: CancellationToken,
    ) -> Rules {
        Rules {
            server,
            address,
            limits,
            requests: Arc::new(Semaphore::new(limits.n_requests)),
            watches: Arc::new(Semaphore::new(limits.n_watches)),
            closing,
        }
    }

    /// Finds the user of a request, and lets the request in, or says why not.
    fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<(Arc<UserInfo>, OwnedSemaphorePermit)> {
        self.check_host(uri, headers)?;
        let user = self.authenticate(uri, headers, certificate)?;
        let gate = if is_long_running(uri, headers) {
            &self.watches
        } else {
            &self.requests
        };
        let permit = Arc::clone(gate)
            .try_acquire_owned()
            .map_err(|_| ApiError::too_many_requests())?;
        Ok((user, permit))
    }

    /// Refuses requests for other hosts: a web page that rebinds its name to this address would
    /// send them.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        let header = headers.get(HOST).and_then(|value| value.to_str().ok());
        let authority = match (uri.authority(), header) {
            (Some(authority), _) => authority.as_str(),
            (None, Some(header)) => header,
            // Only HTTP/1.0 goes without, and no browser speaks that.
            (None, None) => return Ok(()),
        };
        let host = host_of(authority);
        let is_own = host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip == self.address.ip());
        let is_known = SERVER_NAMES.contains(&host) || SERVER_ADDRESSES.contains(&host);
        if is_own || is_known || self.address.ip().is_unspecified() {
            Ok(())
        } else {
            Err(ApiError::foreign_host(host))
        }
    }

    /// The user: of the certificate, else of the bearer token, else nobody where nobody may be.
    fn authenticate(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Arc<UserInfo>> {
        let now = self.server.now();
        if let Some(user) = certificate.and_then(|certificate| certificate.user(now)) {
            return Ok(Arc::clone(user));
        }
        let Some(header) = headers.get(AUTHORIZATION) else {
            let first = uri.path().split('/').nth(1).unwrap_or("");
            return if ANONYMOUS.contains(&first) && certificate.is_none() {
                Ok(Arc::new(UserInfo::anonymous()))
            } else {
                Err(ApiError::unauthorized())
            };
        };
        let token = header
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        let Some(token) = token else {
            return Err(ApiError::unauthorized());
        };
        let audiences = [ISSUER.to_owned()];
        match self.server.authentication().accept(token, &audiences, now) {
            Ok(accepted) => Ok(Arc::new(accepted.user)),
            Err(why) => {
                // The client is not told why, as upstream does not tell.
                tracing::debug!(%why, "bearer token not accepted");
                Err(ApiError::unauthorized())
            }
        }
    }
}

/// The host of `host`, `host:port` or `[address]:port`.
fn host_of(authority: &str) -> &str {
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Whether the answer may go on for long: a watch, a log that is followed, a connection that becomes something else, or
/// what a pod answers.
fn is_long_running(uri: &Uri, headers: &HeaderMap) -> bool {
    if asked_protocol(headers).is_some() || is_proxied(uri) {
        return true;
    }
    let query = Query::parse(uri.query().unwrap_or(""));
    ["watch", "follow"]
        .iter()
        .any(|option| matches!(query.flag(option), Ok(Some(true))))
}

/// Whether a pod or service answers the request: its body and its answer take as long as they take.
fn is_proxied(uri: &Uri) -> bool {
    let mut segments = uri.path().split('/').filter(|it| !it.is_empty());
    let starts = [segments.next(), segments.next(), segments.next()];
    let kind = segments.nth(1);
    starts == [Some("api"), Some("v1"), Some("namespaces")]
        && matches!(kind, Some("pods" | "services"))
        && segments.nth(1) == Some("proxy")
}

/// The API behind its rules.
#[derive(Clone)]
pub(super) struct Guard {
    service: ApiService,
    rules: Arc<Rules>,
}

impl Guard {
    pub(super) fn new(service: ApiService, rules: Arc<Rules>) -> Guard {
        Guard { service, rules }
    }
}

impl<B> Service<Request<B>> for Guard
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ApiBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let rules = Arc::clone(&self.rules);
        let is_proxied = is_proxied(request.uri());
        let certificate = request.extensions().get::<ClientCertificate>();
        let answer = match rules.admit(request.uri(), request.headers(), certificate) {
            Ok((user, permit)) => {
                request.extensions_mut().insert(user);
                let permit = Arc::new(permit);
                let lease = Lease::new(Arc::clone(&permit), rules.closing.clone());
                request.extensions_mut().insert(lease);
                Ok((permit, self.service.call(request)))
            }
            Err(error) => Err(error),
        };
        async move {
            let (permit, answer) = match answer {
                Ok(admitted) => admitted,
                Err(error) => return Ok(body::failure(&error)),
            };
            if is_proxied {
                let Ok(response) = answer.await;
                return Ok(hold(response, permit, &rules.closing));
            }
            match tokio::time::timeout(rules.limits.request_timeout, answer).await {
                Ok(Ok(response)) => Ok(hold(response, permit, &rules.closing)),
                Err(_) => Ok(body::failure(&ApiError::timed_out())),
            }
        }
        .boxed()
    }
}

/// Keeps the request counted until its answer is through, and ends one without end at shutdown.
fn hold(
    response: Response<ApiBody>,
    permit: Arc<OwnedSemaphorePermit>,
    closing: &CancellationToken,
) -> Response<ApiBody> {
    let is_live = response.extensions().get::<Live>().is_some();
    let closing = is_live.then(|| Box::pin(closing.clone().cancelled_owned()));
    response.map(|body| {
        let held = Held {
            body,
            closing,
            _permit: permit,
        };
        held.boxed_unsync()
    })
}

/// A body that counts.
struct Held {
    body: ApiBody,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Body for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll_unpin(context).is_ready()
        {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let limits = Limits {
            n_requests: 1,
            n_watches: 1,
            ..Limits::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 7443));
        let server = crate::Cluster::in_memory().server();
        server.authentication().add_admin("secret");
        Rules::new(server, address, limits, CancellationToken::new())
    }

    fn code(rules: &Rules, path: &str, host: &str, authorization: &str) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (AUTHORIZATION, authorization)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        rules
            .admit(&path.parse().unwrap(), &headers, None)
            .map_or_else(|error| error.code, |_| 200)
    }

    #[test]
    fn only_the_holder_of_the_token_is_let_in() {
        let rules = rules();
        for (path, authorization, expected) in [
            ("/api/v1/pods", "Bearer secret", 200),
            ("/api/v1/pods", "bearer secret", 200),
            ("/api/v1/pods", "Bearer secre", 401),
            ("/api/v1/pods", "Basic secret", 401),
            ("/api/v1/pods", "", 401),
            ("/apis", "", 401),
            ("/metrics", "", 401),
            ("/healthz", "", 200),
            ("/readyz/ping", "", 200),
            ("/version", "", 200),
            ("/version", "Bearer wrong", 401),
        ] {
            let found = code(&rules, path, "localhost:7443", authorization);
            assert_eq!(found, expected, "{path} {authorization}");
        }
    }

    #[test]
    fn requests_for_other_hosts_are_refused() {
        let rules = rules();
        for (host, expected) in [
            ("127.0.0.1:7443", 200),
            ("127.0.0.1", 200),
            ("[::1]:7443", 200),
            ("localhost:1", 200),
            ("kubernetes.default.svc", 200),
            ("10.96.0.1:443", 200),
            ("evil.example", 403),
            ("localhost.evil.example:7443", 403),
            ("10.0.0.1:7443", 403),
        ] {
            assert_eq!(
                code(&rules, "/api", host, "Bearer secret"),
                expected,
                "{host}"
            );
        }
    }

    #[test]
    fn watches_and_other_requests_are_counted_apart() {
        let rules = rules();
        let admit = |path: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, "Bearer secret".parse().unwrap());
            rules.admit(&path.parse().unwrap(), &headers, None)
        };
        let request = admit("/api/v1/pods").unwrap();
        let _watch = admit("/api/v1/pods?watch=1").unwrap();
        assert_eq!(admit("/api/v1/pods").unwrap_err().code, 429);
        assert_eq!(admit("/api/v1/pods?watch=true").unwrap_err().code, 429);
        drop(request);
        assert!(admit("/api/v1/pods").is_ok());
    }

    #[test]
    fn what_can_last_is_counted_with_the_watches() {
        for (path, upgrade, expected) in [
            ("/api/v1/pods", "", false),
            ("/api/v1/pods?watch=1", "", true),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", "", true),
            (
                "/api/v1/namespaces/a/pods/b/exec?command=x",
                "websocket",
                true,
            ),
            ("/api/v1/namespaces/a/pods/b:80/proxy/x", "", true),
            ("/api/v1/namespaces/a/services/b/proxy", "", true),
            ("/api/v1/namespaces/a/configmaps/proxy", "", false),
            ("/api/v1/namespaces/proxy/pods/b/status", "", false),
        ] {
            let mut headers = HeaderMap::new();
            if !upgrade.is_empty() {
                headers.insert(http::header::CONNECTION, "Upgrade".parse().unwrap());
                headers.insert(http::header::UPGRADE, upgrade.parse().unwrap());
            }
            let found = is_long_running(&path.parse().unwrap(), &headers);
            assert_eq!(found, expected, "{path}");
        }
    }
}
