//! The one writer, and its group commit.
//!
//! All requests that wait when the writer is free become one transaction with one sync of the disk. Each request has a
//! savepoint of its own in it, so that a conflict refuses that request alone. After a lost connection to a server the
//! writer connects again, with pauses; until then every request fails with that cause.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    apply::{self, Refusal},
    changes::{Changes, StoreError},
    conflict,
    engine::{Connection, EngineError, Fault},
    lock::Lock,
    model::Pool,
    off_clock,
    open::Place,
    open_error::OpenError,
};

/// How often a transaction that collided with another one is repeated before its requests fail.
const MAX_COLLISIONS: u32 = 10;

/// The pause after the first attempt to connect again that failed; each later one is twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Requests in one transaction at most: bounds how long the first one waits for the others.
const MAX_GROUP: usize = 256;

/// The content of a request.
#[derive(Debug)]
pub(crate) enum Work {
    /// A set of changes.
    Changes(Box<Changes>),
    /// A pool.
    Pool(Pool),
    /// The name of a pool that is deleted.
    NoPool(String),
}

impl Work {
    async fn apply(&self, c: &mut Connection) -> Result<(), Refusal> {
        match self {
            Self::Changes(changes) => apply::apply(c, changes).await,
            Self::Pool(pool) => apply::apply_pool(c, pool).await,
            Self::NoPool(name) => apply::delete_pool(c, name).await,
        }
    }

    /// What refused it, after the rollback.
    async fn find_conflict(&self, c: &mut Connection) -> Result<String, EngineError> {
        Ok(match self {
            Self::Changes(changes) => conflict::find(c, changes).await?,
            Self::Pool(Pool { name, .. }) | Self::NoPool(name) => format!("pool {name}"),
        })
    }
}

/// A request to the writer, which sends the result once the effect is on the disk.
#[derive(Debug)]
pub(crate) struct Request {
    /// The changes to write.
    pub(crate) work: Work,
    /// The channel to the caller that waits.
    pub(crate) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// The channel to the caller that waits for the close.
type Closer = oneshot::Sender<()>;

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    /// Write this.
    Write(Request),
    /// Close the database after all earlier messages, and report when that is done.
    Close(Closer),
}

/// The state that writer and readers share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests that have ended, with success or not.
    pub(crate) n_requests: AtomicU64,
    /// Transactions that were committed.
    pub(crate) n_transactions: AtomicU64,
    /// Why nothing may be read or written any more: a write failed, and the content of the disk is unknown.
    pub(crate) failed: OnceLock<Arc<str>>,
    /// Why nothing can be read or written for now: the writer lost its connection. Reads wait for it too, because a
    /// commit whose result was lost may still be under way until the writer has its lock again.
    lost: Mutex<Option<Arc<str>>>,
}

impl Shared {
    /// Refuses all work after a failed write, and while the connection is lost.
    pub(crate) fn check(&self, doing: &'static str) -> Result<(), StoreError> {
        match self.failed.get().cloned().or_else(|| self.lost()) {
            None => Ok(()),
            Some(why) => Err(StoreError::Unavailable { doing, why }),
        }
    }

    fn lost(&self) -> Option<Arc<str>> {
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_lost(&self, why: Option<Arc<str>>) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Refuses all work until a restart. Only the first reason counts.
    fn stop(&self, why: String) {
        let _ = self.failed.set(why.into());
    }
}

/// The writer's end of the store.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) place: Place,
    pub(crate) opening: i64,
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
                    // After the close: the sender gets an error, because its channel is dropped.
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
            if closer.is_none() && self.shared.lost().is_some() {
                closer = self.reconnect(&mut inbox).await;
            }
        }
        self.close().await;
        if let Some(done) = closer {
            // The caller of the close may have gone away.
            let _ = done.send(());
        }
    }

    async fn close(self) {
        let closed = off_clock::run(async move || {
            let closed = self.connection.close().await;
            drop(self.lock);
            closed
        });
        if let Ok(Err(error)) = closed.await {
            tracing::warn!(%error, "the database was not closed cleanly; its log is replayed at the next start");
        }
    }

    /// Connects again in place of a connection that was lost, however long that takes; requests
    /// fail meanwhile. Returns the sender of a close that came meanwhile.
    async fn reconnect(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Option<Closer> {
        let mut pause = MIN_PAUSE;
        loop {
            let (place, opening) = (self.place.clone(), self.opening);
            let opened = off_clock::run(async move || place.reopen(opening).await);
            match opened.await {
                Ok(Ok(connection)) => {
                    tracing::info!("connected to the database again");
                    self.connection = connection;
                    self.shared.set_lost(None);
                    return None;
                }
                Ok(Err(error @ OpenError::TakenOver { .. })) => {
                    tracing::error!(%error, "the store stops until a restart");
                    self.shared.stop(error.to_string());
                    self.shared.set_lost(None);
                    return None;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "connecting to the database again failed; trying on");
                    self.shared.set_lost(Some(error.to_string().into()));
                }
                Err(error) => {
                    self.shared.set_lost(Some(error.to_string().into()));
                }
            }
            let refused = tokio::time::timeout(pause, self.refuse(inbox));
            match refused.await {
                Ok(closer) => return closer,
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
        }
    }

    /// Fails requests with the present cause, until the store is closed or dropped.
    async fn refuse(&self, inbox: &mut mpsc::Receiver<Message>) -> Option<Closer> {
        loop {
            match inbox.recv().await? {
                Message::Write(request) => {
                    self.answer(request.answer, self.shared.check("commit"));
                }
                Message::Close(done) => return Some(done),
            }
        }
    }

    fn answer(&self, who: oneshot::Sender<Result<(), StoreError>>, answer: Result<(), StoreError>) {
        self.shared.n_requests.fetch_add(1, Ordering::Relaxed);
        // A caller that went away does not wait for the result.
        let _ = who.send(answer);
    }

    async fn serve(&mut self, group: Vec<Request>) {
        let (work, waiting): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|request| (request.work, request.answer))
            .unzip();
        let answers = self.commit_group(&work).await;
        for (who, answer) in waiting.into_iter().zip(answers) {
            self.answer(who, answer);
        }
    }

    /// One transaction for all requests; if the engine refuses it, one for each, so that a request that the engine
    /// cannot execute fails alone.
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
        for _ in 0..MAX_COLLISIONS {
            match self.try_together(group).await {
                Err(error) if error.fault == Fault::Collision => {
                    tracing::debug!(%error, "a transaction collided with another; trying it again");
                }
                done => return done.map_err(|error| error.into_store_error("commit")),
            }
        }
        let last = self.try_together(group).await;
        last.map_err(|error| error.into_store_error("commit"))
    }

    async fn try_together(
        &mut self,
        group: &[Work],
    ) -> Result<Vec<Result<(), StoreError>>, EngineError> {
        let done = self.transact(group).await;
        let Err(error) = &done else { return done };
        if self.connection.is_lost() {
            tracing::warn!(%error, "the connection to the database was lost");
            // Before the callers get the error: a read after it must not see the old state.
            self.shared.set_lost(Some(error.why.clone()));
            return done;
        }
        // Fails where the engine has rolled back by itself; a transaction left open refuses the next begin.
        let _ = self.connection.execute("ROLLBACK", []).await;
        if matches!(error.fault, Fault::Io | Fault::Damaged) {
            self.stop(error);
        }
        done
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

    /// A write failed in the kernel, which may have dropped what it could not write; a later sync would not report
    /// that. A restart reads what the disk really has.
    fn stop(&self, error: &EngineError) {
        tracing::error!(%error, "writing the database failed; the store stops until a restart");
        self.shared.stop(format!(
            "an earlier write failed ({error}), so what is on the disk is unknown; check the disk and restart"
        ));
    }
}

async fn apply_in_savepoint(
    c: &mut Connection,
    work: &Work,
) -> Result<Result<(), StoreError>, EngineError> {
    c.execute("SAVEPOINT request", []).await?;
    let answer = match work.apply(c).await {
        Ok(()) => Ok(()),
        Err(Refusal::Engine(error)) => return Err(error),
        Err(Refusal::Conflict) => {
            c.execute("ROLLBACK TO request", []).await?;
            let what = work.find_conflict(c).await?;
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
                why: format!("the disk is full; free some space ({why})").into(),
            },
            Fault::Constraint
            | Fault::Collision
            | Fault::Io
            | Fault::Lost
            | Fault::Denied
            | Fault::Other => StoreError::Unavailable { doing, why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pool;
    use crate::open::{Opened, Place};

    fn pool(name: String) -> Work {
        Work::Pool(Pool::new(name, 1))
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
        let place = Place::Memory("full-disk".to_owned());
        let Opened {
            writer,
            reader: _reader,
            opening,
            ..
        } = place.open().await.unwrap();
        let mut writer = Writer {
            place,
            opening,
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
            why.starts_with("the disk is full; free some space ("),
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
