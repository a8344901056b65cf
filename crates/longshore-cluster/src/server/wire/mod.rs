//! The API over the wire: TLS on a local address, users, and limits on what one client can hold.
//!
//! Clients pass `steady` (a connection that stalls is closed), `guard` (host, user, requests in
//! flight) and then the same service that in-process clients use.
//!
//! Connections and requests are counted for each user (`peers`, `shares`), so that none of them takes
//! all places, and clients send bodies and take answers at a minimum rate (`pace`).

mod clients;
mod credentials;
mod files;
mod guard;
mod kubeconfig;
mod pace;
mod peers;
mod refusals;
mod shares;
mod steady;
pub(crate) mod upgrade;
pub(crate) mod websocket;

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum_server::{
    Handle,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Layer, make::Shared};
use tower_http::compression::CompressionLayer;

use self::{
    credentials::Credentials,
    guard::{Guard, Rules},
    peers::Peers,
    steady::SteadyAcceptor,
};
use super::{
    auth::{self, KeyError},
    http::{body, service::ApiService},
};

/// How a cluster is served over the wire.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where the certificate authority, the token and the kubeconfig are kept, the authority of the
    /// client certificate for webhooks (`webhook-client-ca.crt`), and, for a cluster in memory, the key
    /// of service account tokens (`sa.key`). Made when missing; readable by its owner only.
    pub directory: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// What one client, or all together, can hold.
    pub limits: Limits,
}

impl ServeConfig {
    /// A free port on loopback, and the default limits.
    pub fn new(directory: impl Into<PathBuf>) -> ServeConfig {
        ServeConfig {
            directory: directory.into(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            limits: Limits::default(),
        }
    }
}

/// Bounds on what clients can hold. Of the places that users share, one user gets a part; an eighth is for users who hold
/// none, and an eighth for members of `system:masters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of users; a request on a further one gets 429. Default 4096, as many as watches, because over
    /// HTTP/1.1 each watch has a connection of its own.
    pub n_connections: usize,
    /// Connections on which no user has sent a request; the oldest is closed for a new one. Default
    /// 2048: as many clients that come back at the same time, after a restart, are all let in.
    pub n_newcomers: usize,
    /// Time from the begin of a connection to the first request of a user on it. Default 10 seconds.
    pub newcomer_time: Duration,
    /// Requests of users being answered, watches aside; further ones get 429. Default 600, the sum of
    /// upstream's limits for reads (400) and writes (200).
    pub n_requests: usize,
    /// Open watches, logs, and connections into pods; further ones get 429. Default 4096.
    pub n_watches: usize,
    /// Time for a request that is no watch, its body included; then 504. Default 60 seconds, as
    /// upstream.
    pub request_timeout: Duration,
    /// How long a client may refuse what we send, or take over the head of a request. Default
    /// 30 seconds.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            n_connections: 4096,
            n_newcomers: 2048,
            newcomer_time: Duration::from_secs(10),
            n_requests: 600,
            n_watches: 4096,
            request_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(30),
        }
    }
}

/// Why a cluster cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the directory cannot be read or written.
    #[error("cannot {action} {path}: give this user access to it, or name another directory")]
    File {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The kept key of the certificate authority, or of service account tokens, is none.
    #[error("expected a private key in PEM form in {path}: remove it to get a new one")]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[source] rcgen::Error),
    /// The TLS library refuses the certificate.
    #[error("cannot use the serving certificate")]
    Tls(#[source] rustls::Error),
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: free it or name another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
}

/// A cluster that is being served. Dropping it stops at once; [`Serving::stop`] lets requests end.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    kubeconfig: PathBuf,
    closing: CancellationToken,
    handle: Handle<SocketAddr>,
    task: JoinHandle<io::Result<()>>,
}

impl Serving {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig with everything that kubectl needs.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Stops: no new connections, watches end as if their time were over, other requests get up to
    /// `grace` to end.
    pub async fn stop(mut self, grace: Duration) {
        self.closing.cancel();
        self.handle.graceful_shutdown(Some(grace));
        if let Ok(Err(error)) = (&mut self.task).await {
            tracing::warn!(%error, "the API server stopped with an error");
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.closing.cancel();
        self.handle.shutdown();
    }
}

/// A cluster that has its address, and answers nobody yet: clients that connect wait. Dropping it lets go of the address.
#[must_use]
pub struct Listening {
    service: ApiService,
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    credentials: Credentials,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Listening {
    /// Where the server will serve.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the server's authority, in PEM.
    pub fn certificate_authority(&self) -> &str {
        &self.credentials.authority
    }

    /// Serves the API until the returned value is stopped or dropped. The Service `default/kubernetes` says in the cluster
    /// where.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn serve(self) -> Result<Serving, ServeError> {
        let Listening {
            service,
            listener,
            address,
            limits,
            credentials,
        } = self;
        let closing = CancellationToken::new();
        let api = service.server();
        let peers = Peers::new(&limits);
        let rules = Rules::new(
            Arc::clone(&api),
            address,
            limits,
            Arc::clone(&peers),
            closing.clone(),
        );
        let guard = Guard::new(service, Arc::new(rules));
        let stack = CompressionLayer::new()
            .compress_when(body::Compressible)
            .layer(guard);

        let handle = Handle::new();
        let failed = |source| ServeError::Listen { address, source };
        let tls = RustlsAcceptor::new(RustlsConfig::from_config(credentials.tls));
        let mut server = axum_server::from_tcp(listener)
            .map_err(failed)?
            .acceptor(SteadyAcceptor::new(
                tls,
                credentials.clients,
                Arc::clone(&peers),
                limits,
            ))
            .handle(handle.clone());
        tune(server.http_builder(), limits);
        // An answer waits for one to two of these periods.
        let watching = peers.watch_over(limits.patience / 2, closing.clone());
        tokio::spawn(watching);
        let task = tokio::spawn(server.serve(Shared::new(stack)));
        api.announce(address);
        Ok(Serving {
            address,
            kubeconfig: credentials.kubeconfig,
            closing,
            handle,
            task,
        })
    }
}

/// Takes the address, and what the directory keeps.
pub(crate) fn listen(
    service: ApiService,
    config: ServeConfig,
    webhook_client_authority: &str,
) -> Result<Listening, ServeError> {
    let ServeConfig {
        directory,
        address,
        limits,
    } = config;
    let (listener, address) =
        bind(address).map_err(|source| ServeError::Listen { address, source })?;
    let credentials = Credentials::open(&directory, address)?;
    let path = directory.join("webhook-client-ca.crt");
    files::write(&path, webhook_client_authority)?;
    let server = service.server();
    let authentication = server.authentication();
    authentication.add_admin(&credentials.token);
    let path = auth::key_path(&directory);
    let kept = authentication.keep_key(&directory);
    kept.map_err(|error| match error {
        KeyError::File(source) => files::failed("read or write", &path, source),
        KeyError::Key(source) => ServeError::Authority { path, source },
    })?;
    Ok(Listening {
        service,
        listener,
        address,
        limits,
        credentials,
    })
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Bounds of the protocols: how long heads may take and how large they may be.
fn tune(
    builder: &mut hyper_util::server::conn::auto::Builder<hyper_util::rt::TokioExecutor>,
    limits: Limits,
) {
    const HEAD_LIMIT: usize = 64 * 1024;
    const STREAMS: u32 = 250;
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_buf_size(HEAD_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.patience)
        .keep_alive_timeout(limits.patience)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_LIMIT as u32);
}
