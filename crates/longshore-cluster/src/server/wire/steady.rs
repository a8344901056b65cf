//! Connections that make progress: one whose peer has gone, does not say who it is, or does not take
//! what we send, is closed after a while, so that it holds neither memory nor a watch.

use std::{
    future::{Future, poll_fn},
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
    time::Sleep,
};
use tokio_rustls::server::TlsStream;

use super::{
    Limits,
    clients::{Accompanied, Clients},
    peers::{Entered, Peers},
};

/// Accepts TLS connections and watches over their progress.
#[derive(Debug, Clone)]
pub(super) struct SteadyAcceptor {
    tls: RustlsAcceptor,
    clients: Clients,
    peers: Arc<Peers>,
    patience: Duration,
}

impl SteadyAcceptor {
    pub(super) fn new(
        tls: RustlsAcceptor,
        clients: Clients,
        peers: Arc<Peers>,
        limits: Limits,
    ) -> SteadyAcceptor {
        SteadyAcceptor {
            clients,
            tls: tls.handshake_timeout(limits.newcomer_time),
            peers,
            patience: limits.patience,
        }
    }

    /// Settings of the socket.
    fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // The system finds a peer that vanished while nothing was to be sent.
        let at_least_one = |time: Duration| time.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new()
            .with_time(at_least_one(self.patience))
            .with_interval(at_least_one(self.patience / 3));
        SockRef::from(stream).set_tcp_keepalive(&keepalive)
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for SteadyAcceptor {
    type Stream = Steady<TlsStream<TcpStream>>;
    type Service = Accompanied<S>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Accompanied<S>)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let entered = self.peers.enter(stream.peer_addr().ok());
        let tuned = self.tune(&stream);
        let handshake = self.tls.accept(stream, service);
        let patience = self.patience;
        let clients = self.clients.clone();
        async move {
            tuned?;
            let peer = Arc::clone(entered.peer());
            let (stream, service) = tokio::select! {
                shaken = handshake => shaken?,
                () = poll_fn(|context| peer.poll_closed(context)) => return Err(closed()),
            };
            let (_, connection) = stream.get_ref();
            let presented = connection.peer_certificates().unwrap_or_default();
            if let Some(certificate) = clients.judge(presented) {
                peer.certify(certificate);
            }
            let service = Accompanied::new(service, peer);
            Ok((Steady::new(stream, patience, entered), service))
        }
        .boxed()
    }
}

/// A stream that fails when the peer never says who it is, or takes nothing for too long, and when its connection has to
/// go for another reason.
#[derive(Debug)]
pub(super) struct Steady<S> {
    stream: S,
    patience: Duration,
    entered: Entered,
    /// Runs until the first request of a user.
    unknown: Option<Pin<Box<Sleep>>>,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Steady<S> {
    fn new(stream: S, patience: Duration, entered: Entered) -> Steady<S> {
        let deadline = entered.peer().deadline();
        Steady {
            stream,
            patience,
            entered,
            unknown: Some(Box::pin(tokio::time::sleep_until(deadline))),
            stalled: None,
        }
    }
}

impl<S> Steady<S> {
    /// # Errors
    /// The connection has to end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let peer = self.entered.peer();
        if peer.poll_closed(context).is_ready() {
            return Err(closed());
        }
        if let Some(timer) = &mut self.unknown {
            if peer.is_known() {
                self.unknown = None;
            } else if timer.as_mut().poll(context).is_ready() {
                tracing::debug!(peer = ?peer.address(), "nobody proved an identity in time");
                return Err(timed_out("no user sent a request in time"));
            }
        }
        Ok(())
    }

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

fn closed() -> io::Error {
    let why = "the connection had to make room, or its client did not take what it asked for";
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
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
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Steady<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(progress, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
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
    use crate::server::wire::{peers::tests::peers, shares::Claimant};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A connection of nobody, and its other end.
    fn steady(peers: &Arc<Peers>) -> (Steady<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(8);
        (Steady::new(near, PATIENCE, peers.enter(None)), far)
    }

    /// A connection of a user, and its other end.
    fn known() -> (Steady<DuplexStream>, DuplexStream) {
        let (steady, far) = steady(&peers(8, 8));
        let user = Claimant::User("jane");
        assert!(steady.entered.peer().introduce(user));
        (steady, far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_loses_its_connection() {
        let (mut steady, _far) = known();
        let started = Instant::now();
        let error = steady.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_says_who_it_is_loses_its_connection() {
        let (mut steady, mut far) = steady(&peers(8, 8));
        let started = Instant::now();
        // It may say much else.
        far.write_u8(7).await.unwrap();
        assert_eq!(steady.read_u8().await.unwrap(), 7);
        let error = steady.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_has_said_who_it_is_may_listen_for_long() {
        let (mut steady, mut far) = known();
        far.write_u8(7).await.unwrap();
        assert_eq!(steady.read_u8().await.unwrap(), 7);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, steady.read_u8()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_makes_room_ends_at_once() {
        let peers = peers(8, 1);
        let (mut steady, _far) = steady(&peers);
        let reading = tokio::spawn(async move { steady.read_u8().await.map_err(|it| it.kind()) });
        tokio::task::yield_now().await;
        let started = Instant::now();
        let _next = peers.enter(None);
        assert_eq!(
            reading.await.unwrap(),
            Err(io::ErrorKind::ConnectionAborted)
        );
        assert_eq!(started.elapsed().as_secs(), 0);
    }
}
