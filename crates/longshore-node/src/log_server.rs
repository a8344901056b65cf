//! The part of a kubelet's API that an API server calls for a log: `/containerLogs`, over TLS.
//!
//! Needed where the API server is another process; in ours, it calls [`Node::logs`](crate::Node::logs).

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    extract::{Path, Query, State},
    response::IntoResponse,
    routing::get,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::StatusCode;
use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{VerifierBuilderError, WebPkiClientVerifier},
};
use serde::Deserialize;

use crate::{
    logs::{LogError, LogOptions},
    node::Node,
};

/// The text of a log as it comes.
pub type LogStream = BoxStream<'static, Result<Bytes, LogError>>;

/// The source of the logs of a node's containers.
#[async_trait]
pub trait ContainerLogs: Send + Sync + 'static {
    /// The log of one container.
    async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        options: &LogOptions,
    ) -> Result<LogStream, LogError>;
}

#[async_trait]
impl ContainerLogs for Node {
    async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        options: &LogOptions,
    ) -> Result<LogStream, LogError> {
        let log = Node::logs(self, namespace, pod, Some(container), options).await?;
        Ok(log.boxed())
    }
}

/// Why logs cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LogServerError {
    /// The address is taken, or not ours.
    #[error("cannot listen for readers of logs on {address}: free it or name another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// No certificate of our own.
    #[error("cannot make a certificate for the server of logs")]
    Certificate(#[source] rcgen::Error),
    /// The authorities for client certificates cannot be used: no client could be authenticated.
    #[error("expected the certificate of an authority for the readers of logs")]
    Authority(#[source] VerifierBuilderError),
    /// The TLS library refuses the certificate.
    #[error("cannot use the certificate of the server of logs")]
    Tls(#[source] rustls::Error),
}

/// An address for the server of logs, taken: its port is known before there is a node.
#[derive(Debug)]
pub struct LogListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
}

impl LogListener {
    /// Takes the address; port 0 takes a free one. The server admits only readers with a certificate of these
    /// authorities: the API server with its `--kubelet-client-certificate`. They are in DER form, as in
    /// `kube::Config::root_cert`.
    ///
    /// # Errors
    /// The address is taken, or there is no authority.
    pub fn bind(address: SocketAddr, authorities: &[Vec<u8>]) -> Result<Self, LogServerError> {
        let tls = tls(address, authorities)?;
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|source| LogServerError::Listen { address, source })?;
        Ok(Self {
            listener,
            address,
            tls,
        })
    }

    /// What [`NodeConfig::log_port`](crate::NodeConfig::log_port) says.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Serves these logs until the returned server is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn serve(self, logs: Arc<dyn ContainerLogs>) -> Result<LogServer, LogServerError> {
        let address = self.address;
        let routes = Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(read))
            .with_state(logs);
        let handle = Handle::new();
        let tls = RustlsConfig::from_config(self.tls);
        let server = axum_server::from_tcp_rustls(self.listener, tls)
            .map_err(|source| LogServerError::Listen { address, source })?
            .handle(handle.clone());
        tokio::spawn(async move {
            if let Err(error) = server.serve(routes.into_make_service()).await {
                tracing::warn!(%error, "the server of logs stopped");
            }
        });
        Ok(LogServer { handle })
    }
}

/// A server of logs. Dropping it stops it.
#[derive(Debug)]
pub struct LogServer {
    handle: Handle<SocketAddr>,
}

impl Drop for LogServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

/// The TLS configuration with a self-signed certificate, which API servers accept from kubelets
/// unless they are configured with an authority for them.
fn tls(address: SocketAddr, authorities: &[Vec<u8>]) -> Result<Arc<ServerConfig>, LogServerError> {
    let mut readers = RootCertStore::empty();
    for certificate in authorities {
        let certificate = CertificateDer::from_slice(certificate);
        readers.add(certificate).map_err(LogServerError::Tls)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let readers = WebPkiClientVerifier::builder_with_provider(Arc::new(readers), provider.clone());
    let readers = readers.build().map_err(LogServerError::Authority)?;
    let key = KeyPair::generate().map_err(LogServerError::Certificate)?;
    let certificate = CertificateParams::new([address.ip().to_string()])
        .and_then(|params| params.self_signed(&key))
        .map_err(LogServerError::Certificate)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(LogServerError::Tls)?
        .with_client_cert_verifier(readers)
        .with_single_cert(vec![certificate.der().clone()], key)
        .map_err(LogServerError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The options as API servers write them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    follow: bool,
    previous: bool,
    tail_lines: Option<u64>,
    since_time: Option<Timestamp>,
    since_seconds: Option<i64>,
    timestamps: bool,
    limit_bytes: Option<u64>,
}

async fn read(
    State(logs): State<Arc<dyn ContainerLogs>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(asked): Query<Asked>,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let options = LogOptions {
        follow: asked.follow,
        previous: asked.previous,
        tail_lines: asked.tail_lines,
        since: asked.since_time,
        since_seconds: asked.since_seconds,
        timestamps: asked.timestamps,
        limit_bytes: asked.limit_bytes,
    };
    let log = logs.logs(&namespace, &pod, &container, &options).await;
    let log = log.map_err(|error| (status(&error), error.to_string()))?;
    Ok(Body::from_stream(log))
}

fn status(error: &LogError) -> StatusCode {
    match error {
        LogError::NoPod { .. } => StatusCode::NOT_FOUND,
        LogError::NoContainer { .. } | LogError::Waiting { .. } | LogError::NoPrevious { .. } => {
            StatusCode::BAD_REQUEST
        }
        LogError::Read { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
