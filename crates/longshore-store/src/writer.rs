//! The one writer, and its group commit.
//!
//! All requests that wait when the writer is free become one transaction with one sync of the disk. Each request has a
//! savepoint of its own in it, so that a conflict refuses that request alone. What is told is in transactions apart from
//! the others, of which there is one after each of theirs: a commit of the scheduler waits for about a megabyte of told
//! values at most. After a lost connection to a server the writer connects again, with pauses; until then every request
//! fails with that cause.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    apply::Refusal,
    changes::StoreError,
    engine::{Connection, EngineError, Fault},
    lock::Lock,
    off_clock,
    open::Place,
    open_error::OpenError,
    told::write::Done,
    work::{Answer, MAX_GROUP, Request, Work, first_told},
};

/// How often a transaction that collided with another one is repeated before its requests fail.
const MAX_COLLISIONS: u32 = 10;

/// The pause after the first attempt to connect again that failed; each later one is twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The channel to the caller that waits for the close.
type Closer = oneshot::Sender<()>;

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    /// Write this.
    Write(Box<Request>),
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
        let mut told = VecDeque::new();
        while closer.is_none() && receive(&mut inbox, &mut waiting, told.is_empty()).await
            || !told.is_empty()
        {
            let mut group = Vec::new();
            for message in waiting.drain(..) {
                match message {
                    Message::Write(request) if closer.is_none() => match request.work.told() {
                        None => group.push(*request),
                        Some(_) => told.push_back(*request),
                    },
                    // After the close: the sender gets an error, because its channel is dropped.
                    Message::Write(_) => {}
                    Message::Close(done) => closer = Some(done),
                }
            }
            let served = off_clock::run({
                let groups = [group, first_told(&mut told)];
                async move || {
                    for group in groups.into_iter().filter(|group| !group.is_empty()) {
                        self.serve(group).await;
                    }
                    self
                }
            });
            match served.await {
                Ok(writer) => self = writer,
                Err(error) => {
                    tracing::error!(%error, "the store's writer failed; nothing is written any more");
                    return;
                }
            }
            if self.shared.lost().is_some() {
                for request in told.drain(..) {
                    self.answer(request.answer, self.refusal());
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
                    self.answer(request.answer, self.refusal());
                }
                Message::Close(done) => return Some(done),
            }
        }
    }

    /// Why nothing is written while the connection is lost.
    fn refusal(&self) -> Answer {
        self.shared.check("commit").map(|()| Done::Rows(0))
    }

    fn answer(&self, who: oneshot::Sender<Answer>, answer: Answer) {
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
    async fn commit_group(&mut self, group: &[Work]) -> Vec<Answer> {
        match self.commit_together(group).await {
            Ok(answers) => answers,
            Err(error) if group.len() <= 1 => vec![Err(error)],
            Err(_) => {
                let mut answers = Vec::with_capacity(group.len());
                for work in group {
                    let answer = self.commit_together(std::slice::from_ref(work)).await;
                    answers.push(answer.and_then(only));
                }
                answers
            }
        }
    }

    async fn commit_together(&mut self, group: &[Work]) -> Result<Vec<Answer>, StoreError> {
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

    async fn try_together(&mut self, group: &[Work]) -> Result<Vec<Answer>, EngineError> {
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

    async fn transact(&mut self, group: &[Work]) -> Result<Vec<Answer>, EngineError> {
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

/// The answer to a request that was alone in its transaction.
fn only(answers: Vec<Answer>) -> Answer {
    // One for each request.
    answers.into_iter().next().unwrap_or(Ok(Done::Rows(0)))
}

/// Takes the messages that wait, and waits for the first one where `is_idle`. Whether there is anything to do.
async fn receive(
    inbox: &mut mpsc::Receiver<Message>,
    waiting: &mut Vec<Message>,
    is_idle: bool,
) -> bool {
    if is_idle {
        return inbox.recv_many(waiting, MAX_GROUP).await > 0;
    }
    while waiting.len() < MAX_GROUP
        && let Ok(message) = inbox.try_recv()
    {
        waiting.push(message);
    }
    true
}

async fn apply_in_savepoint(c: &mut Connection, work: &Work) -> Result<Answer, EngineError> {
    c.execute("SAVEPOINT request", []).await?;
    let answer = match work.apply(c).await {
        Ok(done) => Ok(done),
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
    use crate::{
        Changes,
        model::{Pool, Run, RunDetails, RunKey, RunState, RunType, StoredDocument, TaskInstance},
        open::Opened,
        told::{FromTry, Sealed, Shared as SharedRow, StoredVariable},
        work::MAX_TOLD,
    };
    use uuid::Uuid;

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

    /// A run with a task instance, and its id.
    fn first_try() -> (Changes, Uuid) {
        let document = StoredDocument::of(&serde_json::json!({}));
        let run = Run {
            key: RunKey {
                dag_id: "d".to_owned(),
                run_id: "r".to_owned(),
            },
            run_type: RunType::Manual,
            state: RunState::Running,
            logical_date: None,
            queued_at: jiff::Timestamp::UNIX_EPOCH,
            start_date: None,
            end_date: None,
            conf: serde_json::json!({}),
            dag_hash: document.hash().clone(),
            is_prepared: true,
            reason: None,
            details: RunDetails::default(),
            version: 0,
        };
        let id = Uuid::from_u128(7);
        let changes = Changes {
            task_instances: vec![TaskInstance::new(id, run.key.task("t"))],
            runs: vec![run],
            documents: vec![document],
            ..Changes::default()
        };
        (changes, id)
    }

    /// What is told has no transaction with the scheduler's commits, and none of it comes before one that waits.
    #[tokio::test]
    async fn commits_come_before_what_is_told_and_apart_from_it() {
        let place = Place::Memory("lanes".to_owned());
        let Opened {
            writer,
            reader: mut connection,
            opening,
            ..
        } = place.open().await.unwrap();
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            place,
            opening,
            connection: writer,
            shared: Arc::clone(&shared),
            lock: None,
        };
        let (inbox, requests) = mpsc::channel(100);
        // What is told names a try that only the commit makes, which comes last; all of it waits when the writer begins.
        let (commit, id) = first_try();
        let variable = |n: usize| {
            let value = Sealed::plain("x".repeat(MAX_TOLD / 2 + 1));
            let variable = StoredVariable {
                key: n.to_string(),
                value,
                description: None,
            };
            Work::Tell(id, FromTry::Shared(SharedRow::Variable(variable)))
        };
        let mut answers = Vec::new();
        for work in (0..3)
            .map(variable)
            .chain([Work::Changes(Box::new(commit))])
        {
            let (answer, answered) = oneshot::channel();
            let request = Message::Write(Box::new(Request { work, answer }));
            inbox.send(request).await.unwrap();
            answers.push(answered);
        }
        let running = tokio::spawn(writer.run(requests));
        let n_rows = [1, 1, 1, 0];
        for (answered, n_rows) in answers.into_iter().zip(n_rows) {
            assert_eq!(answered.await.unwrap().unwrap(), Done::Rows(n_rows));
        }
        drop(inbox);
        running.await.unwrap();
        // One for the commit, and one for each variable, of which no two fit.
        assert_eq!(shared.n_transactions.load(Ordering::Relaxed), 4);
        let rows = connection
            .fetch("SELECT COUNT(*) AS n FROM variable", [])
            .await
            .unwrap();
        assert_eq!(rows[0].int("n"), Ok(3));
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
        let [Ok(_), Err(StoreError::Unavailable { why, .. }), Ok(_)] = &answers[..] else {
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
