//! Connections that write nothing more once the process may not send.
//!
//! A request that waits inside of its connection, for a window or for a stream of HTTP/2, is written by a task of the
//! HTTP library, which knows nothing of leases. So the permission is asked for where the bytes leave the process: before
//! each write to a socket.

use std::{
    fmt,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::{BoxError, Service};

/// Whether the process may send. The answer may change from yes to no at any time, without notice.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

/// A write to a socket that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process may not send any more: it has lost its lease")]
pub struct NotPermitted;

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.holds()).finish()
    }
}

impl Permit {
    /// Holds for as long as `holds` returns true. It is called before each write to a socket, so it must be quick.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// Always holds: for a process that needs no lease.
    pub fn always() -> Self {
        Self::new(|| true)
    }

    fn holds(&self) -> bool {
        (self.0)()
    }

    fn check(&self) -> io::Result<()> {
        if self.holds() {
            Ok(())
        } else {
            Err(io::Error::other(NotPermitted))
        }
    }
}

/// Makes connections that write only while a permit holds.
#[derive(Clone, Debug)]
pub struct GatedConnector<C> {
    connector: C,
    permit: Permit,
}

impl<C> GatedConnector<C> {
    /// The connections of `connector`, behind `permit`. Encryption belongs around it, so that a handshake is gated, too.
    pub fn new(connector: C, permit: Permit) -> Self {
        Self { connector, permit }
    }
}

impl<C> Service<Uri> for GatedConnector<C>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = GatedStream<C::Response>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let permit = self.permit.clone();
        let connected = self.connector.call(uri);
        Box::pin(async move {
            permit.check()?;
            let stream = connected.await.map_err(Into::into)?;
            Ok(GatedStream { stream, permit })
        })
    }
}

/// A connection that writes only while a permit holds. It always reads and closes.
#[derive(Debug)]
pub struct GatedStream<S> {
    stream: S,
    permit: Permit,
}

impl<S: Read + Unpin> Read for GatedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for GatedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.permit.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.permit.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Connection> Connection for GatedStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
