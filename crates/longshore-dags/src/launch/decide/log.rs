//! The log of an object that is to go: when it is copied to the archive, and what follows from the answer.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use longshore_core::{Action, Asked, Next, ObjectRef, Question, QuestionId};
use uuid::Uuid;

use super::{LaunchAction, LaunchEffect, LaunchedPhase, LaunchedView, Observed, TaskView};
use crate::logs::LogPath;

/// For how long the controller asks for the log of an ended pod. A node that is gone for longer does not come back
/// with the log.
const ENDED_LIMIT: Duration = Duration::from_secs(600);
/// For how long a pod that is to be stopped may go on because its log cannot be read.
const LIVE_LIMIT: Duration = Duration::from_secs(30);
/// The shortest and the longest pause before the controller asks again for a log that could not be read. In between,
/// the pause is the time for which the log could not be read, so that pauses double.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// The only kind of question that a launch has.
pub(crate) const LOG: &str = "log";

/// A request to copy the log of one object to the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuestion {
    /// The try.
    pub ti_id: Uuid,
    /// The pod or TaskAction that has the log, with its uid.
    pub object: ObjectRef,
    /// The IP address of the node that has the log; empty where only the API server knows it.
    pub node: String,
    /// Where the archive stores the log.
    pub path: LogPath,
    /// What is done if the log cannot be read.
    pub on_error: OnError,
}

/// What came of a request to copy a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAnswer {
    /// The archive has stored the whole log.
    Stored,
    /// The archive has stored what could be read, and a line that says why the rest is missing. The text is the error.
    StoredInPart(String),
    /// Nothing has started, so there is no log.
    NoLog,
    /// The log could not be read, and nothing is stored. The text is the error.
    Unreadable(String),
}

/// What is done about a log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The controller asks for the log again later; nothing is stored.
    AskAgain,
    /// What could be read is stored, and this line after it.
    EndWith(String),
}

/// What is remembered of the logs of one try's objects, by the uid of the object.
pub type LogNotes = BTreeMap<String, LogNote>;

/// What is remembered of the log of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogNote {
    /// Whether the archive has the log, as far as it could be read, or there is none.
    pub is_kept: bool,
    /// Since when the log cannot be read.
    pub unreadable_since: Option<Timestamp>,
    /// Why the log is not stored, or not whole.
    pub problem: Option<String>,
}

impl Question for LogQuestion {
    type Answer = LogAnswer;

    fn kind(&self) -> &'static str {
        LOG
    }

    /// A node that returns no logs holds its own share of the limits. An archive that stores none holds all shares, and
    /// nothing else waits for them.
    fn host(&self) -> &str {
        &self.node
    }

    fn about(&self) -> String {
        self.object.uid.clone().unwrap_or_default()
    }
}

impl OnError {
    /// What is done now, where the log could first not be read at `since`.
    pub(super) fn at(
        now: Timestamp,
        since: Option<Timestamp>,
        pod: &ObjectRef,
        phase: LaunchedPhase,
    ) -> Self {
        let limit = match phase {
            LaunchedPhase::Live | LaunchedPhase::Stuck => LIVE_LIMIT,
            LaunchedPhase::Succeeded | LaunchedPhase::Failed => ENDED_LIMIT,
        };
        let elapsed = since.map(|since| between(since, now));
        match elapsed.filter(|elapsed| *elapsed >= limit) {
            None => Self::AskAgain,
            Some(elapsed) => Self::EndWith(format!(
                "longshore: the log of {pod} ends here, because it could not be read for {} s",
                elapsed.as_secs()
            )),
        }
    }
}

/// What is done about the log of one object.
#[derive(Debug)]
pub(super) struct LogStep {
    /// Whether the object may go.
    pub(super) is_kept: bool,
    pub(super) actions: Vec<LaunchAction>,
    pub(super) next: Next,
}

impl LogStep {
    fn kept(actions: Vec<LaunchAction>) -> Self {
        Self {
            is_kept: true,
            actions,
            next: Next::AwaitChange,
        }
    }

    fn waits(actions: Vec<LaunchAction>, next: Next) -> Self {
        Self {
            is_kept: false,
            actions,
            next,
        }
    }
}

/// Decides about the log of one object that is to be kept.
///
/// An answer is noted first and used up after that. A question fails because of the archive: the controller asks it
/// again for ever. A log that could not be read is given up after a while ([`OnError::at`]), else its object would
/// stay for ever.
pub(super) fn keep(observed: &Observed, task: &TaskView, pod: &LaunchedView) -> LogStep {
    let uid = pod.object.uid.as_deref().unwrap_or_default();
    let asked = observed.asked.get(uid);
    let note = observed.log_notes.get(uid).cloned().unwrap_or_default();
    if note.is_kept {
        return LogStep::kept(asked.map(|_| used(uid)).into_iter().collect());
    }
    let mut actions = Vec::new();
    let mut noted = |new: LogNote| {
        if new != note {
            let object = pod.object.clone();
            actions.push(Action::Call(LaunchEffect::NoteLog { object, note: new }));
        }
    };
    let mut since = note.unreadable_since;
    match asked {
        None | Some(Asked::NotAsked | Asked::AskedByAnother) => {}
        Some(Asked::UnderWay { .. }) => return LogStep::waits(actions, Next::AwaitChange),
        Some(Asked::Failed { message, .. }) => noted(LogNote {
            problem: Some(message.clone()),
            ..note.clone()
        }),
        Some(Asked::Answered { at, answer }) => {
            let problem = match answer {
                LogAnswer::Stored | LogAnswer::NoLog => None,
                LogAnswer::StoredInPart(problem) | LogAnswer::Unreadable(problem) => {
                    Some(problem.clone())
                }
            };
            let is_kept = !matches!(answer, LogAnswer::Unreadable(_));
            since = since.or(Some(*at)).filter(|_| !is_kept);
            noted(LogNote {
                is_kept,
                unreadable_since: since,
                problem,
            });
            if is_kept {
                actions.push(used(uid));
                return LogStep::kept(actions);
            }
            let pause = between(since.unwrap_or(*at), *at).clamp(PAUSE[0], PAUSE[1]);
            let left = pause.saturating_sub(between(*at, observed.now));
            if !left.is_zero() {
                return LogStep::waits(actions, Next::After(left));
            }
        }
    }
    actions.push(Action::Ask(LogQuestion {
        ti_id: observed.ti_id,
        object: pod.object.clone(),
        node: pod.node.clone(),
        path: task.log.clone(),
        on_error: OnError::at(observed.now, since, &pod.object, pod.phase),
    }));
    LogStep::waits(actions, Next::AwaitChange)
}

/// Cancels the questions about objects that are gone.
pub(super) fn cancelled<'a>(
    observed: &'a Observed,
    pods: &'a [LaunchedView],
) -> impl Iterator<Item = LaunchAction> {
    let is_there = move |uid: &String| pods.iter().any(|pod| pod.object.uid.as_ref() == Some(uid));
    let uids = observed.asked.keys();
    uids.filter(move |uid| !is_there(uid)).map(|uid| used(uid))
}

fn used(uid: &str) -> LaunchAction {
    Action::Used(QuestionId::new(LOG, uid))
}

/// The time from one instant to a later one; zero where the clock was set back.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
