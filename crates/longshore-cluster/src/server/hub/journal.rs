//! The way of writes to a durable store: a queue, and one thread that takes from it all there is
//! (group commit) and says when it is on the medium.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::watch;

use super::{Publication, lock};
use crate::server::store::{MAX_UNSTORED, Record, Store, StoreError};

/// Most JSON in one transaction: larger ones would only make the first of them wait.
const BATCH_BYTES: usize = 8 << 20;

/// How far the writes have come.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The newest revision whose event every reader can see.
    pub(super) published: u64,
    /// The newest revision on the medium.
    pub(super) stored: u64,
    /// Why nothing is written any more.
    pub(super) stopped: Option<StoreError>,
}

/// A write on its way.
pub(super) struct Entry {
    pub(super) record: Record,
    /// What readers see once it is stored; nothing when they see it already.
    pub(super) publication: Option<Publication>,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Set at the end, to the newest revision that was given out.
    closed_at: Option<u64>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// The queue before a store, and the thread behind it.
pub(super) struct Journal {
    shared: Arc<Shared>,
    progress: Arc<watch::Sender<Progress>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Starts the thread that owns the store.
    pub(super) fn start(
        store: Box<dyn Store>,
        progress: Arc<watch::Sender<Progress>>,
    ) -> std::io::Result<Journal> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            store,
        };
        let thread = std::thread::Builder::new().name("cluster-store".to_owned());
        Ok(Journal {
            shared,
            progress,
            writer: Mutex::new(Some(thread.spawn(|| writer.run())?)),
        })
    }

    /// Fails while the store cannot take a write.
    pub(super) fn admit(&self, revision: u64) -> Result<(), StoreError> {
        let progress = self.progress.borrow();
        if let Some(stopped) = &progress.stopped {
            let message = stopped.message.clone();
            return Err(StoreError { revision, message });
        }
        if lock(&self.shared.queue).closed_at.is_some() {
            let message = "the cluster is shutting down".to_owned();
            return Err(StoreError { revision, message });
        }
        if revision.saturating_sub(progress.stored) > MAX_UNSTORED {
            let message = "too many writes wait for the disk, try again later".to_owned();
            return Err(StoreError { revision, message });
        }
        Ok(())
    }

    /// Adds a write; called in the order of revisions.
    pub(super) fn push(&self, entry: Entry) {
        lock(&self.shared.queue).entries.push_back(entry);
        self.shared.changed.notify_one();
    }

    /// Takes nothing any more; `revision` is the newest that was given out.
    pub(super) fn refuse(&self, revision: u64) {
        lock(&self.shared.queue).closed_at.get_or_insert(revision);
        self.shared.changed.notify_one();
    }

    /// Waits until everything is stored and the store is closed, after [`Journal::refuse`].
    pub(super) fn join(&self) {
        if let Some(writer) = lock(&self.writer).take() {
            // The writer has reported its error through `Progress`.
            let _ = writer.join();
        }
    }
}

/// The thread's side.
struct Writer {
    shared: Arc<Shared>,
    progress: Arc<watch::Sender<Progress>>,
    store: Box<dyn Store>,
}

impl Writer {
    fn run(mut self) {
        loop {
            match self.next_batch() {
                Ok(batch) => {
                    if let Err(error) = self.store_batch(batch) {
                        return self.stop(error);
                    }
                }
                Err(revision) => {
                    if let Err(error) = self.store.close(revision) {
                        self.stop(error);
                    }
                    return;
                }
            }
        }
    }

    /// Everything that waits, up to a size; the last revision when the end has come.
    fn next_batch(&self) -> Result<Vec<Entry>, u64> {
        let mut queue = lock(&self.shared.queue);
        while queue.entries.is_empty() {
            if let Some(revision) = queue.closed_at {
                return Err(revision);
            }
            queue = self
                .shared
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let mut n_bytes = 0;
        let fits = queue.entries.iter().take_while(|entry| {
            let is_first = n_bytes == 0;
            n_bytes += 1 + size(&entry.record);
            is_first || n_bytes <= BATCH_BYTES
        });
        let n = fits.count();
        Ok(queue.entries.drain(..n).collect())
    }

    fn store_batch(&mut self, batch: Vec<Entry>) -> Result<(), StoreError> {
        let (records, publications): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|entry| (entry.record, entry.publication))
            .unzip();
        let stored = records.last().map_or(0, |record| record.revision);
        self.store.append(&records)?;
        let publications: Vec<Publication> = publications.into_iter().flatten().collect();
        for publication in &publications {
            publication.apply();
        }
        self.progress.send_modify(|progress| {
            progress.stored = stored;
            if let Some(last) = publications.last() {
                progress.published = last.revision();
            }
        });
        for publication in &publications {
            publication.announce();
        }
        Ok(())
    }

    /// Fails all writes that wait in the journal, and all later ones, with `error`.
    fn stop(&self, error: StoreError) {
        tracing::error!(%error, "the cluster stores nothing any more; restart it after a repair");
        self.progress
            .send_modify(|progress| progress.stopped = Some(error));
        let unstored = std::mem::take(&mut lock(&self.shared.queue).entries);
        drop(unstored);
    }
}

fn size(record: &Record) -> usize {
    let previous = record.previous.as_ref().map_or(0, |it| it.json.len());
    record.json.as_ref().map_or(0, |json| json.len()) + previous
}
