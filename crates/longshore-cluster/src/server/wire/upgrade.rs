//! Connections that a request turns into something other than HTTP.

use std::{fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use http::{
    Extensions, HeaderMap,
    header::{CONNECTION, UPGRADE},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::pace::Ticket;
use crate::server::error::{ApiError, Result};

/// How long the client may take to make the connection its own, after our answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A connection that no longer speaks HTTP.
pub(crate) type Connection = Box<dyn Duplex>;

/// What a connection holds for as long as it is open: its place among those that last, and the news that the server stops.
#[derive(Clone)]
pub(crate) struct Lease {
    _place: Arc<Ticket>,
    closing: CancellationToken,
}

impl Lease {
    pub(super) fn new(place: Arc<Ticket>, closing: CancellationToken) -> Lease {
        Lease {
            _place: place,
            closing,
        }
    }
}

/// The protocol that a request wants instead of HTTP, in lower case.
pub(crate) fn asked_protocol(headers: &HeaderMap) -> Option<String> {
    let names = |header| {
        headers
            .get_all(header)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
    };
    let is_asked = names(CONNECTION).any(|name| name == "upgrade");
    names(UPGRADE)
        .find(|name| !name.is_empty())
        .filter(|_| is_asked)
}

/// A connection that becomes ours when the response with code 101 is through.
pub(crate) struct Upgrade {
    connection: OnUpgrade,
    lease: Option<Lease>,
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").finish_non_exhaustive()
    }
}

impl Upgrade {
    /// Takes the connection of a request.
    pub(crate) fn take(extensions: &mut Extensions) -> Result<Upgrade> {
        let connection = extensions.remove::<OnUpgrade>().ok_or_else(|| {
            ApiError::bad_request(
                "expected an HTTP/1.1 connection that can be upgraded, found one that cannot: \
                 send the request over HTTP/1.1 with `Connection: Upgrade`",
            )
        })?;
        let lease = extensions.remove::<Lease>();
        Ok(Upgrade { connection, lease })
    }

    /// Serves the connection in the background until `serve` ends or the server stops. The connection counts among the
    /// long ones until then.
    pub(crate) fn spawn<F>(self, serve: impl FnOnce(Connection) -> F + Send + 'static)
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let Upgrade { connection, lease } = self;
        tokio::spawn(async move {
            let work = async move {
                let connection = tokio::time::timeout(PATIENCE, connection).await;
                let connection = connection
                    .map_err(io::Error::other)?
                    .map_err(io::Error::other)?;
                serve(Box::new(TokioIo::new(connection))).await
            };
            let work: Pin<Box<dyn Future<Output = io::Result<()>> + Send>> = Box::pin(work);
            let result = match &lease {
                Some(lease) => lease.closing.run_until_cancelled(work).await,
                None => Some(work.await),
            };
            if let Some(Err(error)) = result {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_what_both_headers_ask_for() {
        for (connection, upgrade, expected) in [
            ("Upgrade", "websocket", Some("websocket")),
            ("keep-alive, upgrade", "WebSocket", Some("websocket")),
            ("Upgrade", "SPDY/3.1", Some("spdy/3.1")),
            ("keep-alive", "websocket", None),
            ("Upgrade", "", None),
            ("", "websocket", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, connection.parse().unwrap());
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            let found = asked_protocol(&headers);
            assert_eq!(found.as_deref(), expected, "{connection} {upgrade}");
        }
    }
}
