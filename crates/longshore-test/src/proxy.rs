//! The fault layer for other processes: an HTTP proxy between them and an API server.
//!
//! It listens on loopback without TLS and requires no credentials; its own client sends its
//! credentials upstream. Nothing is upgraded: `exec` and `port-forward` do not pass.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use kube::{Client, client::Body, config::Kubeconfig};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use crate::{
    faults::{FaultBody, Process},
    place::{AnyApi, api_of},
    real::config_from,
};

/// What belongs to one connection, and must not pass.
const OF_CONNECTION: [header::HeaderName; 3] =
    [header::HOST, header::CONNECTION, header::AUTHORIZATION];

/// A running proxy, for one start of a process. Dropping it stops it and cuts every connection.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    folder: TempDir,
    task: AbortHandle,
    is_stalled: watch::Sender<bool>,
}

impl FaultProxy {
    /// Puts the faults of `process` before the API server that `upstream` speaks to. A process that
    /// is killed there gets no answers any more. The test kills the real process itself, after it
    /// has waited for [`Faults::killed`](crate::Faults::killed).
    ///
    /// # Errors
    /// There is no port or no temporary directory.
    pub async fn start(upstream: Client, process: &Process) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig(address))?;
        let api = api_of(upstream);
        let is_stalled = watch::Sender::new(false);
        let stalls = is_stalled.subscribe();
        let forward = service_fn(move |request| forward(request, api.clone(), stalls.clone()));
        let service = TowerToHyperService::new(process.layer().layer(forward));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let connection = http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service.clone());
                        connections.spawn(connection);
                    }
                    // A lost answer ends a connection with an error, as it should.
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            folder,
            task: task.abort_handle(),
            is_stalled,
        })
    }

    /// Lets nothing through, and keeps the connections open: requests wait, and answers that have not begun. Watches that
    /// have begun go on. With false all of it arrives.
    pub fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig for the process that is to go through it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A client that goes through it.
    ///
    /// # Errors
    /// Its own kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client, BoxError> {
        let kubeconfig: &Path = &self.kubeconfig();
        let config = config_from(Kubeconfig::read_from(kubeconfig)?).await?;
        Ok(Client::try_from(config)?)
    }
}

async fn forward(
    request: Request<Incoming>,
    api: AnyApi,
    mut stalls: watch::Receiver<bool>,
) -> Result<Response<FaultBody>, BoxError> {
    let (mut parts, body) = request.into_parts();
    for name in OF_CONNECTION {
        parts.headers.remove(name);
    }
    let body = Body::from(body.collect().await?.to_bytes());
    stalls.wait_for(|is_stalled| !is_stalled).await?;
    let answer = api.oneshot(Request::from_parts(parts, body)).await?;
    stalls.wait_for(|is_stalled| !is_stalled).await?;
    Ok(answer)
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// JSON is YAML.
fn kubeconfig(address: SocketAddr) -> String {
    let name = "faults";
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    })
    .to_string()
}
