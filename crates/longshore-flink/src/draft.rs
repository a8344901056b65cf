//! A plan under way: the status as it is to become, and the actions in their order.
//!
//! An action that follows from the status comes after its record: [`Draft::record`] writes what has changed since the last
//! one, and every action that changes something outside calls it first.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{
    Action, Announcement, Asked, EventType, Never, Next, NoAnswer, ObjectRef, Question as _,
};
use longshore_flink_core::{
    spec::Spec,
    status::{Cause, CommonStatus, ErrorType, UnreadableSpec, error_report},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    record::{FlinkPlan, OTHERS_AGAIN, Record, Trouble, announced},
    resource::FlinkResource,
    rest::{Heard, RestAnswer, RestCall, RestQuestion},
    settings::Wording,
};

/// From a failure of a question to the next time that it is asked, where the decision names no other time.
const FAILED_AGAIN: Duration = Duration::from_secs(5);

/// How much older than asked for an answer may be that is used while the question is asked again: a round may come late,
/// and an answer that no round ever uses would be asked for without end.
const LATE: Duration = Duration::from_secs(10);

/// A status.
pub(crate) trait Settle: Clone + Serialize {
    /// The error of the status.
    fn error_mut(&mut self) -> &mut Option<String>;

    /// Computes what follows from the other fields.
    fn settle(&mut self, now: Timestamp, standing: &Standing) -> Result<(), UnreadableSpec>;
}

/// The status of a kind that runs jobs.
pub(crate) trait RunsJob: Settle {
    /// The spec of the kind.
    type Spec: Spec;

    fn common(&self) -> &CommonStatus;

    fn common_mut(&mut self) -> &mut CommonStatus;
}

/// What the conditions of a resource say beside its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What the deployment of the wanted spec waits for.
    pub(crate) blocked: Option<String>,
    /// Why snapshots that are wanted cannot be triggered.
    pub(crate) snapshots: Option<String>,
    /// What the spec asks for and this operator does not do.
    pub(crate) unsupported: Option<String>,
}

/// What a question has led to so far.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// No answer yet.
    Pending,
    /// The answer, and when it came.
    Said(&'a RestAnswer, Timestamp),
    /// There is no answer.
    Failed { why: NoAnswer, message: &'a str },
}

/// What a draft is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) target: &'a ObjectRef,
    pub(crate) seen: &'a Arc<Value>,
    pub(crate) heard: &'a Heard,
    pub(crate) wording: &'a Wording,
    pub(crate) now: Timestamp,
}

impl<'a> Subject<'a> {
    pub(crate) fn of<S, T>(
        resource: &'a FlinkResource<S, T>,
        heard: &'a Heard,
        wording: &'a Wording,
        now: Timestamp,
    ) -> Self {
        Self {
            target: &resource.target,
            seen: &resource.seen,
            heard,
            wording,
            now,
        }
    }
}

/// The plan where nothing can be decided: the status says why.
pub(crate) fn told<S: Settle>(of: Subject<'_>, status: S, trouble: &Trouble) -> FlinkPlan {
    let message = trouble.to_string();
    let mut draft = Draft::new(of, status, None);
    draft.fail(trouble.kind(), trouble.reason(), &message);
    draft.look_after(OTHERS_AGAIN);
    let plan = draft.finish();
    // The status itself may be what cannot be read.
    plan.unwrap_or_else(|_| announced(of.target, &message))
}

pub(crate) struct Draft<'a, S> {
    pub(crate) of: Subject<'a>,
    pub(crate) status: S,
    pub(crate) standing: Standing,
    /// The error that is on record: an Event has told of it.
    told: Option<String>,
    /// Host and port of the JobManager; `None` where there is none to be asked.
    address: Option<String>,
    written: Value,
    actions: Vec<Action<Record, Never, RestQuestion>>,
    wanted: BTreeSet<longshore_core::QuestionId>,
    next: Next,
}

impl<S: RunsJob> Draft<'_, S> {
    pub(crate) fn common(&self) -> &CommonStatus {
        self.status.common()
    }

    /// Replaces what the kinds have in common.
    pub(crate) fn set_common(&mut self, common: CommonStatus) {
        *self.status.common_mut() = common;
    }
}

impl<'a, S: Settle> Draft<'a, S> {
    pub(crate) fn new(of: Subject<'a>, mut status: S, address: Option<String>) -> Self {
        Self {
            written: of.seen.get("status").cloned().unwrap_or_default(),
            told: status.error_mut().clone(),
            of,
            status,
            standing: Standing::default(),
            address,
            actions: Vec::new(),
            wanted: BTreeSet::new(),
            next: Next::AwaitChange,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.of.now
    }

    /// Records the status, where it differs from what is on record.
    pub(crate) fn record(&mut self) -> Result<(), Trouble> {
        self.status.settle(self.of.now, &self.standing)?;
        let status = serde_json::to_value(&self.status).unwrap_or_default();
        if status != self.written {
            self.written = status.clone();
            self.actions.push(Action::Persist(Record {
                target: self.of.target.clone(),
                seen: Arc::clone(self.of.seen),
                status,
            }));
        }
        Ok(())
    }

    /// An action that needs no record of its own.
    pub(crate) fn push(&mut self, action: Action<Record, Never, RestQuestion>) {
        self.actions.push(action);
    }

    /// An action, after the record of what leads to it.
    pub(crate) fn act(
        &mut self,
        action: Action<Record, Never, RestQuestion>,
    ) -> Result<(), Trouble> {
        self.record()?;
        self.actions.push(action);
        Ok(())
    }

    /// Looks again after this time at the latest.
    pub(crate) fn look_after(&mut self, time: Duration) {
        self.next = self.next.min(Next::After(time));
    }

    pub(crate) fn announce(
        &mut self,
        event_type: EventType,
        reason: &'static str,
        note: impl Into<String>,
    ) {
        self.actions.push(Action::Announce(Announcement {
            regarding: self.of.target.clone(),
            event_type,
            reason,
            note: note.into(),
        }));
    }

    /// The error of the status, and a Warning where the error is a new one.
    pub(crate) fn fail(&mut self, kind: ErrorType, reason: &'static str, message: &str) {
        let cause = Cause::new(kind, message);
        let Wording { limits, labels } = self.of.wording;
        let report = error_report(&cause, &[], *limits, labels);
        self.fail_as(report, reason, message);
    }

    /// The same with this text in the status.
    pub(crate) fn fail_as(&mut self, error: String, reason: &'static str, message: &str) {
        if self.told.as_ref() != Some(&error) {
            self.told = Some(error.clone());
            self.announce(EventType::Warning, reason, message);
        }
        *self.status.error_mut() = Some(error);
    }

    /// What a question has led to. It is asked where it was not, and again so long after its answer; `None`: never again.
    /// What changes something is asked after the record of the status.
    pub(crate) fn consult(
        &mut self,
        call: RestCall,
        again: Option<Duration>,
    ) -> Result<Reply<'a>, Trouble> {
        let Some(address) = self.address.clone() else {
            return Ok(Reply::Failed {
                why: NoAnswer::Unreachable,
                message: "there is no JobManager to be asked",
            });
        };
        let question = RestQuestion { address, call };
        let id = question.id();
        self.wanted.insert(id.clone());
        let (at, again, reply) = match self.of.heard.get(&id) {
            Asked::UnderWay { .. } => return Ok(Reply::Pending),
            Asked::NotAsked | Asked::AskedByAnother => {
                self.ask(question)?;
                return Ok(Reply::Pending);
            }
            Asked::Answered { at, answer } => (*at, again, Reply::Said(answer, *at)),
            Asked::Failed { at, why, message } => {
                let again = again.unwrap_or(FAILED_AGAIN);
                let why = *why;
                (*at, Some(again), Reply::Failed { why, message })
            }
        };
        let Some(again) = again else {
            return Ok(reply);
        };
        if let Some(left) = self.left(at, again) {
            self.look_after(left);
            return Ok(reply);
        }
        self.ask(question)?;
        let is_late = self.left(at, again.saturating_add(LATE)).is_none();
        Ok(if is_late { Reply::Pending } else { reply })
    }

    fn ask(&mut self, question: RestQuestion) -> Result<(), Trouble> {
        if question.call.is_effect() {
            self.record()?;
        }
        self.actions.push(Action::Ask(question));
        Ok(())
    }

    /// What is left of a time that began at an instant; `None` where it is over.
    pub(crate) fn left(&self, since: Timestamp, time: Duration) -> Option<Duration> {
        let passed = self.of.now.duration_since(since);
        let passed = Duration::try_from(passed).unwrap_or_default();
        time.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// The time until an instant; zero where it is over.
    pub(crate) fn until(&self, at: Timestamp) -> Duration {
        let left = at.duration_since(self.of.now);
        Duration::try_from(left).unwrap_or_default()
    }

    /// The plan. Answers that no decision wants any more are used up.
    pub(crate) fn finish(mut self) -> Result<FlinkPlan, Trouble> {
        self.record()?;
        let spent = self.of.heard.over().filter(|id| !self.wanted.contains(*id));
        let spent: Vec<_> = spent.cloned().map(Action::Used).collect();
        self.actions.extend(spent);
        Ok(FlinkPlan {
            actions: self.actions,
            next: self.next,
        })
    }
}
