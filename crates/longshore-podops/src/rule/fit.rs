//! What the status of a PodTransitionRule has room for: an API server stores no object beyond a limit of size, while a
//! rule may select any number of pods, and quote messages of any length. Pure.
//!
//! First all messages are shortened, alike and in steps, so that a pod more does not change what is said of the others.
//! If the shortest ones still take too much, pods are left out. A pod that waits is held without an entry as well, and
//! its annotation says why. Pods that go on need their entry: those that have it keep it, and as many others get it as
//! there is room for. Entries go with the pods that leave their stage, and make room for the next pods.

use std::io;

use longshore_api::podops::{
    Detail, PodTransitionRuleStatus, RuleState, RuleTask, RuleWebhookStatus,
};
use longshore_core::{StatusForm, text::shorten_to};
use serde::Serialize;

/// Bytes of a status: two thirds of what API servers store of an object. The spec and the metadata have the rest.
const FULL: usize = 1 << 20;
/// Bytes of a status after the API server has refused a larger one.
const SHORT: usize = 32 << 10;
/// The lengths to which messages are shortened, in bytes.
const MESSAGES: [usize; 4] = [512, 256, 128, 64];
/// Bytes of the frame around the lists of a status, and around those of one rule.
const FRAME: usize = 128;

/// What the status says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    /// The selected pods, sorted.
    pub(super) targets: Vec<String>,
    /// What the rules say of the pods that are in a stage, sorted by pod.
    pub(super) details: Vec<Detail>,
    /// What rules wait for.
    pub(super) rule_states: Vec<RuleState>,
}

/// What a status lacks for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lacks {
    #[default]
    Nothing,
    /// The ends of messages.
    Words,
    /// Pods, too.
    Pods,
}

/// What there is room for, and what is lacking. `before` is the status as it is.
pub(super) fn fit(
    form: StatusForm,
    mut wanted: Content,
    before: &PodTransitionRuleStatus,
) -> (Content, Lacks) {
    let room = match form {
        StatusForm::Full => FULL,
        StatusForm::Short | StatusForm::Unwritable => SHORT,
    };
    if size(&wanted) <= room {
        return (wanted, Lacks::Nothing);
    }
    for max in MESSAGES {
        wanted.shorten(max);
        if size(&wanted) <= room {
            return (wanted, Lacks::Words);
        }
    }
    (wanted.within(Room(room), before), Lacks::Pods)
}

impl Content {
    /// Whether it lets a pod go on.
    pub(super) fn lets_go(&self, name: &str) -> bool {
        let found = detail_of(&self.details, name);
        found.is_some_and(|detail| detail.passed)
    }

    fn shorten(&mut self, max: usize) {
        let details = self.details.iter_mut();
        let reasons = details.flat_map(|detail| detail.reject_info.iter_mut());
        let reasons = reasons.map(|info| &mut info.reason);
        let statuses = self.rule_states.iter_mut();
        let statuses = statuses.filter_map(|state| state.webhook_status.as_mut());
        let tasks =
            statuses.flat_map(|status| status.task_states.iter_mut().chain(&mut status.history));
        for text in reasons.chain(tasks.map(|task| &mut task.message)) {
            *text = shorten_to(std::mem::take(text), max);
        }
    }

    /// What is needed most of it. Tasks and their ends leave at least a quarter of the room to the pods that go on.
    fn within(mut self, mut room: Room, before: &PodTransitionRuleStatus) -> Self {
        room.take(FRAME);
        let states = &mut self.rule_states;
        states.retain(|state| room.take(FRAME + size(&state.name)));
        room.share(2, |room| keep_tasks(states, room, before));
        room.share(2, |room| keep_ends(states, room));
        let is_on_its_way = |detail: &Detail| detail.passed || !detail.passed_rules.is_empty();
        let (going, waiting): (Vec<_>, Vec<_>) = self.details.into_iter().partition(is_on_its_way);
        let rank = |detail: &Detail| {
            let before = detail_of(&before.details, &detail.name);
            let is_known = before.is_some_and(|it| it.stage == detail.stage && is_on_its_way(it));
            (!is_known, !detail.passed)
        };
        let mut details = chosen(going, rank, &mut room);
        for status in statuses(states) {
            status.requests = chosen(std::mem::take(&mut status.requests), |_| (), &mut room);
        }
        details.extend(chosen(waiting, |_| (), &mut room));
        details.sort_by(|a, b| a.name.cmp(&b.name));
        self.rule_states.retain(|state| {
            let status = state.webhook_status.as_ref();
            status.is_some_and(|status| *status != RuleWebhookStatus::default())
        });
        if !room.take(size(&self.targets)) {
            self.targets.clear();
        }
        Self { details, ..self }
    }
}

/// Keeps tasks with the pods that wait for them; first those that are on record.
fn keep_tasks(states: &mut [RuleState], room: &mut Room, before: &PodTransitionRuleStatus) {
    let most = room.0 / 2;
    for state in states {
        let before = before.rule_states.iter().filter(|it| it.name == state.name);
        let before = before.filter_map(|it| it.webhook_status.as_ref());
        let known: Vec<&RuleTask> = before.flat_map(|it| &it.task_states).collect();
        let Some(status) = &mut state.webhook_status else {
            continue;
        };
        let mut tasks = std::mem::take(&mut status.task_states);
        for task in &mut tasks {
            task.approved.clear();
            // The others join the task later, or are asked about in a request of their own.
            let waiting = std::mem::take(&mut task.processing);
            let mut room = Room(most.saturating_sub(FRAME + size(&*task)));
            task.processing = chosen(waiting, |_| (), &mut room);
        }
        let is_new = |task: &RuleTask| !known.iter().any(|it| it.task_id == task.task_id);
        status.task_states = chosen(tasks, is_new, room);
    }
}

/// Keeps when tasks ended, because the next requests follow from that, and not with which pods.
fn keep_ends(states: &mut [RuleState], room: &mut Room) {
    for status in statuses(states) {
        let mut history = std::mem::take(&mut status.history);
        for task in &mut history {
            task.approved.clear();
            task.processing.clear();
        }
        // The newest is the last one.
        history.reverse();
        status.history = chosen(history, |_| (), room);
        status.history.reverse();
    }
}

fn statuses(states: &mut [RuleState]) -> impl Iterator<Item = &mut RuleWebhookStatus> {
    let states = states.iter_mut();
    states.filter_map(|state| state.webhook_status.as_mut())
}

/// Of details that are sorted by pod, the one of this pod.
fn detail_of<'a>(details: &'a [Detail], name: &str) -> Option<&'a Detail> {
    let found = details.binary_search_by(|detail| detail.name.as_str().cmp(name));
    details.get(found.ok()?)
}

/// As many of these as there is room for: first those of the lowest rank. Their order stays.
fn chosen<T: Serialize, R: Ord>(of: Vec<T>, rank: impl Fn(&T) -> R, room: &mut Room) -> Vec<T> {
    let mut ranked: Vec<(R, usize, T)> = of
        .into_iter()
        .enumerate()
        .map(|(place, it)| (rank(&it), place, it))
        .collect();
    ranked.sort_by(|(a, a_place, _), (b, b_place, _)| (a, a_place).cmp(&(b, b_place)));
    // With the comma behind it.
    ranked.retain(|(_, _, it)| room.take(size(it) + 1));
    ranked.sort_by_key(|(_, place, _)| *place);
    ranked.into_iter().map(|(_, _, it)| it).collect()
}

/// Bytes that are left.
#[derive(Debug)]
struct Room(usize);

impl Room {
    /// Whether so many bytes were left; they are not any more.
    fn take(&mut self, n_bytes: usize) -> bool {
        let left = self.0.checked_sub(n_bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Lets one of so many parts be used.
    fn share(&mut self, n_parts: usize, fill: impl FnOnce(&mut Self)) {
        let mut part = Self(self.0 / n_parts);
        self.0 -= part.0;
        fill(&mut part);
        self.0 += part.0;
    }
}

/// The bytes of a value as JSON, without writing them anywhere.
fn size(value: &impl Serialize) -> usize {
    let mut counted = Counted(0);
    match serde_json::to_writer(&mut counted, value) {
        Ok(()) => counted.0,
        // It does not fit.
        Err(_) => usize::MAX / 2,
    }
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
