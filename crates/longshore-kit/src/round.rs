//! One round of one key: settle, observe, decide, apply. Every action passes the gate.

use std::{error::Error, sync::Arc, time::Duration};

use longshore_core::{
    Action, Class, Classify, Incarnation, Next, Plan, Question, Seen, error::chain,
};
use tokio::time::Instant;

use crate::{
    apply::{Applier, ApplyError, Refusal},
    ask::{Answers, Questions},
    change::{Change, NotDone},
    clock::Clock,
    controller::Controller,
    lease::Gate,
    memory::Remembers,
    metrics::ControllerMetrics,
    outcome::{Counters, Outcome},
    round_writes,
};

/// A round that ended without an error.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) next: Next,
}

/// A round that ended with one.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) retry_after: Option<Duration>,
    /// The whole chain.
    pub(crate) report: String,
}

/// What a round needs.
#[derive(Debug)]
pub(crate) struct Round<C: Controller> {
    pub(crate) controller: Arc<C>,
    pub(crate) questions: Questions<C::Key, C::Question>,
    pub(crate) memories: Vec<Arc<dyn Remembers<C::Key>>>,
    pub(crate) gate: Gate,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) metrics: ControllerMetrics,
}

/// What the actions of one plan have in common.
struct Applying<'r, C: Controller> {
    key: &'r C::Key,
    incarnation: &'r Seen<Incarnation>,
    /// What the plan was decided upon.
    answers: &'r Answers<C::Question>,
}

type PlanOf<C> =
    Plan<<C as Controller>::Status, <C as Controller>::Effect, <C as Controller>::Question>;
type ActionOf<C> =
    Action<<C as Controller>::Status, <C as Controller>::Effect, <C as Controller>::Question>;

impl<C: Controller> Clone for Round<C> {
    fn clone(&self) -> Self {
        Self {
            controller: Arc::clone(&self.controller),
            questions: self.questions.clone(),
            memories: self.memories.clone(),
            gate: self.gate.clone(),
            applier: self.applier.clone(),
            clock: Arc::clone(&self.clock),
            counters: Arc::clone(&self.counters),
            metrics: self.metrics.clone(),
        }
    }
}

impl<C: Controller> Round<C> {
    /// Runs the round and counts it, even if it is dropped on the way.
    pub(crate) async fn run(self, key: C::Key) -> Result<Done, Failure> {
        let mut guard = Guard {
            counters: Arc::clone(&self.counters),
            metrics: self.metrics.clone(),
            started_at: Instant::now(),
            outcome: Outcome::Abandoned,
        };
        let result = round_writes::within(self.controller.name(), self.work(&key)).await;
        guard.outcome = match &result {
            Ok(done) => done.outcome,
            Err(_) => Outcome::Failed,
        };
        result
    }

    async fn work(&self, key: &C::Key) -> Result<Done, Failure> {
        let requests = self.applier.requests();
        let settled = self.applier.own_writes().settle(key, requests).await;
        settled.map_err(|error| {
            if let Some(not_done) = NotDone::of(&error) {
                self.controller.unsettled(key, &not_done);
            }
            Failure::of_kit(&error.into())
        })?;
        let now = self.clock.now();
        let answers = self.questions.answers(key);
        let observed = self.controller.observe(key, now, &answers).await;
        let observed = observed.map_err(|error| Failure::of_controller(&error))?;
        self.controller.measure(key, &observed);
        let incarnation = self.controller.incarnation(&observed);
        self.questions.keep(key, &incarnation);
        for memory in &self.memories {
            memory.keep(key, &incarnation);
        }
        let plan = self.controller.decide(&observed);
        // What was observed is shared: as long as this round holds it, a change of it needs a copy.
        drop(observed);
        let outcome = match (plan.actions.as_slice(), plan.next) {
            ([], Next::AwaitChange) => Outcome::Skipped,
            ([], Next::After(_)) => Outcome::Waiting,
            (actions, next) => {
                tracing::debug!(?actions, ?next, "plan");
                Outcome::Applied
            }
        };
        let applying = Applying {
            key,
            incarnation: &incarnation,
            answers: &answers,
        };
        self.announce_questions(&applying, &plan)?;
        let applied = self.apply_all(&applying, &plan).await;
        self.questions.applied(key);
        applied?;
        Ok(Done {
            outcome,
            next: plan.next,
        })
    }

    async fn apply_all(&self, applying: &Applying<'_, C>, plan: &PlanOf<C>) -> Result<(), Failure> {
        for action in &plan.actions {
            let applied = self.gate.while_open(self.apply(applying, action));
            let applied = applied.await;
            applied.unwrap_or_else(|not_leader| Err(Failure::of_controller(&not_leader)))?;
        }
        Ok(())
    }

    /// What the plan is about to ask is known to be ours before the first record of it can be written.
    fn announce_questions(
        &self,
        applying: &Applying<'_, C>,
        plan: &PlanOf<C>,
    ) -> Result<(), Failure> {
        for action in &plan.actions {
            if let Action::Ask(question) = action {
                let incarnation = self.incarnation(applying, question)?;
                self.questions
                    .plan(applying.key, incarnation, &question.id());
            }
        }
        Ok(())
    }

    /// The incarnation that a question is about.
    fn incarnation<'a>(
        &self,
        applying: &Applying<'a, C>,
        question: &C::Question,
    ) -> Result<&'a Incarnation, Failure> {
        applying.incarnation.present().ok_or_else(|| {
            let controller = self.controller.name();
            Failure::of_bug(format!(
                "{controller} asks {} for {}, whose incarnation it did not observe",
                question.kind(),
                applying.key
            ))
        })
    }

    async fn apply(&self, applying: &Applying<'_, C>, action: &ActionOf<C>) -> Result<(), Failure> {
        let (key, applier) = (applying.key, &self.applier);
        let applied = match action {
            Action::Persist(status) => {
                let persisted = self.controller.persist(key, status).await;
                return persisted.map_err(|error| Failure::of_controller(&error));
            }
            Action::Call(effect) => {
                let called = self.controller.call(key, effect).await;
                return called.map_err(|error| Failure::of_controller(&error));
            }
            Action::Ask(question) => {
                let incarnation = self.incarnation(applying, question)?;
                self.questions
                    .ask(key, incarnation, question, applying.answers);
                return Ok(());
            }
            Action::Used(id) => {
                if let Some(incarnation) = applying.incarnation.present() {
                    self.questions.used(key, incarnation, id);
                }
                return Ok(());
            }
            Action::Announce(announcement) => {
                applier.announce(announcement, self.clock.now());
                return Ok(());
            }
            Action::Create(create) => applier.create(key, create).await,
            Action::Patch(patch) => applier.patch(key, patch).await,
            Action::Delete(delete) => applier.delete(key, delete).await,
            Action::EnsureFinalizer { target, finalizer } => {
                applier.ensure_finalizer(key, target, finalizer).await
            }
            Action::RemoveFinalizer { target, finalizer } => {
                applier.remove_finalizer(key, target, finalizer).await
            }
        };
        let incarnation = applying.incarnation;
        if let Some(change) = Change::of(action) {
            let not_done = applied.as_ref().err().map(ApplyError::not_done);
            // `Some(None)`: not made, and nobody has refused.
            if not_done != Some(None) {
                let not_done = not_done.flatten();
                self.controller
                    .changed(key, incarnation, &change, not_done.as_ref());
            }
        }
        applied.map_err(|error| {
            if error.class() == Class::Invalid {
                self.controller
                    .refused(key, incarnation, &refusal(action, &error));
            }
            if let (Action::Create(create), Some(why)) = (action, error.postponed()) {
                self.controller.postponed(key, incarnation, create, &why);
            }
            Failure::of_kit(&error)
        })
    }
}

/// What the controller gets about an action that the API server refused.
fn refusal<S, E, Q>(action: &Action<S, E, Q>, error: &ApplyError) -> Refusal {
    let create = if let Action::Create(create) = action {
        Some(create.clone())
    } else {
        None
    };
    let patch = if let Action::Patch(patch) = action {
        Some(patch.clone())
    } else {
        None
    };
    Refusal {
        create,
        patch,
        ..error.refusal()
    }
}

impl Failure {
    fn of_controller<E: Error + Classify>(error: &E) -> Self {
        Self {
            class: error.class(),
            retry_after: None,
            report: chain(error),
        }
    }

    fn of_kit(error: &ApplyError) -> Self {
        Self {
            class: error.class(),
            retry_after: error.retry_after(),
            report: chain(error),
        }
    }

    /// A round that panicked, or whose plan is not one.
    pub(crate) fn of_bug(report: String) -> Self {
        Self {
            class: Class::Bug,
            retry_after: None,
            report,
        }
    }
}

/// Counts the round when it goes, however it goes.
struct Guard {
    counters: Arc<Counters>,
    metrics: ControllerMetrics,
    started_at: Instant,
    outcome: Outcome,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.outcome = Outcome::Failed;
        }
        self.counters.record(self.outcome);
        self.metrics.round(self.outcome, self.started_at.elapsed());
    }
}
