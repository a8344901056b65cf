//! Connections that make progress: one whose peer has gone, or does not take what we send, is
//! closed after a while, so that it holds neither memory nor a watch.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum_server::{accept::Accept, tls_rustls::RustlsAcceptor};
use futures::{FutureExt, future::BoxFuture};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use tokio_rustls::server::TlsStream;

use super::{
    Limits,
    clients::{Certified, Clients},
};

/// Accepts a limited number of TLS connections and watches over their progress.
#[derive(Debug, Clone)]
pub(super) struct SteadyAcceptor {
    tls: RustlsAcceptor,
    clients: Clients,
    connections: Arc<Semaphore>,
    patience: Duration,
}

impl SteadyAcceptor {
    pub(super) fn new(tls: RustlsAcceptor, clients: Clients, limits: Limits) -> SteadyAcceptor {
        SteadyAcceptor {
            clients,
            tls: tls.handshake_timeout(limits.patience),
            connections: Arc::new(Semaphore::new(limits.n_connections)),
            patience: limits.patience,
        }
    }

    /// A place for the connection, and settings of its socket.
    fn admit(&self, stream: &TcpStream) -> io::Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.connections)
            .try_acquire_owned()
            .map_err(|_| io::Error::other("too many open connections"))?;
        stream.set_nodelay(true)?;
        // The system finds a peer that vanished while nothing was to be sent.
        let at_least_one = |time: Duration| time.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new()
            .with_time(at_least_one(self.patience))
            .with_interval(at_least_one(self.patience / 3));
        SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
        Ok(permit)
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for SteadyAcceptor {
    type Stream = Steady<TlsStream<TcpStream>>;
    type Service = Certified<S>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Certified<S>)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let admitted = self.admit(&stream);
        let handshake = self.tls.accept(stream, service);
        let patience = self.patience;
        let clients = self.clients.clone();
        async move {
            let permit = admitted?;
            let (stream, service) = handshake.await?;
            let (_, connection) = stream.get_ref();
            let certificate = clients.judge(connection.peer_certificates().unwrap_or_default());
            let service = Certified::new(service, certificate);
            Ok((Steady::new(stream, patience, permit), service))
        }
        .boxed()
    }
}

/// A stream that fails when the peer never says anything, or takes nothing for too long.
#[derive(Debug)]
pub(super) struct Steady<S> {
    stream: S,
    patience: Duration,
    /// Runs until the peer's first byte.
    silent: Option<Pin<Box<Sleep>>>,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl<S> Steady<S> {
    fn new(stream: S, patience: Duration, permit: OwnedSemaphorePermit) -> Steady<S> {
        Steady {
            stream,
            patience,
            silent: Some(Box::pin(tokio::time::sleep(patience))),
            stalled: None,
            _permit: permit,
        }
    }
}

impl<S> Steady<S> {
    /// Fails a write that has been waiting for too long.
    fn judge<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let patience = self.patience;
        let timer = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(timed_out("the client did not take what it asked for")))
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for Steady<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_read(context, buffer);
        if progress.is_ready() {
            self.silent = None;
        }
        match &mut self.silent {
            Some(timer) => {
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(timed_out("the client sent nothing")))
            }
            None => progress,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Steady<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(progress, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(progress, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(progress, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    fn steady() -> (Steady<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(8);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let patience = Duration::from_secs(30);
        (Steady::new(near, patience, permit), far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_loses_its_connection() {
        let (mut steady, _far) = steady();
        let started = Instant::now();
        let error = steady.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_loses_its_connection() {
        let (mut steady, _far) = steady();
        let error = steady.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_spoken_may_listen_for_long() {
        let (mut steady, mut far) = steady();
        far.write_u8(7).await.unwrap();
        assert_eq!(steady.read_u8().await.unwrap(), 7);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, steady.read_u8()).await.is_err());
    }
}
