//! Our end of a terminal as a stream of tokio.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::libc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd};

/// Our end of a terminal; clones share it. One may read and one may write at a time.
#[derive(Clone, Debug)]
pub(crate) struct TerminalEnd(Arc<AsyncFd<OwnedFd>>);

impl TerminalEnd {
    /// Takes a descriptor that never waits. Needs a tokio runtime.
    pub(crate) fn new(terminal: OwnedFd) -> io::Result<TerminalEnd> {
        #[expect(
            unsafe_code,
            reason = "tokio cannot check that a descriptor stays the same"
        )]
        // SAFETY: an `OwnedFd` always returns the descriptor that it owns, and owns it until it is dropped.
        let registered = unsafe { AsyncFd::register(terminal) };
        Ok(TerminalEnd(Arc::new(registered?)))
    }
}

impl AsyncRead for TerminalEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let read =
                ready.try_io(|fd| nix::unistd::read(fd.get_ref(), room).map_err(io::Error::from));
            match read {
                Ok(Ok(n)) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                // The last process that had the terminal open has gone: this is its end.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_wait) => {}
            }
        }
    }
}

impl AsyncWrite for TerminalEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let written =
                ready.try_io(|fd| nix::unistd::write(fd.get_ref(), bytes).map_err(io::Error::from));
            if let Ok(written) = written {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// A terminal has no end of its input: the other direction goes on.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
