//! Why a connection did not come about, for all requests that waited for it.
//!
//! With HTTP/2, one request connects and the others to the same server wait for its connection. Where none comes about,
//! hyper-util tells the reason to the first request only, and the others that they were cancelled.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use http::{Uri, uri::Authority};
use tower::{BoxError, Service};

/// Why a connection did not come about. Clones share the reason.
#[derive(Clone, Debug)]
pub(super) struct ConnectFailure(Arc<dyn Error + Send + Sync>);

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ConnectFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The last connection that did not come about, unless the server was reached after it.
#[derive(Clone, Debug, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<(Authority, ConnectFailure)>>>);

impl LastFailure {
    /// Why the last connection to this server did not come about; `None` where the last failure is another server's.
    pub(super) fn of(&self, server: Option<&Authority>) -> Option<ConnectFailure> {
        let last = self.last();
        let (of, failure) = last.as_ref()?;
        (server == Some(of)).then(|| failure.clone())
    }

    fn note(&self, server: Authority, failure: ConnectFailure) {
        *self.last() = Some((server, failure));
    }

    fn forget(&self, server: &Authority) {
        self.last().take_if(|(of, _)| of == server);
    }

    fn last(&self) -> MutexGuard<'_, Option<(Authority, ConnectFailure)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and notes why a connection did not come about.
#[derive(Clone, Debug)]
pub(super) struct Noting<C> {
    pub(super) connector: C,
    pub(super) last: LastFailure,
}

impl<C> Service<Uri> for Noting<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = ConnectFailure;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, ConnectFailure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectFailure>> {
        let failed = |error: BoxError| ConnectFailure(error.into());
        self.connector.poll_ready(context).map_err(failed)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (server, last) = (uri.authority().cloned(), self.last.clone());
        let connecting = self.connector.call(uri);
        Box::pin(async move {
            let connected = connecting.await;
            let connected = connected.map_err(|error| ConnectFailure(error.into()));
            if let Some(server) = server {
                match &connected {
                    Ok(_) => last.forget(&server),
                    Err(failure) => last.note(server, failure.clone()),
                }
            }
            connected
        })
    }
}
