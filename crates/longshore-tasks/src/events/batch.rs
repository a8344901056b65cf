//! Many events at a time: each waits a moment for others, and its sender waits for all of them.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{ActionEvent, ActionEvents, NotPublished, message};

/// Where events go.
#[async_trait]
pub trait EventSink: std::fmt::Debug + Send + Sync + 'static {
    /// Records events, and returns once that is acknowledged. Some may come again.
    async fn record(&self, events: &[ActionEvent]) -> Result<(), NotRecorded>;
}

/// Events that were not recorded, or not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecorded {
    /// At least one of them is not what is expected: the others are tried without it.
    #[error("{0}")]
    Refused(String),
    /// None of them is known to be recorded.
    #[error("{0}")]
    Failed(String),
}

/// How events are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// So many are sent at a time, at most.
    pub max_events: usize,
    /// So long the first one of a batch waits for others.
    pub delay: Duration,
    /// So many batches are under way at the same time.
    pub max_flushes: usize,
    /// So many events wait; a caller that brings more has to wait too.
    pub queue: usize,
    /// So long a batch may be under way.
    pub timeout: Duration,
}

impl Default for BatchLimits {
    /// As the peer has them.
    fn default() -> Self {
        Self {
            max_events: 400,
            delay: Duration::from_millis(25),
            max_flushes: 32,
            queue: 8192,
            timeout: Duration::from_secs(30),
        }
    }
}

impl BatchLimits {
    /// For a file of this machine: one batch at a time, and what comes meanwhile is the next one.
    pub fn of_a_file() -> Self {
        Self {
            delay: Duration::from_millis(1),
            max_flushes: 1,
            ..Self::default()
        }
    }
}

/// Tells many events at a time. Its clones share the queue.
#[derive(Clone, Debug)]
pub struct BatchedEvents {
    queue: mpsc::Sender<Waiting>,
}

/// An event whose sender waits.
#[derive(Debug)]
struct Waiting {
    event: ActionEvent,
    outcome: oneshot::Sender<Result<(), NotRecorded>>,
}

impl BatchedEvents {
    /// A queue, and the work that empties it, which the caller has to run. It ends once all clones of the queue are gone
    /// and everything is told; dropped before that, waiting callers get an error.
    pub fn new(
        sink: Arc<dyn EventSink>,
        limits: BatchLimits,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, waiting) = mpsc::channel(limits.queue);
        (Self { queue }, run(sink, limits, waiting))
    }
}

#[async_trait]
impl ActionEvents for BatchedEvents {
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished> {
        if let Some(flaw) = message::flaw(event) {
            return Err(NotPublished(flaw.to_owned()));
        }
        let (sender, outcome) = oneshot::channel();
        let waiting = Waiting {
            event: event.clone(),
            outcome: sender,
        };
        let stopping = || NotPublished("the process stops".to_owned());
        self.queue.send(waiting).await.map_err(|_| stopping())?;
        let outcome = outcome.await.map_err(|_| stopping())?;
        outcome.map_err(|error| NotPublished(error.to_string()))
    }
}

async fn run(sink: Arc<dyn EventSink>, limits: BatchLimits, mut queue: mpsc::Receiver<Waiting>) {
    let mut flushes = FuturesUnordered::new();
    let mut batch: Vec<Waiting> = Vec::new();
    let mut due_at = Instant::now();
    let mut is_open = true;
    loop {
        let is_full = batch.len() >= limits.max_events;
        let is_due = !batch.is_empty() && (is_full || !is_open || due_at <= Instant::now());
        if is_due && flushes.len() < limits.max_flushes {
            let due = std::mem::take(&mut batch);
            flushes.push(flush(sink.as_ref(), limits.timeout, due));
            continue;
        }
        if !is_open && batch.is_empty() && flushes.is_empty() {
            return;
        }
        tokio::select! {
            Some(()) = flushes.next() => {}
            event = queue.recv(), if is_open && !is_full => match event {
                Some(event) => {
                    if batch.is_empty() {
                        due_at = Instant::now() + limits.delay;
                    }
                    batch.push(event);
                }
                None => is_open = false,
            },
            () = sleep_until(due_at), if !batch.is_empty() && !is_due => {}
        }
    }
}

/// Records a batch, and sends each caller the outcome of its event.
async fn flush(sink: &dyn EventSink, limit: Duration, batch: Vec<Waiting>) {
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        let events: Vec<ActionEvent> = part.iter().map(|it| it.event.clone()).collect();
        let recorded = timeout(limit, sink.record(&events)).await;
        let late = |_| Err(NotRecorded::Failed(format!("no answer within {limit:?}")));
        let recorded = recorded.unwrap_or_else(late);
        if matches!(recorded, Err(NotRecorded::Refused(_))) && part.len() > 1 {
            // One bad event must not keep the others back.
            let rest = part.split_off(part.len() / 2);
            parts.extend([rest, part]);
            continue;
        }
        for Waiting { outcome, .. } in part {
            // A caller that does not wait any more sends its event again.
            drop(outcome.send(recorded.clone()));
        }
    }
}
