//! What the workers of tasks from Python say, and when they are answered.

use std::sync::Arc;

use longshore_kit::lease::NotLeader;
use longshore_store::{StoreError, TaskState};
use uuid::Uuid;

use super::Dags;
use crate::scheduler::{Fact, WorkerAnswer, WorkerFact, WorkerReport};

/// Why what a worker says is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No try ever had this id.
    #[error("expected the id of a try, found {0}")]
    Unknown(Uuid),
    /// Another try followed.
    #[error("try {0} is over and another one followed")]
    Earlier(Uuid),
    /// Another process decides.
    #[error("this process does not decide upon tasks now")]
    NotLeader(#[from] NotLeader),
    /// The scheduler has ended.
    #[error("the scheduler of this process has ended")]
    Ended,
    /// The rows cannot be read.
    #[error("the database cannot tell what became of the try")]
    Store(#[from] StoreError),
}

impl Dags {
    /// The worker of a try says something. Returns its answer once the round that decided it is committed.
    ///
    /// *Guarantees*: a report of an earlier try changes nothing. A report that is repeated changes nothing, and is answered
    /// as it was before: by [`WorkerAnswer::Started`] or [`WorkerAnswer::Already`]. The exception is
    /// [`WorkerReport::Retry`]: its try is over, so the second one fails with [`ReportError::Earlier`].
    /// *Cancellation*: the report may be recorded or not; the worker says it again.
    ///
    /// # Errors
    /// The id is that of no present try, or nobody can decide now.
    pub async fn report(
        &self,
        ti_id: Uuid,
        report: WorkerReport,
    ) -> Result<WorkerAnswer, ReportError> {
        // What is closed commits nothing, and what waits for a commit would pile up.
        self.gate.check()?;
        let wanted = report.state();
        let (request, answered) = self.shared.workers.ask();
        self.shared.inbox.push(Fact::Worker(WorkerFact {
            ti_id,
            request,
            report: Arc::new(report),
        }));
        let answer = tokio::select! {
            answer = answered => answer.map_err(|_| ReportError::Ended)?,
            () = self.stopping() => return Err(ReportError::Ended),
        };
        match answer {
            Some(answer) => Ok(answer),
            None => self.answer_from_store(ti_id, wanted).await,
        }
    }

    /// The answer to a worker whose try is not on the board: its run is over, or another try followed.
    async fn answer_from_store(
        &self,
        ti_id: Uuid,
        wanted: Option<TaskState>,
    ) -> Result<WorkerAnswer, ReportError> {
        let store = &self.shared.store;
        let known = store.try_by_id(ti_id).await?;
        let known = known.ok_or(ReportError::Unknown(ti_id))?;
        let (_, rows) = store
            .run(&known.key.run)
            .await?
            .ok_or(ReportError::Unknown(ti_id))?;
        let row = rows.into_iter().find(|row| row.id == ti_id);
        let row = row.ok_or(ReportError::Earlier(ti_id))?;
        let has_ended_so = row.state == wanted && wanted.is_some_and(TaskState::is_finished);
        Ok(if has_ended_so {
            WorkerAnswer::Already
        } else {
            WorkerAnswer::Refused(row.state)
        })
    }
}
