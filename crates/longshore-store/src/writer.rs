//! The one writer, and its group commit.
//!
//! All that waits when the writer is free becomes one transaction with one sync of the disk. Each request has a
//! savepoint of its own in it, so that a conflict refuses that request alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};

use crate::apply::{self, Refusal};
use crate::changes::{Changes, StoreError};
use crate::lock::Lock;
use crate::model::Pool;
use crate::off_clock;
use crate::sqlite::{Connection, EngineError, Fault};

/// Requests in one transaction at most: bounds how long the first one waits for the others.
const MAX_GROUP: usize = 256;

/// What to write.
#[derive(Debug)]
pub(crate) enum Work {
    /// A set of changes.
    Changes(Changes),
    /// A pool.
    Pool(Pool),
}

/// A request to the writer; the answer is sent once its effect is on the disk.
#[derive(Debug)]
pub(crate) struct Request {
    /// What to write.
    pub(crate) work: Work,
    /// Who waits.
    pub(crate) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// What the writer is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Write this.
    Write(Request),
    /// Close the database after all that was sent before, and say when that is done.
    Close(oneshot::Sender<()>),
}

/// What writer and readers share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests that were answered, well or not.
    pub(crate) n_requests: AtomicU64,
    /// Transactions that were committed.
    pub(crate) n_transactions: AtomicU64,
    /// Why nothing may be read or written any more: a write failed and nobody knows what is on the disk.
    pub(crate) failed: OnceLock<Arc<str>>,
}

impl Shared {
    /// Refuses all work after a failed write.
    pub(crate) fn check(&self, doing: &'static str) -> Result<(), StoreError> {
        self.failed.get().map_or(Ok(()), |why| {
            Err(StoreError::Unavailable {
                doing,
                why: why.clone(),
            })
        })
    }
}

/// The writer's end of the store.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) shared: Arc<Shared>,
    /// Held until the connection is closed.
    pub(crate) lock: Option<Lock>,
}

impl Writer {
    /// Serves requests until the store is closed or dropped.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut closer = None;
        let mut waiting = Vec::new();
        while closer.is_none() && inbox.recv_many(&mut waiting, MAX_GROUP).await > 0 {
            let mut group = Vec::new();
            for message in waiting.drain(..) {
                match message {
                    Message::Write(request) if closer.is_none() => group.push(request),
                    // After the close: its sender learns that nobody answers.
                    Message::Write(_) => {}
                    Message::Close(done) => closer = Some(done),
                }
            }
            let served = off_clock::run(async move || {
                self.serve(group).await;
                self
            });
            match served.await {
                Ok(writer) => self = writer,
                Err(error) => {
                    tracing::error!(%error, "the store's writer failed; nothing is written any more");
                    return;
                }
            }
        }
        let closed = off_clock::run(async move || {
            let closed = self.connection.close().await;
            drop(self.lock);
            closed
        });
        if let Ok(Err(error)) = closed.await {
            tracing::warn!(%error, "the database was not closed cleanly; its log is replayed at the next start");
        }
        if let Some(done) = closer {
            // Nobody waiting is fine.
            let _ = done.send(());
        }
    }

    async fn serve(&mut self, group: Vec<Request>) {
        let (work, waiting): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|request| (request.work, request.answer))
            .unzip();
        let answers = self.commit_group(&work).await;
        for (who, answer) in waiting.into_iter().zip(answers) {
            self.shared.n_requests.fetch_add(1, Ordering::Relaxed);
            // A caller that went away does not wait for its answer.
            let _ = who.send(answer);
        }
    }

    /// One transaction for all; if the engine refuses it, one for each, so that a request that the engine cannot
    /// digest fails alone.
    async fn commit_group(&mut self, group: &[Work]) -> Vec<Result<(), StoreError>> {
        match self.commit_together(group).await {
            Ok(answers) => answers,
            Err(error) if group.len() <= 1 => vec![Err(error)],
            Err(_) => {
                let mut answers = Vec::with_capacity(group.len());
                for work in group {
                    let answer = self.commit_together(std::slice::from_ref(work)).await;
                    answers.push(answer.and_then(|answers| answers.into_iter().collect()));
                }
                answers
            }
        }
    }

    async fn commit_together(
        &mut self,
        group: &[Work],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.shared.check("commit")?;
        match self.transact(group).await {
            Ok(answers) => Ok(answers),
            Err(error) => {
                // Fails where the engine has rolled back by itself; a transaction left open refuses the next begin.
                let _ = self.connection.execute("ROLLBACK", []).await;
                if matches!(error.fault, Fault::Io | Fault::Damaged) {
                    self.stop(&error);
                }
                Err(error.into_store_error("commit"))
            }
        }
    }

    async fn transact(
        &mut self,
        group: &[Work],
    ) -> Result<Vec<Result<(), StoreError>>, EngineError> {
        let c = &mut self.connection;
        c.begin_write().await?;
        let mut answers = Vec::with_capacity(group.len());
        for work in group {
            answers.push(apply_in_savepoint(c, work).await?);
        }
        c.execute("COMMIT", []).await?;
        self.shared.n_transactions.fetch_add(1, Ordering::Relaxed);
        Ok(answers)
    }

    /// A write failed below us: the kernel may have dropped what it could not write, and a later sync would not say
    /// so. A restart reads what really is there.
    fn stop(&self, error: &EngineError) {
        tracing::error!(%error, "writing the database failed; the store stops until a restart");
        let why = format!(
            "an earlier write failed ({error}), so what is on the disk is unknown; check the disk and restart"
        );
        // Only the first reason counts.
        let _ = self.shared.failed.set(why.into());
    }
}

async fn apply_in_savepoint(
    c: &mut Connection,
    work: &Work,
) -> Result<Result<(), StoreError>, EngineError> {
    c.execute("SAVEPOINT request", []).await?;
    let applied = match work {
        Work::Changes(changes) => apply::apply(c, changes).await,
        Work::Pool(pool) => apply::apply_pool(c, pool).await,
    };
    let answer = match applied {
        Ok(()) => Ok(()),
        Err(Refusal::Engine(error)) => return Err(error),
        Err(Refusal::Conflict) => {
            c.execute("ROLLBACK TO request", []).await?;
            let what = match work {
                Work::Changes(changes) => apply::find_conflict(c, changes).await?,
                Work::Pool(pool) => format!("pool {}", pool.name),
            };
            Err(StoreError::Conflict { what })
        }
    };
    c.execute("RELEASE request", []).await?;
    Ok(answer)
}

impl EngineError {
    /// The error as callers of the store see it.
    pub(crate) fn into_store_error(self, doing: &'static str) -> StoreError {
        let Self { fault, why } = self;
        match fault {
            Fault::Damaged => StoreError::Corrupt {
                what: "the file".to_owned(),
                why,
            },
            Fault::Full => StoreError::Unavailable {
                doing,
                why: format!("the disk is full; free some space, it goes on by itself ({why})")
                    .into(),
            },
            Fault::Constraint | Fault::Io | Fault::Denied | Fault::Other => {
                StoreError::Unavailable { doing, why }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pool;
    use crate::open::{Opened, Place};

    fn pool(name: String) -> Work {
        Work::Pool(Pool { name, slots: 1 })
    }

    #[tokio::test]
    async fn the_writer_syncs_each_commit() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::File(directory.path().join("runs.db"));
        let Opened { mut writer, .. } = place.open().await.unwrap();
        let rows = writer.fetch("PRAGMA synchronous", []).await.unwrap();
        // FULL: in the log mode each commit syncs the log.
        assert_eq!(rows[0].int("synchronous"), Ok(2));
        let rows = writer.fetch("PRAGMA journal_mode", []).await.unwrap();
        assert_eq!(rows[0].text("journal_mode").as_deref(), Ok("wal"));
    }

    #[tokio::test]
    async fn a_full_disk_refuses_what_does_not_fit_and_the_rest_goes_on() {
        let Opened {
            writer,
            reader: _reader,
            ..
        } = Place::Memory("full-disk".to_owned()).open().await.unwrap();
        let mut writer = Writer {
            connection: writer,
            shared: Arc::default(),
            lock: None,
        };
        // The engine's own stand-in for a full disk.
        writer
            .connection
            .fetch("PRAGMA max_page_count = 40", [])
            .await
            .unwrap();
        let huge = pool("x".repeat(1 << 20));
        let group = [pool("a".to_owned()), huge, pool("b".to_owned())];
        let answers = writer.commit_group(&group).await;
        let [Ok(()), Err(StoreError::Unavailable { why, .. }), Ok(())] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert!(
            why.starts_with("the disk is full; free some space"),
            "{why}"
        );
        let rows = writer
            .connection
            .fetch("SELECT name FROM pool ORDER BY name", [])
            .await
            .unwrap();
        let names: Vec<_> = rows.iter().map(|row| row.text("name").unwrap()).collect();
        assert_eq!(names, ["a", "b", "default_pool"]);
        assert!(writer.shared.failed.get().is_none());
    }
}
