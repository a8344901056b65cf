//! Makes of what was read what a decision sees. Pure.

use jiff::Timestamp;
use longshore_core::{Asked, Seen, Unknown};
use longshore_plugins::{ErrorFile, HeadPod};
use serde_json::Value;

use super::{Loaded, LoadedAction, LoadedChildren};
use crate::{
    catalog,
    data::Outcome,
    decide::{Observed, owes, pending},
    model::{Action, ActionKey, Child, InForm, LaunchId, Task, Work},
    questions::{ActionAnswers, without_answer},
    remote,
};

impl Loaded<'_> {
    /// What a decision sees.
    pub(crate) fn assemble(self) -> Observed {
        let Self {
            now,
            key,
            answers,
            action,
        } = self;
        let action = action.map(|loaded| {
            let facts = loaded.facts.clone();
            let incarnation = &loaded.action.incarnation();
            let answers = ActionAnswers {
                answers,
                incarnation,
                facts: &facts,
            };
            loaded.assemble(key, now, answers)
        });
        Observed { now, action }
    }
}

impl LoadedAction {
    fn assemble(self, key: &ActionKey, now: Timestamp, answers: ActionAnswers<'_>) -> Action {
        let mut action = self.action;
        // First, because an action that waits for its cache needs no slot.
        if self.is_caching {
            catalog::assemble(key, &mut action, answers);
        }
        match self.children {
            Some(children) => children.assemble(&mut action, now, answers),
            None => remote::assemble(&mut action, self.slot, now, answers),
        }
        action
    }
}

impl LoadedChildren {
    fn assemble(self, action: &mut Action, now: Timestamp, answers: ActionAnswers<'_>) {
        let launch = LaunchId::of(&action.target, &action.status);
        let child = |resource: &Value| Child::of(self.kind, resource, &launch);
        let current = self.current.as_ref().map(child);
        action.children.earlier = self.earlier.iter().map(child).collect();
        let is_open = !action.is_deleting && !action.status.is_terminal();
        if let Work::Task(task) = &mut action.work {
            let is_ours = current.present().is_some_and(Child::is_of_attempt);
            let read = match (&self.current, self.pod_template) {
                (Seen::Absent, template) if task.is_not_started() && !action.is_deleting => {
                    to_build(task, template, answers)
                }
                (Seen::Present(resource), _) if is_ours => {
                    let read = to_judge(task, resource, self.head_pod, now, answers);
                    if read.is_ok() && is_open {
                        follow(task, resource, self.head, &launch, now, answers);
                    }
                    read
                }
                (Seen::Absent | Seen::Present(_) | Seen::Unknown(_), _) => Ok(()),
            };
            if let Err(why) = read {
                action.children.current = Seen::Unknown(why);
                return;
            }
        }
        let is_to_come = match &action.work {
            Work::Task(task) => task.is_not_started() && !action.is_deleting,
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => false,
        };
        let is_gone = self.is_read && current.is_absent() && !is_to_come;
        action.children.newly_gone = is_gone.then_some(launch);
        // What is deleted already is waited for, whoever deletes it.
        let may_stay = |child: &Child| child.is_of_attempt() && !child.is_deleting;
        let is_aborted = action.is_deleting && current.present().is_some_and(may_stay);
        action.children.abort = self.abort.filter(|_| is_aborted);
        action.children.current = current;
    }
}

/// Adds what the resource of an attempt is built from. `Err` says what could not be read: then it is not built.
fn to_build(
    task: &mut Task,
    template: Option<Seen<Value>>,
    answers: ActionAnswers<'_>,
) -> Result<(), Unknown> {
    task.context.pod_template = present(template.unwrap_or(Seen::Absent))?;
    if task.plugin.needs_inputs(&task.context) {
        let inputs = answers.inputs();
        if let Some(inputs) = inputs.answer() {
            task.context.inputs = inputs.clone().map(|inputs| inputs.as_deref().cloned());
        }
        task.inputs = without_answer(inputs);
    }
    let prefix = &task.context.paths.output_prefix;
    task.directory = task.directory.as_ref().map(|_| answers.directory(prefix));
    Ok(())
}

/// Adds what the plugin says about the resource of an attempt. `Err` says what could not be read: then it is not judged.
fn to_judge(
    task: &mut Task,
    resource: &Value,
    head_pod: Option<Seen<Value>>,
    now: Timestamp,
    answers: ActionAnswers<'_>,
) -> Result<(), Unknown> {
    task.context.head_pod = present(head_pod.unwrap_or(Seen::Absent))?;
    let info = task.plugin.phase(&task.context, resource, now);
    task.info = answers.facts.form.info(info);
    Ok(())
}

/// Adds what is not published yet of an attempt, and what it left behind if it has ended.
fn follow(
    task: &mut Task,
    resource: &Value,
    head: Option<HeadPod>,
    launch: &LaunchId,
    now: Timestamp,
    answers: ActionAnswers<'_>,
) {
    let uid = resource["metadata"]["uid"].as_str().unwrap_or_default();
    if let Ok(state) = &task.state {
        let facts = answers.facts;
        task.pod_events = facts.pod_events.unpublished(uid, state);
        let pending = pending(&facts.pending, launch, &state.k8s, &task.info, now);
        task.pending.clone_from(&pending.changes);
        task.to_remember = (pending != facts.pending).then_some(pending);
        task.new_head = head.filter(|head| facts.head.as_ref() != Some(head));
    }
    task.owed = owes(&task.info, &task.context.template);
    if task.owed.is_some() {
        task.outcome = answers.outcome(uid);
    }
    if task.plugin.needs_error_file(resource) {
        task.context.error_file = error_file(&task.outcome);
        let info = task.plugin.phase(&task.context, resource, now);
        task.info = answers.facts.form.info(info);
    }
}

/// What a plugin goes by that judges an attempt which failed by itself.
fn error_file(outcome: &Asked<Outcome>) -> ErrorFile {
    match outcome.answer() {
        Some(Outcome::Failed { is_recoverable, .. }) => ErrorFile::Present {
            is_recoverable: *is_recoverable,
        },
        Some(Outcome::Complete | Outcome::Incomplete(_)) => ErrorFile::Absent,
        None => ErrorFile::Unknown,
    }
}

fn present<T>(seen: Seen<T>) -> Result<Option<T>, Unknown> {
    match seen {
        Seen::Present(value) => Ok(Some(value)),
        Seen::Absent => Ok(None),
        Seen::Unknown(why) => Err(why),
    }
}
