//! Authentication of requests, and limits on how many each user has under way. The server reads
//! nothing of a request's body before the request passes.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{
    HeaderMap, Method, Request, Response, Uri,
    header::{AUTHORIZATION, HOST},
};
use http_body::Body;
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::{
    Limits,
    clients::ClientCertificate,
    credentials::{SERVER_ADDRESSES, SERVER_NAMES},
    pace::{Arriving, Leaving, Ticket, in_time},
    peers::{Peer, Peers},
    refusals::Limit,
    shares::{Claimant, Share, Shares},
    upgrade::Lease,
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
    requests: Arc<Shares>,
    long_requests: Arc<Shares>,
    peers: Arc<Peers>,
    closing: CancellationToken,
}

/// A request that was let in.
struct Admitted {
    user: Arc<UserInfo>,
    kind: Kind,
    ticket: Arc<Ticket>,
}

/// How long an answer lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Until it is through.
    Short,
    /// A watch: for long, and the client takes each event in time.
    Watch,
    /// A log, a connection that becomes something else: as long and as slowly as the client wants.
    Stream,
    /// What a pod answers: a stream, whose begin and whose body take as long as they take, too.
    Proxied,
}

impl Rules {
    pub(super) fn new(
        server: Arc<Server>,
        address: SocketAddr,
        limits: Limits,
        peers: Arc<Peers>,
        closing: CancellationToken,
    ) -> Rules {
        Rules {
            server,
            address,
            limits,
            requests: Shares::new(limits.n_requests),
            long_requests: Shares::new(limits.n_watches),
            peers,
            closing,
        }
    }

    /// Finds the user of a request, and lets the request in, or says why not.
    fn admit(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Option<&Arc<Peer>>,
    ) -> Result<Admitted> {
        self.check_host(uri, headers)?;
        let certificate = peer.and_then(|peer| peer.certificate());
        let user = self.authenticate(uri, headers, certificate)?;
        let kind = kind_of(method, uri);
        let place = match Claimant::of(&user) {
            Some(claimant) => Some(self.find_place(claimant, kind, peer)?),
            None => None,
        };
        let ticket = Arc::new(Ticket::new(place, peer.cloned()));
        Ok(Admitted { user, kind, ticket })
    }

    /// A place for a request of a user, and for its connection.
    fn find_place(
        &self,
        claimant: Claimant<'_>,
        kind: Kind,
        peer: Option<&Arc<Peer>>,
    ) -> Result<Share> {
        let note = |limit| {
            let address = peer.and_then(|peer| peer.address());
            self.peers.refusals.note(limit, address, claimant.name());
        };
        // Without a place among the connections of its user, it stays one that ends soon.
        if peer.is_some_and(|peer| !peer.introduce(claimant)) {
            note(Limit::Connections);
            return Err(ApiError::too_many_connections());
        }
        let (shares, limit) = match kind {
            Kind::Short => (&self.requests, Limit::Requests),
            Kind::Watch | Kind::Stream | Kind::Proxied => {
                (&self.long_requests, Limit::LongRequests)
            }
        };
        shares.take(claimant).ok_or_else(|| {
            note(limit);
            ApiError::too_many_requests()
        })
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

/// What a request asks for, by its path. Only paths of resources last: nothing of the others is worth a wait.
fn kind_of(method: &Method, uri: &Uri) -> Kind {
    let mut segments = uri.path().split('/').filter(|it| !it.is_empty());
    let root = segments.next();
    let mut below = match root {
        Some("api") => segments.skip(1),
        Some("apis") => segments.skip(2),
        Some(_) | None => return Kind::Short,
    };
    let first = below.next();
    let (plural, part) = match (first, below.next(), below.next()) {
        (Some("namespaces"), Some(_), Some(plural)) => (Some(plural), below.nth(1)),
        (plural, _, part) => (plural, part),
    };
    if root == Some("api") && matches!(plural, Some("pods" | "services")) {
        match part {
            Some("proxy") => return Kind::Proxied,
            Some("attach" | "exec" | "log" | "portforward") => return Kind::Stream,
            Some(_) | None => {}
        }
    }
    let asks_to_watch = |query: &str| matches!(Query::parse(query).flag("watch"), Ok(Some(true)));
    if method == Method::GET && plural.is_some() && uri.query().is_some_and(asks_to_watch) {
        return Kind::Watch;
    }
    Kind::Short
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
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ApiBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rules = Arc::clone(&self.rules);
        let peer = request.extensions().get::<Arc<Peer>>();
        let admitted = rules.admit(request.method(), request.uri(), request.headers(), peer);
        let Admitted { user, kind, ticket } = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return async move { Ok(body::failure(&error)) }.boxed(),
        };
        let lease = Lease::new(Arc::clone(&ticket), rules.closing.clone());
        let mut request = request.map(|body| Arriving::new(body, Arc::clone(&ticket)));
        request.extensions_mut().insert(user);
        request.extensions_mut().insert(lease);
        let answer = self.service.call(request);
        async move {
            if kind == Kind::Proxied {
                let Ok(response) = answer.await;
                return Ok(rules.hold(response, kind, ticket));
            }
            match in_time(answer, &ticket, &rules.limits).await {
                Ok(response) => Ok(rules.hold(response, kind, ticket)),
                Err(error) => Ok(body::failure(&error)),
            }
        }
        .boxed()
    }
}

impl Rules {
    /// Keeps the request counted until its answer is through, and ends one without end at shutdown.
    fn hold(
        &self,
        response: Response<ApiBody>,
        kind: Kind,
        ticket: Arc<Ticket>,
    ) -> Response<ApiBody> {
        let is_live = response.extensions().get::<Live>().is_some();
        response.map(|body| {
            let leaving = match kind {
                Kind::Short if !is_live => Leaving::new(body, ticket, self.limits.patience),
                Kind::Short | Kind::Watch => Leaving::live(body, ticket),
                Kind::Stream | Kind::Proxied => Leaving::patient(body, ticket),
            };
            if is_live {
                let closing = self.closing.clone().cancelled_owned();
                leaving.until(closing).boxed_unsync()
            } else {
                leaving.boxed_unsync()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{
        HeaderValue,
        header::{CONNECTION, UPGRADE},
    };

    use super::*;
    use crate::server::wire::peers::{Entered, tests::peers};

    fn rules(n: usize) -> Rules {
        let limits = Limits {
            n_requests: n,
            n_watches: n,
            ..Limits::default()
        };
        of_limits(limits, peers(8, 8))
    }

    fn of_limits(limits: Limits, peers: Arc<Peers>) -> Rules {
        let address = SocketAddr::from(([127, 0, 0, 1], 7443));
        let server = crate::Cluster::in_memory().server();
        server.authentication().add_admin("secret");
        let closing = CancellationToken::new();
        Rules::new(server, address, limits, peers, closing)
    }

    fn code(rules: &Rules, path: &str, host: &str, authorization: &str) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (AUTHORIZATION, authorization)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        rules
            .admit(&Method::GET, &path.parse().unwrap(), &headers, None)
            .map_or_else(|error| error.code, |_| 200)
    }

    #[test]
    fn only_the_holder_of_the_token_is_let_in() {
        let rules = rules(1);
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
        let rules = rules(1);
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

    /// A request for a path, by the user of a connection, or else by the administrator.
    fn admit(rules: &Rules, path: &'static str, of: Option<&Entered>) -> Result<Admitted> {
        let mut headers = HeaderMap::new();
        if of.is_none() {
            headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        }
        let path = Uri::from_static(path);
        rules.admit(&Method::GET, &path, &headers, of.map(Entered::peer))
    }

    /// A connection whose client has shown the certificate of a user.
    fn certified(rules: &Rules, name: &str) -> Entered {
        let entered = rules.peers.enter(None);
        entered.peer().certify(ClientCertificate::Trusted {
            user: Arc::new(UserInfo::of_certificate(name, std::iter::empty(), "d")),
            not_after: i64::MAX,
        });
        entered
    }

    #[test]
    fn watches_and_other_requests_are_counted_apart() {
        let rules = rules(1);
        let request = admit(&rules, "/api/v1/pods", None).unwrap();
        let _watch = admit(&rules, "/api/v1/pods?watch=1", None).unwrap();
        for path in ["/api/v1/pods", "/api/v1/pods?watch=true"] {
            let refused = admit(&rules, path, None).err().unwrap();
            assert_eq!(refused.code, 429, "{path}");
        }
        drop(request);
        assert!(admit(&rules, "/api/v1/pods", None).is_ok());
    }

    #[test]
    fn whatever_one_user_has_under_way_others_are_let_in() {
        let rules = rules(16);
        let jane = certified(&rules, "jane");
        for path in ["/api/v1/pods", "/api/v1/pods?watch=1"] {
            let mut held = Vec::new();
            let refused = loop {
                match admit(&rules, path, Some(&jane)) {
                    Ok(admitted) => held.push(admitted),
                    Err(error) => break error,
                }
            };
            assert_eq!((held.len(), refused.code), (6, 429), "{path}");
            let joe = certified(&rules, "joe");
            let _joe = admit(&rules, path, Some(&joe)).unwrap();
            let _admin = admit(&rules, path, None).unwrap();
        }
    }

    #[test]
    fn strangers_take_no_place_and_need_none() {
        let rules = rules(1);
        let strangers = rules.peers.enter(None);
        for path in ["/version", "/version?watch=1", "/healthz"] {
            let held: Vec<Admitted> = (0..100)
                .map(|_| admit(&rules, path, Some(&strangers)).unwrap())
                .collect();
            assert!(held.iter().all(|it| it.kind == Kind::Short), "{path}");
            assert!(admit(&rules, "/api/v1/pods", None).is_ok(), "{path}");
        }
        assert!(!strangers.peer().is_known());
    }

    #[test]
    fn a_thousand_watches_of_one_user_fit_each_on_a_connection_of_its_own() {
        let limits = Limits::default();
        let rules = of_limits(limits, Peers::new(&limits));
        let held: Vec<(Entered, Admitted)> = (0..1000)
            .map(|_| {
                let jane = certified(&rules, "jane");
                let watch = admit(&rules, "/api/v1/pods?watch=1", Some(&jane)).unwrap();
                (jane, watch)
            })
            .collect();
        let first = held.first().map(|(jane, _)| jane);
        let requests: Vec<_> = (0..200)
            .map(|_| admit(&rules, "/api/v1/pods", first).unwrap())
            .collect();
        drop((held, requests));
    }

    #[test]
    fn a_user_with_too_many_connections_is_told_so_on_the_next() {
        let rules = rules(100);
        let held: Vec<Entered> = (0..4).map(|_| certified(&rules, "jane")).collect();
        let codes: Vec<u16> = held
            .iter()
            .map(|it| admit(&rules, "/api", Some(it)).map_or_else(|error| error.code, |_| 200))
            .collect();
        assert_eq!(codes, [200, 200, 200, 429]);
        assert!(!held[3].peer().is_known());
        let joe = certified(&rules, "joe");
        assert!(admit(&rules, "/api", Some(&joe)).is_ok());
    }

    #[test]
    fn what_lasts_is_a_watch_or_a_stream_of_a_resource() {
        let (short, watch, stream) = (Kind::Short, Kind::Watch, Kind::Stream);
        let proxied = Kind::Proxied;
        for (path, expected) in [
            ("/api/v1/pods", short),
            ("/api/v1/pods?watch=1", watch),
            ("/api/v1/pods?watch=0", short),
            ("/apis/apps/v1/namespaces/a/deployments?watch=true", watch),
            ("/api/v1/namespaces/a/pods/b?watch=true", watch),
            ("/version?watch=1", short),
            ("/api/v1?watch=1", short),
            ("/apis/apps/v1?watch=1&follow=1", short),
            ("/openapi/v3?watch=1", short),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", stream),
            ("/api/v1/namespaces/a/pods/b/log", stream),
            ("/api/v1/namespaces/a/pods/b/exec?command=x", stream),
            ("/api/v1/namespaces/a/pods/b:80/proxy/x", proxied),
            ("/api/v1/namespaces/a/services/b/proxy", proxied),
            ("/apis/a/v1/namespaces/a/pods/b/log", short),
            ("/api/v1/namespaces/a/configmaps/proxy", short),
            ("/api/v1/namespaces/proxy/pods/b/status", short),
            ("/api/v1/namespaces/log/finalize", short),
        ] {
            let found = kind_of(&Method::GET, &path.parse().unwrap());
            assert_eq!(found, expected, "{path}");
        }
        let posted = kind_of(&Method::POST, &"/api/v1/pods?watch=1".parse().unwrap());
        assert_eq!(posted, short);
    }

    #[test]
    fn the_offer_of_another_protocol_alone_lasts_no_longer() {
        let rules = rules(1);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (AUTHORIZATION, "Bearer secret"),
            (CONNECTION, "Upgrade"),
            (UPGRADE, "h2c"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let uri = "/api/v1/pods".parse().unwrap();
        let admitted = rules.admit(&Method::POST, &uri, &headers, None).unwrap();
        assert_eq!(admitted.kind, Kind::Short);
    }
}
