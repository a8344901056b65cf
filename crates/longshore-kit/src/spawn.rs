//! Named tasks that are joined: nothing runs on after its owner said that it has stopped.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::task::AbortHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// The long-running tasks of a process or a subsystem, with the token that stops them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    running: Arc<Mutex<Vec<AbortHandle>>>,
    shutdown: CancellationToken,
}

impl Tasks {
    /// No tasks, not stopping.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the tasks have to end.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Runs `work` as a task. It has to end by itself once [`shutdown`](Self::shutdown) is cancelled; a panic in it is
    /// logged and stops all the others, because no other task would notice that one is missing.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        let task = tokio::spawn(work.instrument(tracing::info_span!("task", name)));
        self.running().push(task.abort_handle());
        self.tracker.spawn(async move {
            if let Err(error) = task.await
                && error.is_panic()
            {
                tracing::error!(name, %error, "a task panicked; stopping");
                shutdown.cancel();
            }
        });
    }

    /// Ends every task at its next await, as a crash would.
    pub fn abort(&self) {
        self.shutdown.cancel();
        self.running().drain(..).for_each(|task| task.abort());
    }

    fn running(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every task to end and waits for them, at most `limit`; answers whether all of them ended.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.shutdown.cancel();
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn stop_waits_for_every_task() {
        let tasks = Tasks::new();
        let shutdown = tasks.shutdown();
        tasks.spawn("slow to end", async move {
            shutdown.cancelled().await;
            tokio::time::sleep(LIMIT / 2).await;
        });
        assert!(tasks.stop(LIMIT).await);
        tasks.spawn("never ends", std::future::pending());
        assert!(!tasks.stop(LIMIT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_stops_the_others() {
        let tasks = Tasks::new();
        let shutdown = tasks.shutdown();
        tasks.spawn("panics", async { panic!("planted") });
        assert!(
            tokio::time::timeout(LIMIT, shutdown.cancelled())
                .await
                .is_ok()
        );
    }
}
