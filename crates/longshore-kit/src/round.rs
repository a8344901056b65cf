//! One round of one key: settle, observe, decide, apply.

use std::{error::Error, sync::Arc, time::Duration};

use longshore_core::{Action, Class, Classify, Next, error::chain};
use tokio::time::Instant;

use crate::{
    apply::{Applier, ApplyError, Refusal},
    clock::Clock,
    controller::Controller,
    metrics::ControllerMetrics,
    outcome::{Counters, Outcome},
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
pub(crate) struct Round<C> {
    pub(crate) controller: Arc<C>,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) metrics: ControllerMetrics,
}

impl<C> Clone for Round<C> {
    fn clone(&self) -> Self {
        Self {
            controller: Arc::clone(&self.controller),
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
        let result = self.work(&key).await;
        guard.outcome = match &result {
            Ok(done) => done.outcome,
            Err(_) => Outcome::Failed,
        };
        result
    }

    async fn work(&self, key: &C::Key) -> Result<Done, Failure> {
        let requests = self.applier.requests();
        let settled = self.applier.own_writes().settle(key, requests).await;
        settled.map_err(|error| Failure::of_kit(&error.into()))?;
        let now = self.clock.now();
        let observed = self.controller.observe(key, now).await;
        let observed = observed.map_err(|error| Failure::of_controller(&error))?;
        let plan = self.controller.decide(&observed);
        // What was observed is shared: as long as it is held, whoever changes it has to copy it.
        drop(observed);
        let outcome = match (plan.actions.as_slice(), plan.next) {
            ([], Next::AwaitChange) => Outcome::Skipped,
            ([], Next::After(_)) => Outcome::Waiting,
            (actions, next) => {
                tracing::debug!(?actions, ?next, "plan");
                Outcome::Applied
            }
        };
        for action in &plan.actions {
            self.apply(key, action).await?;
        }
        Ok(Done {
            outcome,
            next: plan.next,
        })
    }

    async fn apply(
        &self,
        key: &C::Key,
        action: &Action<C::Status, C::Effect>,
    ) -> Result<(), Failure> {
        let applier = &self.applier;
        let applied = match action {
            Action::Persist(status) => {
                let persisted = self.controller.persist(key, status).await;
                return persisted.map_err(|error| Failure::of_controller(&error));
            }
            Action::Call(effect) => {
                let called = self.controller.call(key, effect).await;
                return called.map_err(|error| Failure::of_controller(&error));
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
        applied.map_err(|error| {
            if error.class() == Class::Invalid {
                self.controller.refused(key, &refusal(action, &error));
            }
            if let (Action::Create(create), Some(why)) = (action, error.postponed()) {
                self.controller.postponed(key, create, &why);
            }
            Failure::of_kit(&error)
        })
    }
}

/// What the controller is told.
fn refusal<S, E>(action: &Action<S, E>, error: &ApplyError) -> Refusal {
    let create = if let Action::Create(create) = action {
        Some(create.clone())
    } else {
        None
    };
    Refusal {
        create,
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

    /// A round that panicked.
    pub(crate) fn of_panic(report: String) -> Self {
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
