//! The pod or TaskAction of one try: created when the try's row is queued, deleted when the row no longer needs it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_api::dags::ANNOTATION_LAUNCH;
use longshore_core::{AskError, Incarnation, Never, Question as _, Seen};
use longshore_kit::{Answers, Controller, Refusal};
use uuid::Uuid;

use super::{
    decide::{Disposal, LaunchEffect, LaunchPlan, LogAnswer, LogQuestion, Observed, decide_launch},
    keep_log::LogKeeper,
    observe::{self, LaunchError},
    table::incarnation_of,
};
use crate::{base::shared::Shared, scheduler::facts::Fact};

/// By how much a try that has objects goes before those that have none: longer than the creation of thousands of them takes.
const HEAD_START: Duration = Duration::from_secs(60);

/// Makes the cluster hold what the committed rows ask for, and nothing else of ours.
pub(crate) struct Launches {
    shared: Arc<Shared>,
    config: Disposal,
    log_keeper: LogKeeper,
}

impl Launches {
    pub(crate) fn new(shared: Arc<Shared>, config: Disposal, log_keeper: LogKeeper) -> Self {
        Self {
            shared,
            config,
            log_keeper,
        }
    }
}

impl Controller for Launches {
    type Key = Uuid;
    type Observed = Observed;
    type Status = Never;
    type Effect = LaunchEffect;
    type Question = LogQuestion;
    type Error = LaunchError;

    fn name(&self) -> &'static str {
        "dags.pods"
    }

    /// Tries that have ended go before others start. Else the pods of thousands of queued tasks would all be there, and in
    /// memory, before the first of them is deleted.
    fn priority_boost(&self, ti_id: &Uuid) -> Duration {
        if self.shared.launched.has_objects(ti_id) {
            HEAD_START
        } else {
            Duration::ZERO
        }
    }

    async fn observe(
        &self,
        ti_id: &Uuid,
        now: Timestamp,
        answers: &Answers<LogQuestion>,
    ) -> Result<Observed, LaunchError> {
        let loaded = observe::load(&self.shared, ti_id, now).await?;
        let incarnation = incarnation_of(ti_id);
        let asked = answers.all(&incarnation);
        let asked = asked.map(|(question, asked)| (question.about(), asked));
        let asked = asked.collect();
        Ok(observe::assemble(loaded, *ti_id, now, self.config, asked))
    }

    /// A try that has no objects has no logs.
    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        let pods = observed.pods.as_ref();
        pods.map(|_| incarnation_of(&observed.ti_id))
    }

    fn decide(&self, observed: &Observed) -> LaunchPlan {
        decide_launch(observed)
    }

    async fn persist(&self, _ti_id: &Uuid, status: &Never) -> Result<(), LaunchError> {
        match *status {}
    }

    async fn call(&self, ti_id: &Uuid, effect: &LaunchEffect) -> Result<(), LaunchError> {
        match effect {
            LaunchEffect::NoteLog { object, note } => {
                match &note.problem {
                    Some(problem) if note.is_kept => {
                        tracing::warn!(%object, problem, "the log is not whole");
                    }
                    Some(problem) => {
                        tracing::warn!(%object, problem, "the log is not stored; its pod stays");
                    }
                    None => {}
                }
                self.shared.launched.note_log(ti_id, object, note);
                Ok(())
            }
            LaunchEffect::ReportEnded => {
                self.shared.inbox.push(Fact::LaunchEnded { ti_id: *ti_id });
                Ok(())
            }
            LaunchEffect::ReportBuildFailure { launch, message } => {
                self.shared.inbox.push(Fact::LaunchBuildFailed {
                    ti_id: *ti_id,
                    launch: *launch,
                    message: message.clone(),
                });
                Ok(())
            }
        }
    }

    /// The log is written to the archive while it is read; the answer holds none of it.
    async fn ask(
        &self,
        _ti_id: &Uuid,
        question: &LogQuestion,
        _answer_bytes: usize,
    ) -> Result<LogAnswer, AskError> {
        self.log_keeper.keep(question).await
    }

    /// The API server will never create this object, so its launch has failed.
    fn refused(&self, ti_id: &Uuid, _: &Seen<Incarnation>, refusal: &Refusal) {
        let create = refusal.create.as_ref();
        let launch = create.and_then(|create| {
            create.object["metadata"]["annotations"][ANNOTATION_LAUNCH]
                .as_str()?
                .parse()
                .ok()
        });
        if let Some(launch) = launch {
            self.shared.inbox.push(Fact::LaunchRefused {
                ti_id: *ti_id,
                launch,
                message: refusal.message.clone(),
            });
        }
    }
}
