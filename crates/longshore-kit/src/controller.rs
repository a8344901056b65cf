//! The contract between a subsystem and the kit: observe, decide, and what is the subsystem's own of apply.

use std::{
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    time::Duration,
};

use jiff::Timestamp;
use longshore_core::{AskError, Classify, Create, Incarnation, NoAnswer, Plan, Question, Seen};

use crate::{
    apply::{Postponed, Refusal},
    ask::Answers,
    change::{Change, NotDone},
};

/// What a controller works on, one at a time: usually an object's name, for dags a run or a task instance.
pub trait Key: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static {}
impl<T: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static> Key for T {}

/// One subsystem's loop over one kind of key.
///
/// *Flow*: the runner takes a due key, calls [`observe`](Self::observe), hands what was seen to the pure
/// [`decide`](Self::decide) and applies the plan's actions in order. The Kubernetes actions are the kit's own; the two
/// that differ by subsystem are [`persist`](Self::persist) and [`call`](Self::call). What a plan asks foreign systems is
/// sent beside the rounds, by [`ask`](Self::ask); see [`ask`](crate::ask).
///
/// *Guarantees*: one key is never worked on twice at once; a round of a key does not start before the caches have seen
/// the last write of its earlier rounds; the first failure ends the round, and the key comes back after a back-off by
/// the error's class.
///
/// *Assumptions*: every effect is idempotent, because a crash can come between any two.
pub trait Controller: Send + Sync + 'static {
    /// What it works on.
    type Key: Key;
    /// A snapshot of all reads of one round, `now` included.
    type Observed: Send + Sync;
    /// What [`Action::Persist`](longshore_core::Action::Persist) records.
    type Status: Debug + Send + Sync;
    /// Its own effects; [`Never`](longshore_core::Never) where it has none.
    type Effect: Debug + Send + Sync;
    /// Its questions to foreign systems; [`Never`](longshore_core::Never) where it asks none.
    type Question: Question;
    /// What its own async functions can fail with.
    type Error: std::error::Error + Classify + Send + Sync + 'static;

    /// Its name in logs and metrics, as `dags.pods`.
    fn name(&self) -> &'static str;

    /// By how much a key that is triggered now, or whose last plan goes on at once, goes before those that wait: where a first
    /// step matters more than the next one of others. Those that have waited for longer than this still come first, so that no key starves.
    fn priority_boost(&self, key: &Self::Key) -> Duration {
        let _ = key;
        Duration::ZERO
    }

    /// The group of a key, as its namespace. Groups with due keys take turns, so that the load of one does not delay the
    /// others; boosts count within a group. Always the same for the same key. By default all keys are of one group.
    fn group<'a>(&self, key: &'a Self::Key) -> &'a str {
        let _ = key;
        ""
    }

    /// Reads, and nothing else. `answers` is what foreign systems have answered.
    fn observe(
        &self,
        key: &Self::Key,
        now: Timestamp,
        answers: &Answers<Self::Question>,
    ) -> impl Future<Output = Result<Self::Observed, Self::Error>> + Send;

    /// Changes metrics only, such as a [`Tally`](crate::Tally) of keys by phase. Called once in each round.
    fn measure(&self, key: &Self::Key, observed: &Self::Observed) {
        let _ = (key, observed);
    }

    /// Which incarnation of the key was observed, `Absent` where the key is gone: then all that was asked about it and
    /// all that is [remembered](crate::memory) of it is dropped. Pure. A controller that asks or remembers has to say it;
    /// where it is not `Present`, a plan must not ask.
    fn incarnation(&self, observed: &Self::Observed) -> Seen<Incarnation> {
        let _ = observed;
        Seen::Absent
    }

    /// Decides. Pure: equal inputs give equal plans.
    ///
    /// Where a read is `Unknown`, the plan is empty and asks for `Next::After`: no event of the key tells that it can be
    /// seen again.
    fn decide(&self, observed: &Self::Observed)
    -> Plan<Self::Status, Self::Effect, Self::Question>;

    /// Records `status` durably. When it returns, the record survives any crash.
    fn persist(
        &self,
        key: &Self::Key,
        status: &Self::Status,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Does one effect of its own.
    fn call(
        &self,
        key: &Self::Key,
        effect: &Self::Effect,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Sends one question of a plan and returns the answer. Runs beside the rounds, within the time limit of the
    /// question's kind, and is dropped at its next await when the time is over, the key is gone, the lease is lost or
    /// the process ends.
    ///
    /// *Assumptions*: it reads at most `answer_bytes` of the answer and follows no endless redirects; it spawns no task
    /// that outlives it, because the gate could not stop that.
    ///
    /// # Errors
    /// Why there is no answer, which the next round observes.
    fn ask(
        &self,
        key: &Self::Key,
        question: &Self::Question,
        answer_bytes: usize,
    ) -> impl Future<Output = Result<<Self::Question as Question>::Answer, AskError>> + Send {
        let _ = (key, answer_bytes);
        let message = format!("{} has no way to ask {}", self.name(), question.kind());
        std::future::ready(Err(AskError::new(NoAnswer::Refused, message)))
    }

    /// A Kubernetes action was refused for good (400, 403, 404, 405, 413, 422, or a foreign object of the same name:
    /// class `Invalid`). What is noted here is a fact of the next round, which comes after 100 ms. `incarnation` is what
    /// that of the round was. The default leaves it to the log and the back-off.
    fn refused(&self, key: &Self::Key, incarnation: &Seen<Incarnation>, refusal: &Refusal) {
        let _ = (key, incarnation, refusal);
    }

    /// A create did not happen for now. What is noted here is a fact of the next round, which comes after the back-off.
    /// The default leaves it to the log.
    fn postponed(
        &self,
        key: &Self::Key,
        incarnation: &Seen<Incarnation>,
        create: &Create,
        why: &Postponed,
    ) {
        let _ = (key, incarnation, create, why);
    }

    /// A change of an object was made; or it was not made, and the round ends: `not_done` says why. What is noted here
    /// is a fact of the next round. The default leaves it to the log and the back-off.
    fn changed(
        &self,
        key: &Self::Key,
        incarnation: &Seen<Incarnation>,
        change: &Change,
        not_done: Option<&NotDone>,
    ) {
        let _ = (key, incarnation, change, not_done);
    }

    /// There was no round, because what earlier ones wrote could not be read back. The default leaves it to the log and
    /// the back-off.
    fn unsettled(&self, key: &Self::Key, not_done: &NotDone) {
        let _ = (key, not_done);
    }
}
