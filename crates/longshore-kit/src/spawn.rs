//! Named tasks that are joined: nothing runs on after its owner said that it has stopped.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// The long-running tasks of a process or a subsystem, with the token that stops them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
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
    /// logged and stops all the others, because nobody would notice that one is missing.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        let task = tokio::spawn(work.instrument(tracing::info_span!("task", name)));
        self.tracker.spawn(async move {
            if let Err(error) = task.await
                && error.is_panic()
            {
                tracing::error!(name, %error, "a task panicked; stopping");
                shutdown.cancel();
            }
        });
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
