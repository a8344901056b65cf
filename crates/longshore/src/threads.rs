//! The runtime of a command, and the threads that it needs.

use std::{io, thread};

use tokio::runtime::Runtime;

use crate::error::CliError;

/// A runtime with threads.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    // Where the system makes none, tokio panics.
    try_one(thread::Builder::new()).map_err(|source| CliError::NoThread { source })?;
    Runtime::new().map_err(|source| CliError::engine("the runtime", source))
}

fn try_one(thread: thread::Builder) -> io::Result<()> {
    // It does nothing that could fail.
    drop(thread.spawn(|| ())?.join());
    Ok(())
}
