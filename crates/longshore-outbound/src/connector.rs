//! Connects to addresses that [`Boundaries`] allow.

use std::{
    fmt,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tower::Service;

use crate::{
    boundaries::{Boundaries, NotAllowed, Surroundings},
    own::own_addresses,
};

/// What names of hosts mean, and which addresses are this machine's.
pub(crate) trait LookUp: fmt::Debug + Send + Sync {
    /// The addresses of a host, which is a name or an address.
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Found<'a>;

    /// The addresses that this machine has now.
    fn own_addresses(&self) -> io::Result<Vec<IpAddr>> {
        own_addresses()
    }
}

/// Reads what the boundaries have to know before a connection is made: the addresses of the API
/// server and of this machine. The client reads them for each connection, because names change
/// their addresses and machines change theirs.
///
/// # Errors
/// A name cannot be looked up, or the kernel does not list the addresses. The client then
/// makes no connection.
pub(crate) async fn surroundings(
    names: &dyn LookUp,
    boundaries: &Boundaries,
) -> io::Result<Surroundings> {
    let api_servers = match boundaries.configured_api_server() {
        Some((host, port)) => names.look_up(&host, port).await?,
        None => Vec::new(),
    };
    let own = names.own_addresses()?;
    Ok(Surroundings { api_servers, own })
}

/// The addresses of a host, later.
pub(crate) type Found<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// The resolver and the network interfaces of the operating system.
#[derive(Debug)]
pub(crate) struct SystemLookUp;

impl LookUp for SystemLookUp {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Found<'a> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
    }
}

/// Looks a host up, and connects to the first of its addresses that is allowed and accepts the connection.
///
/// The connector checks the socket address that it connects to, and nothing looks the host up again in between.
#[derive(Clone, Debug)]
pub(crate) struct GuardedConnector {
    pub(crate) names: Arc<dyn LookUp>,
    pub(crate) boundaries: Arc<Boundaries>,
    /// For the look-up and each connection together.
    pub(crate) timeout: Duration,
}

/// Why the client made no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    #[error("it is not reached")]
    NotReached(#[source] io::Error),
    #[error("no connection came about within {0:?}")]
    TimedOut(Duration),
}

impl GuardedConnector {
    /// Connects to a host, which is a name or an address.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let connected = tokio::time::timeout(self.timeout, self.connect_to_any(host, port)).await;
        connected.unwrap_or(Err(ConnectError::TimedOut(self.timeout)))
    }

    async fn connect_to_any(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let now = surroundings(&*self.names, &self.boundaries).await;
        let now = now.map_err(ConnectError::NotReached)?;
        let mut failed: Option<ConnectError> = None;
        let addresses = self.names.look_up(host, port).await;
        for address in addresses.map_err(ConnectError::NotReached)? {
            if let Err(refused) = self.boundaries.check(address, &now) {
                failed.get_or_insert(refused.into());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Without this option, small messages may wait for 40 ms; a failure costs only that.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => {
                    failed.get_or_insert(ConnectError::NotReached(error));
                }
            }
        }
        let nowhere = || ConnectError::NotReached(io::ErrorKind::AddrNotAvailable.into());
        Err(failed.unwrap_or_else(nowhere))
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let default = if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            };
            let port = uri.port_u16().unwrap_or(default);
            connector.connect(host, port).await.map(TokioIo::new)
        })
    }
}
