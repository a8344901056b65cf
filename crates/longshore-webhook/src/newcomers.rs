//! Connections whose other end has not been authenticated as an API server. Every host in the
//! network may open them, so they are few, and each ends soon.
//!
//! An API server that finds no free connection gives up, and prints the address of the webhook with
//! its token. So a newcomer takes the place of the newcomer that has waited longest: an API server
//! sends its request within milliseconds.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Newcomers at the same time.
const MAX: usize = 256;
/// How long a connection may take until a request of it is admitted.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The connections without an authenticated request so far, the oldest first. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newcomers(Arc<Mutex<VecDeque<Weak<Connection>>>>);

/// What is known about a connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    is_admitted: AtomicBool,
    closing: CancellationToken,
}

impl Newcomers {
    /// A new connection. Where there are too many, the oldest one is closed.
    pub(crate) fn enter(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::default());
        let mut newcomers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |it: &Weak<Connection>| it.upgrade().is_some_and(|connection| connection.is_new());
        newcomers.retain(is_new);
        if newcomers.len() >= MAX
            && let Some(oldest) = newcomers.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.closing.cancel();
        }
        newcomers.push_back(Arc::downgrade(&connection));
        connection
    }
}

impl Connection {
    /// Marks the connection as one of an API server: it may stay.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    fn is_new(&self) -> bool {
        !self.is_admitted.load(Ordering::Relaxed) && !self.closing.is_cancelled()
    }

    /// Ends where the connection has to make room for another one.
    pub(crate) async fn closed(&self) {
        self.closing.cancelled().await;
    }
}

/// The stream of a connection, which fails once the connection has to end.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
    too_late: Pin<Box<Sleep>>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Watched<S> {
    /// The time of the connection begins now.
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            too_late: Box::pin(tokio::time::sleep(TIME_LIMIT)),
            closed: Box::pin(connection.closing.clone().cancelled_owned()),
            connection,
        }
    }

    /// # Errors
    /// The connection has to end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        use std::future::Future;
        if self.connection.is_admitted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_closed = self.closed.as_mut().poll(context).is_ready();
        if is_closed || self.too_late.as_mut().poll(context).is_ready() {
            let why = "no request of this connection was admitted in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[test]
    fn the_newcomer_that_has_waited_longest_makes_room_and_whoever_was_admitted_stays() {
        let newcomers = Newcomers::default();
        let admitted = newcomers.enter();
        admitted.admit();
        let first: Vec<_> = (0..MAX).map(|_| newcomers.enter()).collect();
        assert!(first.iter().all(|connection| connection.is_new()));
        let next = newcomers.enter();
        assert!(first[0].closing.is_cancelled() && !first[1].closing.is_cancelled());
        assert!(!admitted.closing.is_cancelled() && next.is_new());
        // A connection that has ended by itself takes no place.
        drop(first);
        let _other: Vec<_> = (1..MAX).map(|_| newcomers.enter()).collect();
        assert!(next.is_new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_in_time_unless_somebody_was_admitted_on_it() {
        for is_admitted in [false, true] {
            let (ours, mut theirs) = duplex(64);
            let connection = Newcomers::default().enter();
            let mut stream = Watched::new(ours, Arc::clone(&connection));
            if is_admitted {
                connection.admit();
            }
            let reading =
                tokio::spawn(async move { stream.read_u8().await.map_err(|it| it.kind()) });
            tokio::time::sleep(TIME_LIMIT * 2).await;
            assert_eq!(reading.is_finished(), !is_admitted);
            if is_admitted {
                theirs.write_u8(7).await.unwrap();
                assert_eq!(reading.await.unwrap(), Ok(7));
            } else {
                assert_eq!(reading.await.unwrap(), Err(io::ErrorKind::TimedOut));
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_makes_room_ends_at_once() {
        let (ours, _theirs) = duplex(64);
        let newcomers = Newcomers::default();
        let connection = newcomers.enter();
        let mut stream = Watched::new(ours, Arc::clone(&connection));
        let reading = tokio::spawn(async move { stream.read_u8().await.map_err(|it| it.kind()) });
        let _others: Vec<_> = (0..MAX).map(|_| newcomers.enter()).collect();
        assert_eq!(reading.await.unwrap(), Err(io::ErrorKind::TimedOut));
    }
}
