//! A task whose outputs are cached: the cache is asked before the launch, and told of the end (task action spec §7).
//!
//! The kit asks: a round asks one question at a time, and the next round has the answer. The reservation is asked for
//! before anything is created, and what is cached is looked up again afterwards: its owner before may have filled
//! the cache meanwhile. The reservation is extended until the end of the action, over all of its attempts, and given up
//! before that end is on record: a crash in between comes again here, and gives it up again.

mod reservation;

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use longshore_core::{Action as Do, Asked, Next, Plan, Question as _, Seen, UnknownCause};
use longshore_plugins::{K8sState, PhaseInfo, TaskContext};

use self::reservation::{Held, fresh, keeps, last_claim, left, reserve};
use super::{
    ActionPlan, LOOK_AGAIN, Round, Step, attempt,
    publish::{self, Published},
};
use crate::{
    catalog::{
        Cache, Cached, CatalogCacheStatus, Hit, Unkeyed,
        decide::{self as catalog, Before, Claim, Facts, Wait},
        metadata,
    },
    model::Task,
    questions::TaskQuestion,
};

/// An attempt whose outputs may be cached, whatever runs it.
pub(super) trait Attempt {
    /// What is known of it.
    fn context(&self) -> &TaskContext;

    /// What is known of its cache.
    fn cache(&self) -> &Cache;

    /// Whether something of it may exist.
    fn is_launched(&self, round: &Round<'_>) -> bool;

    /// Whether its next step needs its inputs.
    fn needs_inputs(&self, round: &Round<'_>) -> bool;

    /// What has ended, and may have left something behind: see [`TaskQuestion::Outcome`].
    fn ended(&self, round: &Round<'_>) -> Option<String>;

    /// What [`TaskQuestion::Connector`] is about that waits for its turn.
    fn announced(&self) -> Option<String> {
        None
    }

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

    fn cache(&self) -> &Cache {
        &self.cache
    }

    fn is_launched(&self, round: &Round<'_>) -> bool {
        !self.is_not_started() || !round.action.children.current.is_absent()
    }

    fn needs_inputs(&self, round: &Round<'_>) -> bool {
        !self.is_launched(round)
    }

    fn ended(&self, round: &Round<'_>) -> Option<String> {
        let child = round.action.children.current.present();
        self.owed.and(child?.target.uid.clone())
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

/// For so many times `requeue` it counts that nothing was cached.
const REQUEUES: u32 = 6;

/// Decides upon an attempt whose action has its finalizer.
pub(super) fn decide(round: &Round<'_>, task: &impl Attempt) -> ActionPlan {
    let is_launched = task.is_launched(round);
    let cached = match task.cache() {
        Cache::None => return task.go_on(round),
        Cache::Unkeyed(unkeyed) if is_launched => {
            let mut plan = task.go_on(round);
            let is_asked = plan.actions.iter().any(is_ask_key);
            if is_due(round, &unkeyed.key) && !is_asked && !is_end(&plan) {
                plan.actions.push(ask_key(unkeyed));
            }
            return plan;
        }
        Cache::Unkeyed(unkeyed) => return wait_for_key(round, task, unkeyed),
        Cache::Keyed(cached) => &**cached,
    };
    let claim = fresh(round, cached, is_launched);
    let outputs = if is_launched {
        Seen::Absent
    } else {
        match look_up(round, cached, claim.as_ref()) {
            Ok(outputs) => outputs,
            Err(plan) => return plan,
        }
    };
    let facts = Facts {
        is_launched,
        is_serializable: cached.entry.is_serializable,
        owner: &cached.entry.owner,
        outputs: &outputs,
        is_look_up_given_up: cached.is_look_up_given_up,
        claim: claim.as_ref().map(|held| &held.claim),
        is_reservation_given_up: cached.is_reservation_given_up,
    };
    match catalog::before(&facts) {
        Before::Copy(outputs) => copy(round, task, cached, outputs),
        Before::Wait(wait) => {
            let next = claim.as_ref().map(|held| left(round, held, is_launched));
            waiting(round, task, &wait, next.unwrap_or(round.policy.requeue))
        }
        Before::Reserve if !is_launched => {
            // Others may fill the cache before they give the reservation up.
            let is_outdated = outputs.is_absent() && !keeps(round, cached);
            let used = is_outdated.then(|| Do::Used(look_up_of(cached).id()));
            Plan::of(used.into_iter().chain([reserve(round, cached)]).collect())
        }
        Before::Run if !is_launched => {
            let plan = held(round, task, task.go_on(round));
            match without_cache(cached, &outputs, facts.claim) {
                Some(why) => say_why(round, plan, why),
                None => plan,
            }
        }
        Before::Reserve | Before::Run => held(round, task, task.go_on(round)),
    }
}

/// Why an attempt begins that might have waited for its cache; `None` where its cache has nothing for it.
fn without_cache(cached: &Cached, outputs: &Seen<Bytes>, claim: Option<&Claim>) -> Option<String> {
    let of_outputs = match (outputs, &cached.read) {
        (Seen::Unknown(why), _) => Some(format!("what is cached cannot be had: {why}")),
        (
            Seen::Absent,
            Asked::Answered {
                answer: Err(why), ..
            },
        ) => Some(format!("what is cached cannot be used: {why}")),
        (Seen::Absent | Seen::Present(_), _) => None,
    };
    let of_claim = match claim {
        Some(Claim::Failed(why)) => Some(format!("others may run at the same time: {why}")),
        Some(Claim::HeldBy { .. }) | None => None,
    };
    let whys: Vec<String> = of_outputs.into_iter().chain(of_claim).collect();
    (!whys.is_empty()).then(|| format!("the task runs without its cache; {}", whys.join("; ")))
}

/// The same plan, with an Event once something of the attempt exists.
fn say_why(round: &Round<'_>, mut plan: ActionPlan, why: String) -> ActionPlan {
    let begins = |step: &Step| {
        matches!(step, Do::Create(_)) || matches!(step, Do::Persist(record) if record.is_remote)
    };
    if let Some(at) = plan.actions.iter().position(begins) {
        let reason = longshore_api::flyte::REASON_RUNS_WITHOUT_CACHE;
        plan.actions.insert(at + 1, round.warn(reason, why));
    }
    plan
}

/// Whether nothing that is known of its cache keeps an attempt from beginning.
pub(crate) fn may_begin(cache: &Cache) -> bool {
    let cached = match cache {
        Cache::None => return true,
        Cache::Unkeyed(_) => return false,
        Cache::Keyed(cached) => cached,
    };
    let unknown = |message| Seen::unknown(UnknownCause::Unreachable, message);
    let outputs: Seen<Bytes> = match (&cached.found, &cached.read) {
        (Asked::Answered { answer: None, .. }, _) => Seen::Absent,
        (Asked::Failed { message, .. }, _) => unknown(message),
        (
            Asked::Answered {
                answer: Some(_), ..
            },
            read,
        ) => match read {
            Asked::Answered { answer: Err(_), .. } => Seen::Absent,
            Asked::Failed { message, .. } => unknown(message),
            Asked::Answered { .. }
            | Asked::NotAsked
            | Asked::UnderWay { .. }
            | Asked::AskedByAnother => return false,
        },
        (Asked::NotAsked | Asked::UnderWay { .. } | Asked::AskedByAnother, _) => return false,
    };
    let claim = last_claim(cached);
    let facts = Facts {
        is_launched: false,
        is_serializable: cached.entry.is_serializable,
        owner: &cached.entry.owner,
        outputs: &outputs,
        is_look_up_given_up: cached.is_look_up_given_up,
        claim: claim.as_ref().map(|held| &held.claim),
        is_reservation_given_up: cached.is_reservation_given_up,
    };
    catalog::before(&facts) == Before::Run
}

/// The same plan, and the reservation of the task stays held, unless the attempt ends.
pub(super) fn held(round: &Round<'_>, task: &impl Attempt, mut plan: ActionPlan) -> ActionPlan {
    let Cache::Keyed(cached) = task.cache() else {
        return plan;
    };
    let is_released = !matches!(cached.released, Asked::NotAsked);
    if !cached.entry.is_serializable || is_released || is_end(&plan) {
        return plan;
    }
    let is_under_way = matches!(cached.reserved, Asked::UnderWay { .. });
    let is_launched = task.is_launched(round);
    let left = match fresh(round, cached, is_launched) {
        Some(held) => left(round, &held, is_launched),
        None if is_under_way => return plan,
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
    let cache = match task.cache() {
        Cache::None => Ok(CatalogCacheStatus::CacheDisabled),
        Cache::Unkeyed(unkeyed) => match unkeyed.key {
            Asked::NotAsked | Asked::AskedByAnother => Err(Plan::of(vec![ask_key(unkeyed)])),
            Asked::UnderWay { .. } => Err(Plan::await_change()),
            Asked::Answered { .. } | Asked::Failed { .. } => {
                Ok(CatalogCacheStatus::CachePutFailure)
            }
        },
        Cache::Keyed(cached) => keep(round, task, cached),
    };
    match cache {
        Ok(cache) => task.publish_success(round, cache),
        Err(plan) => plan,
    }
}

/// Caches the outputs of an attempt: what became of them, or the plan that leads there.
fn keep(
    round: &Round<'_>,
    task: &impl Attempt,
    cached: &Cached,
) -> Result<CatalogCacheStatus, ActionPlan> {
    let entry = || cached.entry.clone();
    match &cached.exists {
        Asked::NotAsked | Asked::AskedByAnother => {
            return Err(ask(TaskQuestion::Exists { entry: entry() }));
        }
        Asked::UnderWay { .. } => return Err(Plan::await_change()),
        Asked::Answered { answer: false, .. } | Asked::Failed { .. } => {
            return Ok(CatalogCacheStatus::CachePutFailure);
        }
        Asked::Answered { answer: true, .. } => {}
    }
    match &cached.put {
        Asked::NotAsked | Asked::AskedByAnother => {
            let metadata = Box::new(metadata(task.context(), round.exactly));
            let entry = entry();
            Err(ask(TaskQuestion::Put { entry, metadata }))
        }
        Asked::UnderWay { .. } => Err(Plan::await_change()),
        Asked::Answered { answer, .. } => Ok(*answer),
        Asked::Failed { .. } => Ok(CatalogCacheStatus::CachePutFailure),
    }
}

/// What has to be done before the end of an attempt is told: its reservation is given up, unless it is known to be
/// another action's. `None` where nothing is left to be done. Whatever fails of it, the reservation ends by itself.
pub(super) fn before_end(task: &impl Attempt) -> Option<ActionPlan> {
    let cached = match task.cache() {
        Cache::None => return None,
        Cache::Unkeyed(unkeyed) => {
            return match unkeyed.key {
                Asked::NotAsked | Asked::AskedByAnother if unkeyed.is_serializable => {
                    Some(Plan::of(vec![ask_key(unkeyed)]))
                }
                Asked::UnderWay { .. } if unkeyed.is_serializable => Some(Plan::await_change()),
                Asked::NotAsked
                | Asked::AskedByAnother
                | Asked::UnderWay { .. }
                | Asked::Answered { .. }
                | Asked::Failed { .. } => None,
            };
        }
        Cache::Keyed(cached) => cached,
    };
    if !cached.entry.is_serializable {
        return None;
    }
    match (&cached.released, &cached.reserved) {
        (Asked::Answered { .. } | Asked::Failed { .. }, _) => None,
        // Or it would be taken again after it was given up.
        (_, Asked::UnderWay { .. }) | (Asked::UnderWay { .. }, _) => Some(Plan::await_change()),
        (Asked::NotAsked | Asked::AskedByAnother, _) => {
            let claim = last_claim(cached).map(|held| held.claim);
            let is_theirs =
                matches!(claim, Some(Claim::HeldBy { owner, .. }) if owner != cached.entry.owner);
            (!is_theirs).then(|| {
                let entry = cached.entry.clone();
                ask(TaskQuestion::Release { entry })
            })
        }
    }
}

/// Whether a plan gives the reservation up.
fn gives_up(plan: &ActionPlan) -> bool {
    plan.actions.iter().any(is_release)
}

/// The outputs that are cached, for an attempt that is to be launched; or the plan that leads there. `claim` is what came
/// of the reservation a short while ago.
fn look_up(
    round: &Round<'_>,
    cached: &Cached,
    claim: Option<&Held>,
) -> Result<Seen<Bytes>, ActionPlan> {
    // What is looked up meanwhile would say nothing about what its owner has left.
    if cached.entry.is_serializable && matches!(cached.reserved, Asked::UnderWay { .. }) {
        return Err(Plan::await_change());
    }
    let again = || Err(Plan::of(vec![Do::Ask(look_up_of(cached))]));
    // What is given up is asked once more before each request for the reservation, and not after it: or neither would
    // ever be recent where both take long.
    let is_past = |at: Timestamp| {
        let is_reserved_since = claim.is_some_and(|held| held.at >= at);
        is_old(round, at) && !(cached.is_look_up_given_up && is_reserved_since)
    };
    let unknown = |message: &str| Ok(Seen::unknown(UnknownCause::Unreachable, message));
    let (found_at, hit) = match &cached.found {
        Asked::NotAsked | Asked::AskedByAnother => return again(),
        Asked::UnderWay { .. } => return Err(Plan::await_change()),
        Asked::Failed { at, .. } if is_past(*at) => return again(),
        Asked::Answered { at, answer: None } if is_outdated(round, cached, *at) => return again(),
        Asked::Failed { message, .. } => return unknown(message),
        Asked::Answered { answer: None, .. } => return Ok(Seen::Absent),
        Asked::Answered {
            at,
            answer: Some(hit),
        } => (at, hit),
    };
    let url = match hit {
        Hit::Literals(outputs) => return Ok(Seen::Present(outputs.clone())),
        Hit::File(url) => url.clone(),
    };
    match &cached.read {
        Asked::UnderWay { .. } => Err(Plan::await_change()),
        Asked::Answered { at, answer } if at >= found_at => match answer {
            Ok(outputs) => Ok(Seen::Present(outputs.clone())),
            Err(_) if is_outdated(round, cached, *found_at) => again(),
            Err(_) => Ok(Seen::Absent),
        },
        Asked::Failed { at, .. } if at >= found_at && is_past(*at) => again(),
        Asked::Failed { at, message, .. } if at >= found_at => unknown(message),
        Asked::NotAsked | Asked::AskedByAnother | Asked::Answered { .. } | Asked::Failed { .. } => {
            Err(ask(TaskQuestion::Cached { url }))
        }
    }
}

/// Copies cached outputs to where those of the attempt belong; then it has succeeded.
fn copy(round: &Round<'_>, task: &impl Attempt, cached: &Cached, outputs: Bytes) -> ActionPlan {
    let copy = || {
        let entry = cached.entry.clone();
        Do::Ask(TaskQuestion::Copy { entry, outputs })
    };
    match &cached.copied {
        Asked::Answered { .. } => hit(round, task),
        Asked::UnderWay { .. } => Plan::await_change(),
        Asked::NotAsked | Asked::AskedByAnother => Plan::of(vec![copy()]),
        Asked::Failed { message, .. } => {
            let reason = longshore_api::flyte::REASON_OUTPUTS_NOT_COPIED;
            Plan::of(vec![round.warn(reason, message.clone()), copy()])
        }
    }
}

/// The attempt has succeeded with the outputs of another action.
fn hit(round: &Round<'_>, task: &impl Attempt) -> ActionPlan {
    let info = catalog::hit(round.now);
    let published = task.publish_unlaunched(round, info, CatalogCacheStatus::CacheHit);
    if !is_end(&published) || gives_up(&published) {
        return published;
    }
    let mut actions = attempt::let_go_of_earlier(round);
    actions.extend(published.actions);
    Plan {
        actions,
        next: published.next,
    }
}

fn wait_for_key(round: &Round<'_>, task: &impl Attempt, unkeyed: &Unkeyed) -> ActionPlan {
    match &unkeyed.key {
        Asked::UnderWay { .. } => Plan::await_change(),
        Asked::Failed { message, .. } => {
            let wait = Wait::ForCache(format!("its inputs cannot be read: {message}"));
            let mut plan = waiting(round, task, &wait, round.policy.requeue);
            if is_due(round, &unkeyed.key) {
                plan.actions.push(ask_key(unkeyed));
            }
            plan
        }
        Asked::NotAsked | Asked::AskedByAnother | Asked::Answered { .. } => {
            Plan::of(vec![ask_key(unkeyed)])
        }
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

/// Whether a failure is so old that the question is asked again.
fn is_old(round: &Round<'_>, at: Timestamp) -> bool {
    round.since(at) >= round.policy.requeue.max(LOOK_AGAIN)
}

/// Whether others may have filled the cache since it was looked up. No action does while the reservation is held; it is
/// looked up again after each reservation. Otherwise, an attempt that waits long enough for something else looks again.
fn is_outdated(round: &Round<'_>, cached: &Cached, found_at: Timestamp) -> bool {
    let keeps = round.policy.requeue.max(LOOK_AGAIN) * REQUEUES;
    !cached.entry.is_serializable && round.since(found_at) >= keeps
}

/// Whether a question is to be asked, for the first time or once more.
fn is_due<T>(round: &Round<'_>, asked: &Asked<T>) -> bool {
    match asked {
        Asked::NotAsked | Asked::AskedByAnother => true,
        Asked::Failed { at, .. } => is_old(round, *at),
        Asked::UnderWay { .. } | Asked::Answered { .. } => false,
    }
}

fn ask(question: TaskQuestion) -> ActionPlan {
    Plan::of(vec![Do::Ask(question)])
}

fn ask_key(unkeyed: &Unkeyed) -> Step {
    let url = unkeyed.url.clone();
    Do::Ask(TaskQuestion::Key { url })
}

fn is_ask_key(step: &Step) -> bool {
    matches!(step, Do::Ask(TaskQuestion::Key { .. }))
}

fn look_up_of(cached: &Cached) -> TaskQuestion {
    let entry = cached.entry.clone();
    TaskQuestion::LookUp { entry }
}

/// Whether a plan ends the attempt for good, or begins to.
fn is_end(plan: &ActionPlan) -> bool {
    plan.actions.iter().any(|step| match step {
        Do::Persist(record) => record.status.is_terminal(),
        Do::RemoveFinalizer { target, .. } => target.resource == longshore_plugins::TASK_ACTION,
        Do::Ask(_) => is_release(step),
        Do::EnsureFinalizer { .. }
        | Do::Create(_)
        | Do::Patch(_)
        | Do::Delete(_)
        | Do::Call(_)
        | Do::Used(_)
        | Do::Announce(_) => false,
    })
}

fn is_release(step: &Step) -> bool {
    matches!(step, Do::Ask(TaskQuestion::Release { .. }))
}
