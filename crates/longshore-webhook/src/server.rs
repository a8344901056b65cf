//! Webhooks behind TLS: a path each, only for authenticated callers, with bounded bodies and a time limit.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Request, State},
    middleware::AddExtension,
    response::{IntoResponse, Response as HttpResponse},
};
use axum_server::{
    Handle,
    accept::{Accept, NoDelayAcceptor},
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use http::{
    Method, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use longshore_kit::Contact;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::Layer;

use crate::{
    callers::Callers,
    measures::Measures,
    newcomers::{Connection, Newcomers, TIME_LIMIT as ADMISSION_TIME_LIMIT, Watched},
    review::{Denial, Response, Review, Verdict},
};

/// An object is no larger than etcd takes, and a change of one holds it twice.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long a webhook may take for a response, unless it says otherwise. API servers wait 10 s; a response with the
/// reason is better than none.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How long requests under way may take once the server stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The headers of a request, in bytes: paths of API servers have 100.
const MAX_HEAD: u32 = 16 * 1024;
/// Requests under way on one connection; API servers send one after the other on few connections.
const MAX_STREAMS: u32 = 250;
/// How long the other end of a connection may take to show that it is there still.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How often a server that does not reach its API server closes the connections of its callers.
const CLOSE_EVERY: Duration = Duration::from_secs(1);
/// When an API server sends a request again that had no verdict, in seconds: by then another replica may get it.
const ASK_AGAIN: &str = "1";

/// A webhook.
#[async_trait]
pub trait Admission: fmt::Debug + Send + Sync + 'static {
    /// Decides whether the request is allowed, and with which changes. The same request must get the same response.
    async fn admit(&self, review: &Review) -> Response;

    /// How long the webhook may take for the response to this request. Its registration has to give API servers more
    /// time than that.
    fn time_limit(&self, _review: &Review) -> Duration {
        TIME_LIMIT
    }
}

/// Webhooks by the first part of their paths, and the authentication of their callers.
struct Site {
    webhooks: BTreeMap<&'static str, Arc<dyn Admission>>,
    callers: Callers,
    measures: Measures,
}

/// What the metrics and the log call a path of no webhook: callers may write anything into a path.
const OTHER: &str = "other";

/// A router of webhooks by their paths, as `/mutate--v1-pod`, behind which callers name their token. A request that
/// `callers` does not admit gets 401, and nothing of its body is read. The router counts the requests in `measures`.
pub fn router(
    webhooks: impl IntoIterator<Item = (&'static str, Arc<dyn Admission>)>,
    callers: Callers,
    measures: &Measures,
) -> Router {
    let site = Site {
        webhooks: webhooks.into_iter().collect(),
        callers,
        measures: measures.clone(),
    };
    Router::new()
        .fallback(receive)
        .with_state(Arc::new(site))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Serves until `stopping`, and finishes requests under way. Connections on which no request was admitted are bounded
/// in number and time.
///
/// An API server keeps its connection to a webhook open, whatever the Service in front of the replicas does. So a
/// server whose own path to the API server is doubted by `contact` closes all connections, after the requests under
/// way: API servers connect again, through the Service, and may get to another replica. The server goes on to serve
/// those that come back, because most verdicts need nothing of the API server.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    tls: RustlsConfig,
    router: Router,
    contact: Contact,
    stopping: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // A response is several small writes, which must not wait for each other's acknowledgement.
    let acceptor = PeerAcceptor {
        tls: RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor::new()),
        newcomers: Newcomers::default(),
    };
    // Servers that take no connections any more, until the last request of each has its response.
    let mut ending = JoinSet::new();
    let mut socket = listener.try_clone()?;
    loop {
        let handle = Handle::new();
        let mut serving = begin(socket, &acceptor, &router, &handle)?;
        socket = loop {
            tokio::select! {
                ended = &mut serving => return ended,
                () = stopping.cancelled() => {
                    handle.graceful_shutdown(Some(DRAIN_LIMIT));
                    // Its last descriptor: clients that connect now are refused, and do not hang.
                    drop(listener);
                    return finish(serving, ending).await;
                }
                () = until_doubted(&contact) => match listener.try_clone() {
                    Ok(socket) => break socket,
                    Err(error) => tracing::warn!(%error, "the connections of API servers stay open"),
                },
                Some(_) = ending.join_next() => {}
            }
        };
        handle.graceful_shutdown(None);
        ending.spawn(serving);
    }
}

/// A server that runs, and that its [`Handle`] ends.
type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

fn begin(
    listener: TcpListener,
    acceptor: &PeerAcceptor,
    router: &Router,
    handle: &Handle<SocketAddr>,
) -> io::Result<Serving> {
    let mut server = axum_server::from_tcp(listener)?
        .acceptor(acceptor.clone())
        .handle(handle.clone());
    bound(server.http_builder());
    Ok(Box::pin(server.serve(router.clone().into_make_service())))
}

/// Waits for the last requests, also of earlier servers.
async fn finish(serving: Serving, mut ending: JoinSet<io::Result<()>>) -> io::Result<()> {
    let earlier = async { while ending.join_next().await.is_some() {} };
    let (ended, _) = tokio::join!(serving, tokio::time::timeout(DRAIN_LIMIT, earlier));
    ended
}

/// Waits until it is doubtful that the API server can be reached, for some time at least.
async fn until_doubted(contact: &Contact) {
    loop {
        tokio::time::sleep(CLOSE_EVERY).await;
        if contact.is_doubted() {
            return;
        }
    }
}

/// Bounds the memory that a caller without authentication can occupy.
fn bound(builder: &mut Builder<TokioExecutor>) {
    let max_head = usize::try_from(MAX_HEAD).unwrap_or(usize::MAX);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(ADMISSION_TIME_LIMIT)
        .max_buf_size(max_head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD);
}

/// What is known about the caller of a request.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// Whether the caller has shown a certificate that one of the configured client authorities has signed.
    has_certificate: bool,
    connection: Arc<Connection>,
}

/// Adds the [`Peer`] of a connection to its requests.
#[derive(Clone, Debug)]
struct PeerAcceptor {
    tls: RustlsAcceptor<NoDelayAcceptor>,
    newcomers: Newcomers,
}

impl<S: Send + 'static> Accept<TcpStream, S> for PeerAcceptor {
    type Stream = Watched<TlsStream<TcpStream>>;
    type Service = AddExtension<S, Peer>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepting = self.tls.accept(stream, service);
        let newcomer = self.newcomers.enter();
        Box::pin(async move {
            let (stream, service) = tokio::select! {
                accepted = accepting => accepted?,
                () = newcomer.closed() => return Err(io::ErrorKind::ConnectionAborted.into()),
            };
            let (_, connection) = stream.get_ref();
            // Only certificates that the verifier has found good are here.
            let peer = Peer {
                has_certificate: connection.peer_certificates().is_some(),
                connection: Arc::clone(&newcomer),
            };
            let stream = Watched::new(stream, newcomer);
            Ok((stream, Extension(peer).layer(service)))
        })
    }
}

async fn receive(State(site): State<Arc<Site>>, request: Request) -> HttpResponse {
    let path = request.uri().path();
    let (name, token) = match path.get(1..).and_then(|path| path.split_once('/')) {
        // The slash in front of the name is part of it.
        Some((name, token)) => (&path[..=name.len()], Some(token)),
        None => (path, None),
    };
    let found = site.webhooks.get_key_value(name);
    let known = found.map_or(OTHER, |(path, _)| path);
    let peer = request.extensions().get::<Peer>().cloned();
    let peer = peer.unwrap_or_default();
    if !site.callers.admit(token, peer.has_certificate).await {
        site.measures.refused(known);
        site.callers.refused(known);
        return StatusCode::UNAUTHORIZED.into_response();
    }
    peer.connection.admit();
    match found {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(_) if request.method() != Method::POST => {
            StatusCode::METHOD_NOT_ALLOWED.into_response()
        }
        Some((path, webhook)) => answer(&site, path, webhook.as_ref(), request).await,
    }
}

async fn answer(
    site: &Site,
    path: &'static str,
    webhook: &dyn Admission,
    request: Request,
) -> HttpResponse {
    let asked = site.measures.asked(path);
    let giving_up = GivingUp(Some(&site.callers));
    let body = match Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(rejection) => {
            asked.answered(rejection.status());
            return rejection.into_response();
        }
    };
    let review = match Review::read(&body) {
        Ok(review) => review,
        Err(error) => {
            asked.answered(StatusCode::BAD_REQUEST);
            giving_up.answered();
            return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
        }
    };
    let limit = webhook.time_limit(&review);
    let response = tokio::time::timeout(limit, webhook.admit(&review)).await;
    let response = response.unwrap_or_else(|_| {
        let message = format!("the webhook had no answer within {limit:?}; try again");
        Denial::because(504, message).into()
    });
    report(&review, &response);
    if let Verdict::Unknown(why) = &response.verdict {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        asked.answered(status);
        giving_up.answered();
        return (status, [(RETRY_AFTER, ASK_AGAIN)], why.clone()).into_response();
    }
    let json = response.to_review(&review).to_string();
    asked.answered(StatusCode::OK);
    giving_up.answered();
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}

/// Notices a request that is dropped before its response, because its caller has gone.
struct GivingUp<'a>(Option<&'a Callers>);

impl GivingUp<'_> {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for GivingUp<'_> {
    fn drop(&mut self) {
        if let Some(callers) = self.0 {
            callers.gave_up();
        }
    }
}

/// Logs a request that is refused, or has no verdict.
fn report(review: &Review, response: &Response) {
    let Review {
        operation,
        namespace,
        name,
        resource,
        ..
    } = review;
    match &response.verdict {
        Verdict::Allowed | Verdict::Changed(_) => {}
        Verdict::Unknown(why) => tracing::warn!(
            operation,
            resource,
            namespace,
            name,
            why,
            "a webhook has no verdict"
        ),
        Verdict::Denied(denial) => {
            let Denial {
                code,
                reason,
                message,
                ..
            } = denial;
            tracing::info!(
                operation,
                resource,
                namespace,
                name,
                code,
                reason,
                message,
                "a webhook said no"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_kit::{Clock, NoteAnswers, SystemClock};
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };
    use tokio_rustls::{TlsConnector, client::TlsStream};
    use tower::{Service, service_fn};

    use super::*;
    use crate::{
        issue::{Pair, issue},
        served::Served,
    };

    const NAME: &str = "webhook.example";

    async fn connect(pair: &Pair, address: SocketAddr) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(pair.authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// Sends a request, and reads the beginning of its response.
    async fn ask(stream: &mut TlsStream<TcpStream>) {
        let request = format!("GET / HTTP/1.1\r\nhost: {NAME}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 404");
    }

    /// Whether the server closes the connection within this time.
    async fn is_closed_within(stream: &mut TlsStream<TcpStream>, limit: Duration) -> bool {
        let mut rest = Vec::new();
        timeout(limit, stream.read_to_end(&mut rest)).await.is_ok()
    }

    /// A connection without an authenticated request ends by itself after 10 s, so that each limit here is shorter.
    #[tokio::test]
    async fn a_server_without_its_api_server_closes_connections_and_serves_those_that_return() {
        let pair = issue(&[NAME.to_owned()], SystemClock.now()).unwrap();
        let served = Served {
            pair: pair.clone(),
            client_authority: None,
        };
        let tls = RustlsConfig::from_config(served.config("s").unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (contact, stopping) = (Contact::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        let serving = serve(
            listener,
            tls,
            Router::new(),
            contact.clone(),
            stopping.clone(),
        );
        tasks.spawn(serving);

        let mut kept = connect(&pair, address).await;
        ask(&mut kept).await;
        assert!(!is_closed_within(&mut kept, Duration::from_secs(3)).await);
        // A request to the API server that is never answered.
        let silent = service_fn(|_: http::Request<()>| {
            std::future::pending::<Result<http::Response<()>, io::Error>>()
        });
        let mut silent = NoteAnswers::new(silent, contact);
        let asking = silent.call(http::Request::new(()));
        tasks.spawn(async move { asking.await.map(drop) });
        let mut kept = connect(&pair, address).await;
        ask(&mut kept).await;
        assert!(is_closed_within(&mut kept, Duration::from_secs(8)).await);
        let mut again = connect(&pair, address).await;
        ask(&mut again).await;
        stopping.cancel();
        // The server; the other request has no end.
        let ended = timeout(Duration::from_secs(8), tasks.join_next()).await;
        assert!(ended.unwrap().unwrap().unwrap().is_ok());
    }
}
