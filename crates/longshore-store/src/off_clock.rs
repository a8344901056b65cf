//! Runs the engine's work on blocking threads, during which a paused clock stands still.

use tokio::{
    runtime::Handle,
    task::{JoinError, spawn_blocking},
};

/// Runs work of the engine to its end on a blocking thread, even if the caller goes away.
///
/// *Guarantees*: under a paused clock virtual time stands still meanwhile (a runtime that only waits for the engine's
/// own threads would otherwise look idle, and jump to its next timer), so a commit takes no virtual time.
/// *Cancellation*: the work goes on; only its result is lost.
///
/// # Errors
/// The work panicked, or the runtime shuts down.
pub(crate) async fn run<W, T>(work: W) -> Result<T, JoinError>
where
    W: AsyncFnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let runtime = Handle::current();
    spawn_blocking(move || runtime.block_on(work())).await
}
