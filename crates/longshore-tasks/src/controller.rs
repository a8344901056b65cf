//! The executor on the kit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use longshore_api::flyte::{CONDITION_WAITING, REASON_REFUSED, REASON_STATUS_WRITTEN};
use longshore_core::{
    Announcement, AskError, Class, Classify, Create, EventType, Incarnation, Patch, PatchKind,
    Seen, Unknown,
};
use longshore_kit::{
    Answers, Applier, ApplyError, Change, Clock, Controller, NotDone, Notes, Postponed, RawObject,
    Refusal,
};
use longshore_plugins::TASK_ACTION;
use tokio::time::Instant;

use crate::{
    ask::Transport,
    config::Policy,
    decide::{ActionPlan, Observed, Record, decide, undone},
    facts::Facts,
    measures::ActionMeasures,
    model::{AbortRefused, Action, ActionKey, CreateFailure, Fact, Note, SlotChange},
    observe::{Observer, Unreadable},
    questions::{TaskAnswer, TaskQuestion},
    status,
};

/// By how much a new action goes before those that run.
const HEAD_START: Duration = Duration::from_secs(5);

/// Runs TaskActions.
#[derive(Debug)]
pub(crate) struct Actions {
    pub(crate) observer: Observer,
    pub(crate) policy: Policy,
    pub(crate) applier: Applier,
    pub(crate) transport: Transport,
    pub(crate) facts: Notes<ActionKey, Facts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) measures: ActionMeasures,
    /// Whether the jobs that ran before this process have their slots.
    pub(crate) are_jobs_counted: AtomicBool,
}

/// Why a round about an action failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The status was not written.
    #[error("the status of TaskAction {key} is not written")]
    Status {
        /// The action.
        key: ActionKey,
        /// Why.
        source: ApplyError,
    },
    /// The status cannot be written.
    #[error("the status of TaskAction {key} is no JSON")]
    Json {
        /// The action.
        key: ActionKey,
        /// Why.
        source: serde_json::Error,
    },
    /// The jobs that run cannot be counted yet.
    #[error("how many jobs run is not known: {0:?}")]
    Jobs(Unknown),
}

impl Classify for ActionError {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable(error) => error.class(),
            Self::Status { source, .. } => source.class(),
            Self::Json { .. } => Class::Bug,
            Self::Jobs(_) => Class::Retry,
        }
    }
}

impl Actions {
    /// Remembers why a create failed.
    fn note(
        &self,
        key: &ActionKey,
        incarnation: &Seen<Incarnation>,
        create: &Create,
        kind: CreateFailure,
    ) {
        if let Seen::Present(incarnation) = incarnation {
            let (launch, now) = (create.identity.value(), self.clock.now());
            self.facts.note(key, incarnation, |facts| {
                facts.note_blocked(launch, kind, now);
            });
        }
    }

    /// Remembers why the API server refused what an abort does. A test in a JSON patch that does not hold is no refusal.
    fn note_refused_abort(
        &self,
        key: &ActionKey,
        incarnation: &Seen<Incarnation>,
        patch: &Patch,
        refusal: &Refusal,
    ) {
        let is_of_abort = patch.target.resource != TASK_ACTION;
        let may_be_a_test = patch.kind == PatchKind::Json && refusal.code == Some(422);
        let (Seen::Present(incarnation), Some(uid)) = (incarnation, &patch.target.uid) else {
            return;
        };
        if is_of_abort && !may_be_a_test {
            let refused = AbortRefused {
                uid: uid.clone(),
                at: self.clock.now(),
                message: refusal.message.clone(),
            };
            self.facts.note(key, incarnation, |facts| {
                facts.abort_refused = Some(refused);
            });
        }
    }
}

impl Actions {
    /// Says in an Event what holds an action, if the action says that it is time. For what no round can say.
    fn announce(
        &self,
        key: &ActionKey,
        note: String,
        now: Timestamp,
        is_time: impl FnOnce(&Action) -> bool,
    ) {
        let object = self.observer.actions.get(&key.namespace, &key.name);
        let object = object.present().and_then(|object| object.to_value().ok());
        let action = object.and_then(|object| Action::of(object).ok());
        let Some(action) = action.filter(is_time) else {
            return;
        };
        let announcement = Announcement {
            regarding: action.target,
            event_type: EventType::Warning,
            reason: REASON_REFUSED,
            note,
        };
        self.applier.announce(&announcement, now);
    }

    /// Has the jobs of all actions that run take their slots, before the first action requests one.
    fn count_jobs(&self) -> Result<(), Unknown> {
        if self.are_jobs_counted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let jobs = match self.observer.running_jobs() {
            Seen::Present(jobs) => jobs,
            Seen::Absent => Vec::new(),
            Seen::Unknown(why) => return Err(why),
        };
        for (key, incarnation, scope) in jobs {
            self.note_slot(&key, &incarnation, &SlotChange::Take(scope));
            // The action may have ended meanwhile: its round frees the slot.
            self.observer.slots.wake(key);
        }
        self.are_jobs_counted.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn note_slot(&self, key: &ActionKey, incarnation: &Incarnation, change: &SlotChange) {
        let slots = &self.observer.slots;
        self.facts
            .note(key, incarnation, |facts| match (change, &facts.slot) {
                (SlotChange::Release, _) => facts.slot = None,
                (SlotChange::Take(scope), None) => facts.slot = Some(slots.take(scope)),
                (SlotChange::Request(scope), None) => {
                    facts.slot = Some(slots.request(key, scope));
                }
                (SlotChange::Take(_) | SlotChange::Request(_), Some(_)) => {}
            });
    }
}

impl Controller for Actions {
    type Key = ActionKey;
    type Observed = Observed;
    type Status = Record;
    type Effect = Note;
    type Question = TaskQuestion;
    type Error = ActionError;

    fn name(&self) -> &'static str {
        "tasks.actions"
    }

    /// What has not begun begins before what runs is followed: a resource works while we write. An action begins in more
    /// than one round, and has them all while it is young.
    fn priority_boost(&self, key: &ActionKey) -> Duration {
        let action = self.observer.actions.get(&key.namespace, &key.name);
        let is_young = |action: &RawObject| {
            let created_at = action.creation_timestamp().map(|at| at.0);
            created_at.is_some_and(|at| self.clock.now() < at + HEAD_START)
        };
        let is_new = |action: &Arc<RawObject>| action.finalizers().is_empty() || is_young(action);
        if action.present().is_some_and(is_new) {
            HEAD_START
        } else {
            Duration::ZERO
        }
    }

    async fn observe(
        &self,
        key: &ActionKey,
        now: Timestamp,
        answers: &Answers<TaskQuestion>,
    ) -> Result<Observed, ActionError> {
        Ok(self.observer.observe(key, now, answers).await?)
    }

    fn measure(&self, key: &ActionKey, observed: &Observed) {
        match &observed.action {
            Seen::Present(action) => self.measures.count(key, Some(&action.status)),
            Seen::Absent => self.measures.count(key, None),
            Seen::Unknown(_) => {}
        }
    }

    /// Nothing is asked about an action that has ended, or was let go, and nothing remembered but what its abort needs.
    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        match &observed.action {
            Seen::Present(action) => {
                let is_let_go = action.is_deleting && !action.has_finalizer;
                let has_ended = action.status.is_terminal() && action.children.abort.is_none();
                if has_ended || is_let_go {
                    Seen::Absent
                } else {
                    Seen::Present(action.incarnation())
                }
            }
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }

    fn decide(&self, observed: &Observed) -> ActionPlan {
        decide(&self.policy, &self.observer.config.k8s, observed)
    }

    async fn persist(&self, key: &ActionKey, record: &Record) -> Result<(), ActionError> {
        let Record {
            target,
            seen,
            status,
            is_remote,
        } = record;
        let wire = status::to_wire(&seen["status"], status);
        let wire = wire.map_err(|source| ActionError::Json {
            key: key.clone(),
            source,
        })?;
        let incarnation = Incarnation::of(target.uid.clone().unwrap_or_default());
        if *is_remote {
            self.facts.note(key, &incarnation, |facts| {
                facts.own_states.writes(&status.plugin_state);
            });
        }
        // Nothing is written out again only to be measured.
        let cached = self.observer.actions.get(&key.namespace, &key.name);
        let size = cached.present().map(|object| object.size());
        let asked_at = Instant::now();
        let written = self.applier.write_status(key, target, seen, &wire).await;
        let (took, is_written) = (asked_at.elapsed(), written.is_ok());
        self.measures.status_written(took, is_written, size);
        if let Err(error) = &written {
            let now = self.clock.now();
            self.facts.note(key, &incarnation, |facts| {
                if error.is_too_large() {
                    facts.form = facts.form.after_refusal();
                } else if let Some(not_done) = error.not_done() {
                    facts.undone.note_status(Some(not_done), now);
                }
            });
        }
        written.map_err(|source| ActionError::Status {
            key: key.clone(),
            source,
        })?;
        if status.is_terminal() {
            self.facts.forget(key, &incarnation);
        } else {
            let now = self.clock.now();
            let says = status.condition(CONDITION_WAITING).is_some();
            let was_told = self.facts.note(key, &incarnation, |facts| {
                let was_told = facts.undone.told_at.is_some();
                facts.drop_published(status);
                facts.form = facts.form.after_write();
                facts.undone.note_status(None, now);
                facts.said_at = says.then_some(now);
                was_told
            });
            if says {
                self.observer.sayings.note(now);
            }
            if was_told {
                let announcement = Announcement {
                    regarding: target.clone(),
                    event_type: EventType::Normal,
                    reason: REASON_STATUS_WRITTEN,
                    note: "its status is written again".to_owned(),
                };
                self.applier.announce(&announcement, now);
            }
        }
        self.measures.count(key, Some(status));
        Ok(())
    }

    async fn call(&self, key: &ActionKey, note: &Note) -> Result<(), ActionError> {
        match &note.fact {
            Fact::Pending(pending) => {
                let pending = pending.clone();
                self.facts
                    .note(key, &note.of, |facts| facts.pending = pending);
            }
            Fact::Head(head) => {
                let head = Some(head.clone());
                self.facts.note(key, &note.of, |facts| facts.head = head);
            }
            Fact::Slot(change) => {
                if matches!(change, SlotChange::Request(_)) {
                    self.count_jobs().map_err(ActionError::Jobs)?;
                }
                self.note_slot(key, &note.of, change);
            }
            Fact::Gone(launch) => {
                let gone = Some(launch.clone());
                self.facts.note(key, &note.of, |facts| facts.gone = gone);
            }
            Fact::NextLaunch(launch, at) => {
                let next = Some((launch.clone(), *at));
                self.facts
                    .note(key, &note.of, |facts| facts.next_launch = next);
            }
            Fact::Unread(since) => {
                let since = *since;
                self.facts
                    .note(key, &note.of, |facts| facts.undone.unread_since = since);
            }
            Fact::Told(at) => {
                let at = Some(*at);
                self.facts
                    .note(key, &note.of, |facts| facts.undone.told_at = at);
            }
            Fact::Unlisted(since) => {
                let since = *since;
                self.facts
                    .note(key, &note.of, |facts| facts.unlisted_since = since);
            }
        }
        Ok(())
    }

    /// A store reads no more of a file than its own limit.
    async fn ask(
        &self,
        key: &ActionKey,
        question: &TaskQuestion,
        _answer_bytes: usize,
    ) -> Result<TaskAnswer, AskError> {
        let now = self.clock.now();
        let (transport, observer) = (&self.transport, &self.observer);
        transport.ask(observer, key, question, now).await
    }

    fn refused(&self, key: &ActionKey, incarnation: &Seen<Incarnation>, refusal: &Refusal) {
        if let Some(create) = &refusal.create {
            let kind = match refusal.code {
                Some(code) => CreateFailure::Refused {
                    code,
                    message: refusal.message.clone(),
                },
                // A resource that is not ours has the name.
                None => CreateFailure::NameTaken,
            };
            self.note(key, incarnation, create, kind);
        }
        if let Some(patch) = &refusal.patch {
            self.note_refused_abort(key, incarnation, patch, refusal);
        }
    }

    fn postponed(
        &self,
        key: &ActionKey,
        incarnation: &Seen<Incarnation>,
        create: &Create,
        why: &Postponed,
    ) {
        let kind = match why {
            Postponed::OverQuota(words) => CreateFailure::OverQuota(words.clone()),
            Postponed::NameTaken => CreateFailure::NameTaken,
            Postponed::Failed(words) => CreateFailure::Failed(words.clone()),
            Postponed::Paused => CreateFailure::Failed(
                "the API server has asked for no creates for a while".to_owned(),
            ),
        };
        self.note(key, incarnation, create, kind);
    }

    fn changed(
        &self,
        key: &ActionKey,
        incarnation: &Seen<Incarnation>,
        change: &Change,
        not_done: Option<&NotDone>,
    ) {
        let now = self.clock.now();
        match (incarnation, not_done) {
            (Seen::Present(incarnation), _) => {
                let not_done = not_done.cloned();
                self.facts.note(key, incarnation, |facts| {
                    facts.undone.note_change(change, not_done, now);
                });
            }
            // What has ended has no memory, and its status stays.
            (Seen::Absent, Some(not_done)) => {
                let words = undone::of_change(change, &not_done.why);
                self.announce(key, words, now, |action| {
                    not_done.is_final || undone::is_late(action, now)
                });
            }
            (Seen::Absent, None) | (Seen::Unknown(_), _) => {}
        }
    }

    fn unsettled(&self, key: &ActionKey, not_done: &NotDone) {
        let now = self.clock.now();
        let words = undone::of_read_back(&not_done.why);
        self.announce(key, words, now, |action| {
            let of = action.incarnation();
            let since = self.facts.note(key, &of, |facts| facts.note_unsettled(now));
            not_done.is_final || undone::is_long(since, now)
        });
    }
}
