//! The tasks of a webhook: the webhook answered that it needs time, and with which id to ask again. Pure.
//!
//! The status of the PodTransitionRule has the tasks: the controller writes the id of a task and the time at which it
//! began before the first question about it, and what an answer has approved before the next one. So a controller that
//! starts asks about the same tasks, for no longer than they had left. What is in memory only is when to ask next, and
//! the last answer until it is in the status.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::podops::{RulePoll, RulePollAnswer, RuleTask, RuleWebhookStatus};
use longshore_core::text::is_same;

use super::{
    evaluate::{Outcome, Subject},
    webhook::{ASK_AGAIN, Begun, Heard, short},
};

/// Where the rule says nothing, and neither did the webhook that fills in what is missing.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(60);
/// No webhook is asked more often, whatever the rule says.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// No task is given up sooner, whatever the rule says.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The most seconds between two questions about a task: a day.
pub(super) const LONGEST_INTERVAL: i64 = 24 * 60 * 60;
/// The most seconds of a task: thirty days.
pub(super) const LONGEST_TIMEOUT: i64 = 30 * LONGEST_INTERVAL;
/// From the end of a task to the next request about its pods: a webhook whose tasks end at once is asked no more often
/// than one that refuses.
const PAUSE: Duration = ASK_AGAIN;
/// How long a task that ended is shown, upstream's.
const SHOWN: Duration = Duration::from_secs(600);
/// So many are shown at most: a webhook that stops each task at once makes many.
const MAX_SHOWN: usize = 32;

/// A question about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The rule, of its PodTransitionRule.
    pub rule: String,
    /// The task.
    pub task_id: String,
    /// Whom to ask.
    pub poll: RulePoll,
}

/// What is known about what was answered about tasks: by rule and id.
pub type Polls = BTreeMap<(String, String), Polled>;

/// What is known about a task beyond the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// When the last answer came; `None` where there was none yet.
    pub at: Option<Timestamp>,
    /// Names of the pods that may go on.
    pub approved: BTreeSet<String>,
    /// All of them may.
    pub is_finished: bool,
    /// The controller is to ask no more.
    pub is_stopped: bool,
    /// What was said last, for people.
    pub message: String,
    /// Why there was no answer.
    pub error: String,
    /// When it is asked about again; `None` while a question is under way.
    pub again_at: Option<Timestamp>,
}

impl Poll {
    /// Between two questions about the task.
    pub fn interval(&self) -> Duration {
        interval(&self.poll)
    }

    /// What is known after an answer, or the reason why there is none. What was approved before stays so.
    pub fn hear(
        &self,
        before: &Polled,
        answer: Result<RulePollAnswer, String>,
        now: Timestamp,
    ) -> Polled {
        let mut polled = Polled {
            at: Some(now),
            again_at: now.checked_add(interval(&self.poll)).ok(),
            error: String::new(),
            ..before.clone()
        };
        match answer {
            Ok(answer) => {
                polled.approved.extend(answer.finished_names);
                polled.is_finished |= answer.success && answer.finished;
                polled.is_stopped |= answer.stop;
                polled.message = short(&answer.message);
            }
            Err(why) => polled.error = short(&why),
        }
        polled
    }
}

/// A rule that may have tasks.
pub(super) struct Follow<'a> {
    pub(super) rule: &'a str,
    /// `<namespace>/<PodTransitionRule>/<rule>`, as upstream names it in messages.
    pub(super) key: String,
    /// `None` where the rule does not say where to ask about tasks.
    pub(super) poll: Option<&'a RulePoll>,
    pub(super) polls: &'a Polls,
    pub(super) now: Timestamp,
}

/// What becomes of the tasks of a rule.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// What the status is to say.
    pub(super) status: RuleWebhookStatus,
    /// What the tasks say of pods, by name.
    pub(super) outcomes: BTreeMap<String, Outcome>,
    /// What is to be asked.
    pub(super) polls: Vec<Poll>,
    /// When something is due that no change tells of.
    pub(super) next_at: Option<Timestamp>,
}

impl Follow<'_> {
    /// Follows the tasks that the status has. `open` are the pods that the rule has not let pass.
    pub(super) fn tasks(&self, status: &RuleWebhookStatus, open: &[&Subject]) -> Followed {
        let mut followed = Followed::default();
        let mut history = status.history.clone();
        history.retain(|task| self.is_shown(task));
        followed.status.history = history;
        for task in &status.task_states {
            let is_about = |subject: &&&Subject| is_about(task, subject);
            let waiting: Vec<&Subject> = open.iter().filter(is_about).copied().collect();
            let ended = match (self.poll, waiting.is_empty()) {
                // No pod waits for the task any more, or the rule no longer says where to ask about it.
                (None, _) | (_, true) => Some(task.clone()),
                (Some(poll), false) => self.task(task, poll, &waiting, &mut followed),
            };
            if let Some(ended) = ended {
                followed.status.history.push(RuleTask {
                    last_time: Some(instant(self.now)),
                    ..ended
                });
            }
        }
        self.forget_too_many(&mut followed.status.history);
        followed
    }

    /// One task that pods wait for; where it ended, how.
    fn task(
        &self,
        task: &RuleTask,
        poll: &RulePoll,
        waiting: &[&Subject],
        followed: &mut Followed,
    ) -> Option<RuleTask> {
        let began_at: Option<Timestamp> = task.begin_time.as_deref().and_then(|at| at.parse().ok());
        let unknown = Polled::default();
        let id = (self.rule.to_owned(), task.task_id.clone());
        let asked = self.polls.get(&id);
        let known = asked.unwrap_or(&unknown);
        let mut next = task.clone();
        let is_approved = |name: &String| known.is_finished || known.approved.contains(name);
        let approved = task.processing.iter().filter(|name| is_approved(name));
        next.approved.extend(approved.cloned());
        next.approved.sort();
        next.approved.dedup();
        next.processing.retain(|name| !is_approved(name));
        // What was shortened in the status is no news.
        let is_news = !known.message.is_empty() && !is_same(&next.message, &known.message);
        if known.at.is_some() && is_news {
            next.message.clone_from(&known.message);
        }
        if next != *task {
            next.last_time = known.at.map(instant).or(next.last_time);
        }
        // A task that does not say when it began has had all of its time.
        let deadline = began_at.and_then(|at| at.checked_add(timeout(poll)).ok());
        let left = deadline.filter(|at| *at > self.now);
        let is_over = known.is_finished || known.is_stopped || left.is_none();
        for subject in waiting {
            let outcome = match is_approved(&subject.name) {
                true => Ok(()),
                false if known.is_stopped => Err(self.stopped(&next, &known.error)),
                false if is_over => Err(self.timed_out(&mut next, &known.error)),
                false => Err(self.running(&next, known)),
            };
            followed.outcomes.insert(subject.name.clone(), outcome);
        }
        if is_over {
            return Some(next);
        }
        let first_at = began_at.and_then(|at| at.checked_add(interval(poll)).ok());
        match asked.map_or(first_at, |asked| asked.again_at) {
            Some(at) if at <= self.now => followed.polls.push(Poll {
                rule: self.rule.to_owned(),
                task_id: task.task_id.clone(),
                poll: poll.clone(),
            }),
            due_at => followed.look_at(due_at),
        }
        followed.look_at(left);
        followed.status.task_states.push(next);
        None
    }

    /// Takes tasks up that answers have begun, and that the status does not have yet.
    pub(super) fn begin<'a>(
        &self,
        heard: impl Iterator<Item = (&'a Subject, &'a Heard)>,
        followed: &mut Followed,
    ) {
        let mut begun: BTreeMap<&str, RuleTask> = BTreeMap::new();
        for (subject, heard) in heard {
            let task = heard.task.as_ref();
            let Some(task) = task.filter(|task| ended_since(&followed.status, task).is_none())
            else {
                continue;
            };
            let state = begun.entry(&task.id).or_insert_with(|| RuleTask {
                task_id: task.id.clone(),
                begin_time: Some(instant(task.at)),
                message: task.message.clone(),
                ..RuleTask::default()
            });
            if heard.outcome == Some(Ok(())) {
                state.approved.push(subject.name.clone());
            } else {
                state.processing.push(subject.name.clone());
            }
        }
        for (_, mut task) in begun {
            if task.processing.is_empty() {
                continue;
            }
            let is_other = |known: &RuleTask| known.task_id != task.task_id;
            followed.status.history.retain(is_other);
            // A task that is asked about already, for other pods: these join it, and it has all of its time again.
            let states = &mut followed.status.task_states;
            if let Some(at) = states.iter().position(|it| it.task_id == task.task_id) {
                let known = states.remove(at);
                task.processing.extend(known.processing);
                task.approved.extend(known.approved);
            }
            task.processing.sort();
            task.processing.dedup();
            task.approved.sort();
            task.approved.dedup();
            states.push(task);
        }
    }

    /// Leaves out the oldest ones. One that has just ended stays: without its end, it would be taken up again.
    fn forget_too_many(&self, history: &mut Vec<RuleTask>) {
        let mut n_too_many = history.len().saturating_sub(MAX_SHOWN);
        history.retain(|task| {
            let is_old = ended_at(task).is_none_or(|at| asked_after(at, self.now) <= self.now);
            let is_left_out = n_too_many > 0 && is_old;
            n_too_many -= usize::from(is_left_out);
            !is_left_out
        });
    }

    fn is_shown(&self, task: &RuleTask) -> bool {
        let shown_until = ended_at(task).and_then(|at| at.checked_add(SHOWN).ok());
        shown_until.is_some_and(|until| until > self.now)
    }

    fn running(&self, task: &RuleTask, known: &Polled) -> String {
        let (key, id, message) = (&self.key, &task.task_id, &task.message);
        if known.at.is_some() {
            let error = error_of(id, &known.error);
            return format!(
                "Not approved by webhook {key}, polling task {id} is running {message}{error}"
            );
        }
        initialized(key, id, message)
    }

    fn stopped(&self, task: &RuleTask, error: &str) -> String {
        let (key, id, message) = (&self.key, &task.task_id, &task.message);
        let error = error_of(id, error);
        format!("Not approved by webhook {key}, polling task {id} stopped {message}{error}")
    }

    fn timed_out(&self, task: &mut RuleTask, error: &str) -> String {
        const WORDS: &str = "Polling Timeout. ";
        if !task.message.starts_with(WORDS) {
            task.message.insert_str(0, WORDS);
        }
        self.stopped(task, error)
    }
}

impl Followed {
    fn look_at(&mut self, at: Option<Timestamp>) {
        self.next_at = match (self.next_at, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Upstream's words for a task that the controller has not asked about yet.
pub(super) fn initialized(key: &str, id: &str, message: &str) -> String {
    format!("Polling task {key} initialized, will polling by taskId {id}, msg: {message}")
}

/// When a task ended that an answer began; `None` where it has not.
pub(super) fn ended_since(status: &RuleWebhookStatus, begun: &Begun) -> Option<Timestamp> {
    let of_id = status
        .history
        .iter()
        .filter(|task| task.task_id == begun.id);
    let ends = of_id.filter_map(ended_at);
    ends.filter(|at| *at >= in_micros(begun.at)).max()
}

/// When the last task ended that did not let a pod go on, of each pod.
pub(super) fn last_ends(status: &RuleWebhookStatus) -> BTreeMap<&str, Timestamp> {
    let mut ends: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for task in &status.history {
        let Some(ended_at) = ended_at(task) else {
            continue;
        };
        for name in &task.processing {
            let end = ends.entry(name.as_str()).or_insert(ended_at);
            *end = ended_at.max(*end);
        }
    }
    ends
}

/// When a webhook may be asked again about the pods of a task that ended then. An end that lies ahead is not one that
/// this process has measured.
pub(super) fn asked_after(ended_at: Timestamp, now: Timestamp) -> Timestamp {
    if ended_at > now {
        return now;
    }
    ended_at.checked_add(PAUSE).unwrap_or(now)
}

fn ended_at(task: &RuleTask) -> Option<Timestamp> {
    task.last_time.as_deref()?.parse().ok()
}

/// When the last task ended that was about one of these pods: another question about them is another one. A task whose
/// pods were left out of the status may have been about each of them.
pub(super) fn last_ended(status: &RuleWebhookStatus, is_asked: impl Fn(&str) -> bool) -> &str {
    let about = status.history.iter().filter(|task| {
        let mut pods = task.processing.iter().chain(&task.approved);
        let is_about_none = task.processing.is_empty() && task.approved.is_empty();
        is_about_none || pods.any(|name| is_asked(name))
    });
    let ended_at = about.filter_map(|task| task.last_time.as_deref());
    ended_at.max().unwrap_or_default()
}

/// Whether a task is about a pod: by its name, as upstream, and only where the pod came to the rule before the task
/// began. A pod that came later is the next one of that name, or is there for another operation.
fn is_about(task: &RuleTask, subject: &Subject) -> bool {
    let began_at: Option<Timestamp> = task.begin_time.as_deref().and_then(|at| at.parse().ok());
    let is_later = match (subject.entered_at, began_at) {
        (Some(entered_at), Some(began_at)) => in_micros(entered_at) > began_at,
        (None, _) | (_, None) => false,
    };
    task.processing.contains(&subject.name) && !is_later
}

fn error_of(task_id: &str, error: &str) -> String {
    match error {
        "" => String::new(),
        error => format!(" polling task {task_id} error, {error}"),
    }
}

fn interval(poll: &RulePoll) -> Duration {
    let interval = seconds(poll.interval_seconds, LONGEST_INTERVAL);
    interval.map_or(INTERVAL, |it| it.max(SHORTEST_INTERVAL))
}

fn timeout(poll: &RulePoll) -> Duration {
    let timeout = seconds(poll.timeout_seconds, LONGEST_TIMEOUT);
    timeout.map_or(TIMEOUT, |it| it.max(SHORTEST_TIMEOUT))
}

/// A time of a rule that may have been stored before its times were checked.
fn seconds(of: Option<i64>, longest: i64) -> Option<Duration> {
    let seconds = u64::try_from(of?.clamp(0, longest)).unwrap_or_default();
    Some(Duration::from_secs(seconds))
}

/// In RFC 3339, with the fraction that tells what came before what.
fn instant(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// As precise as [`instant`].
fn in_micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}
