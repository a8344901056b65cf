//! Ctrl-C and SIGTERM.

use std::{future::Future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Requests to stop, as they come.
pub(crate) trait Interrupts {
    /// Waits for the next one. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = ()>;
}

/// The signals of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    ctrl_c: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on this process handles both signals.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            ctrl_c: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
}

impl Interrupts for Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ends the process here and now: the second Ctrl-C. Nothing is lost by that; the process only does not tidy up.
pub(crate) fn exit_at_once() -> ! {
    #[expect(clippy::disallowed_methods, reason = "the binary ends the process")]
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
