//! A task whose outputs are cached: the cache is asked before the launch, and told of the end (task action spec §7).
//!
//! The reservation is asked for by a round of its own, before anything is created, and looked up again with its
//! answer: who had it may have filled the cache meanwhile. It is extended until the end of the action, over all of its
//! attempts, and given up before that end is on record: a crash in between comes again here, and gives it up again.

use std::time::Duration;

use longshore_core::{Action as Do, Next, Plan, Seen};
use longshore_plugins::{K8sState, PhaseInfo, TaskContext};

use super::{
    ActionPlan, Effect, Round, Step, attempt,
    publish::{self, Published},
};
use crate::{
    catalog::{
        Cached, CatalogCacheStatus, Held, Order, Tell,
        decide::{self as catalog, Before, Claim, Facts, Wait},
        metadata,
    },
    model::Task,
};

/// An attempt whose outputs may be cached, whatever runs it.
pub(super) trait Attempt {
    /// What is known of it.
    fn context(&self) -> &TaskContext;

    /// What is known of its cache; `Absent` where its outputs are not cached.
    fn cached(&self) -> &Seen<Cached>;

    /// Whether something of it may exist.
    fn is_launched(&self, round: &Round<'_>) -> bool;

    /// What was published of it last.
    fn last(&self, round: &Round<'_>) -> K8sState;

    /// Decides upon it, its cache aside.
    fn go_on(&self, round: &Round<'_>) -> ActionPlan;

    /// Publishes what there is to say of an attempt of which nothing exists.
    fn publish_unlaunched(
        &self,
        round: &Round<'_>,
        info: PhaseInfo,
        cache: CatalogCacheStatus,
    ) -> ActionPlan;

    /// Publishes its success.
    fn publish_success(&self, round: &Round<'_>, cache: CatalogCacheStatus) -> ActionPlan;
}

impl Attempt for Task {
    fn context(&self) -> &TaskContext {
        &self.context
    }

    fn cached(&self) -> &Seen<Cached> {
        &self.cached
    }

    fn is_launched(&self, round: &Round<'_>) -> bool {
        !self.is_not_started() || !round.action.children.current.is_absent()
    }

    fn last(&self, round: &Round<'_>) -> K8sState {
        publish::stored(round, self)
    }

    fn go_on(&self, round: &Round<'_>) -> ActionPlan {
        attempt::decide(round, self)
    }

    fn publish_unlaunched(
        &self,
        round: &Round<'_>,
        info: PhaseInfo,
        cache: CatalogCacheStatus,
    ) -> ActionPlan {
        let published = Published {
            cache,
            ..Published::waiting(round, info)
        };
        publish::plan(round, self, published)
    }

    fn publish_success(&self, round: &Round<'_>, cache: CatalogCacheStatus) -> ActionPlan {
        let published = Published {
            cache,
            ..Published::started(round, self.info.clone())
        };
        publish::plan(round, self, published)
    }
}

/// Decides upon an attempt whose action has its finalizer.
pub(super) fn decide(round: &Round<'_>, task: &impl Attempt) -> ActionPlan {
    let is_launched = task.is_launched(round);
    let cached = match task.cached() {
        Seen::Absent => return task.go_on(round),
        Seen::Unknown(_) if is_launched => return task.go_on(round),
        Seen::Unknown(why) => {
            let wait = Wait::ForCache(format!("its inputs cannot be read: {why}"));
            return waiting(round, task, &wait, round.policy.requeue);
        }
        Seen::Present(cached) => cached,
    };
    let facts = Facts {
        is_launched,
        is_serializable: cached.entry.is_serializable,
        owner: &cached.entry.owner,
        outputs: &cached.outputs,
        claim: fresh(round, cached).map(|held| &held.claim),
    };
    match catalog::before(&facts) {
        Before::Copy(outputs) => hit(round, task, order(cached, Tell::Copy(outputs))),
        Before::Wait(wait) => {
            let next = fresh(round, cached).map(|held| left(round, held));
            waiting(round, task, &wait, next.unwrap_or(round.policy.requeue))
        }
        Before::Reserve if !is_launched => Plan {
            actions: vec![reserve(round, cached)],
            next: Next::After(Duration::ZERO),
        },
        Before::Reserve | Before::Run => held(round, task, task.go_on(round)),
    }
}

/// The same plan, and the reservation of the task stays held, unless the plan gives it up.
pub(super) fn held(round: &Round<'_>, task: &impl Attempt, mut plan: ActionPlan) -> ActionPlan {
    let Seen::Present(cached) = task.cached() else {
        return plan;
    };
    let ends = plan.actions.iter().any(is_release);
    if !cached.entry.is_serializable || ends {
        return plan;
    }
    let left = match fresh(round, cached) {
        Some(held) => left(round, held),
        None => {
            plan.actions.push(reserve(round, cached));
            round.policy.requeue
        }
    };
    Plan {
        next: plan.next.min(Next::After(left)),
        ..plan
    }
}

/// The success of an attempt that left everything behind that it owes: its outputs are cached first.
pub(super) fn succeed(round: &Round<'_>, task: &impl Attempt) -> ActionPlan {
    let cache = match task.cached() {
        Seen::Absent => CatalogCacheStatus::CacheDisabled,
        Seen::Unknown(_) => CatalogCacheStatus::CachePutFailure,
        Seen::Present(cached) => match cached.kept {
            Some(kept) => kept,
            None => {
                let noted = Box::new(metadata(task.context(), round.exactly));
                return Plan {
                    actions: vec![order(cached, Tell::Keep(noted))],
                    next: Next::After(Duration::ZERO),
                };
            }
        },
    };
    task.publish_success(round, cache)
}

/// Gives the reservation of a task up, unless it is known to be somebody else's.
pub(super) fn release(task: &impl Attempt) -> Option<Step> {
    let cached = task.cached().present()?;
    let claim = cached.held.as_ref().map(|held| &held.claim);
    let is_theirs =
        matches!(claim, Some(Claim::HeldBy { owner, .. }) if *owner != cached.entry.owner);
    let is_released = cached.entry.is_serializable && !is_theirs;
    is_released.then(|| order(cached, Tell::Release))
}

/// The attempt has succeeded with the outputs of somebody else.
fn hit(round: &Round<'_>, task: &impl Attempt, copy: Step) -> ActionPlan {
    let mut actions = attempt::let_go_of_earlier(round);
    actions.push(copy);
    let info = catalog::hit(round.now);
    let published = task.publish_unlaunched(round, info, CatalogCacheStatus::CacheHit);
    actions.extend(published.actions);
    Plan {
        actions,
        next: published.next,
    }
}

fn waiting(round: &Round<'_>, task: &impl Attempt, wait: &Wait, next: Duration) -> ActionPlan {
    let last = task.last(round);
    let info = catalog::waiting(wait, last.version, round.now).ordered_after(&last);
    let published = task.publish_unlaunched(round, info, catalog::status_of(wait));
    Plan {
        actions: published.actions,
        next: Next::After(next),
    }
}

/// What came of the reservation, unless it is time to ask again.
fn fresh<'a>(round: &Round<'_>, cached: &'a Cached) -> Option<&'a Held> {
    let held = cached.held.as_ref()?;
    (!left(round, held).is_zero()).then_some(held)
}

/// How long until it is time to ask for the reservation again.
fn left(round: &Round<'_>, held: &Held) -> Duration {
    let within = match held.claim {
        Claim::HeldBy { heartbeat, .. } if !heartbeat.is_zero() => {
            heartbeat.min(round.policy.requeue)
        }
        Claim::HeldBy { .. } | Claim::Failed(_) => round.policy.requeue,
    };
    let since = Duration::try_from(round.exactly.duration_since(held.at)).unwrap_or_default();
    within.saturating_sub(since)
}

fn reserve(round: &Round<'_>, cached: &Cached) -> Step {
    order(cached, Tell::Reserve(round.policy.requeue))
}

fn order(cached: &Cached, tell: Tell) -> Step {
    let entry = cached.entry.clone();
    Do::Call(Effect::Cache(Box::new(Order { entry, tell })))
}

fn is_release(step: &Step) -> bool {
    matches!(step, Do::Call(Effect::Cache(order)) if order.tell == Tell::Release)
}
