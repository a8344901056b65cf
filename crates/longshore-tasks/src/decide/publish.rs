//! Publishes a change: first the run service gets its event, then the status is written (task action spec §5.2).

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use longshore_api::flyte::TaskActionStatus;
use longshore_core::{Next, Plan};
use longshore_plugins::{
    K8sState, Launch, Phase, PhaseInfo, PluginState, STATE_VERSION, TaskContext,
};

use super::{ActionPlan, Round, Step, attempt::REASON_SUBMITTED, cached, merge, release, report};
use crate::{
    catalog::CatalogCacheStatus,
    events::{ActionEvent, action_phase},
    model::{Belongs, Child, InForm, PendingChange, StatusForm, Task, Work},
    status,
};

/// What is to be published.
pub(super) struct Published {
    /// How far the attempt is.
    pub(super) info: PhaseInfo,
    /// The attempt.
    pub(super) attempt: u32,
    /// System failures of the attempt: how often its resource was launched again.
    pub(super) system_failures: u32,
    /// What is on record of its resource.
    pub(super) launch: OnRecord,
    /// What its cache has to do with it.
    pub(super) cache: CatalogCacheStatus,
}

/// What a status says about the resource of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnRecord {
    /// It existed.
    Started,
    /// It could not be created yet.
    Waiting,
    /// Nothing: the attempt is a new one.
    Nothing,
}

impl Published {
    /// The resource exists, or the attempt is over.
    pub(super) fn started(round: &Round<'_>, info: PhaseInfo) -> Self {
        Self {
            attempt: round.action.attempt(),
            system_failures: round.action.status.system_failures,
            launch: OnRecord::Started,
            cache: CatalogCacheStatus::CacheDisabled,
            info,
        }
    }

    /// The resource cannot be created yet.
    pub(super) fn waiting(round: &Round<'_>, info: PhaseInfo) -> Self {
        Self {
            launch: OnRecord::Waiting,
            ..Self::started(round, info)
        }
    }

    /// The attempt failed, and the next one is to be started.
    pub(super) fn restarting(round: &Round<'_>, info: PhaseInfo) -> Self {
        Self {
            info,
            attempt: round.action.attempt().saturating_add(1),
            system_failures: 0,
            launch: OnRecord::Nothing,
            cache: CatalogCacheStatus::CacheDisabled,
        }
    }
}

/// What was written last about the resource of the attempt.
pub(super) fn stored(round: &Round<'_>, task: &Task) -> K8sState {
    match &task.state {
        Ok(state) => state.k8s.clone(),
        // What the status says besides it.
        Err(_) => K8sState {
            phase: Phase::parse(&round.action.status.plugin_phase).unwrap_or_default(),
            version: round.action.status.plugin_phase_version,
            reason: String::new(),
        },
    }
}

/// The plan where nothing is new.
pub(super) fn nothing(round: &Round<'_>, info: &PhaseInfo) -> ActionPlan {
    Plan {
        actions: Vec::new(),
        next: next(round, info),
    }
}

/// The plan that publishes, with everything that waited to be; an empty one where nothing is new.
pub(super) fn plan(round: &Round<'_>, task: &Task, published: Published) -> ActionPlan {
    let mut status = round.action.status.clone();
    let mut actions = Vec::new();
    for PendingChange { info, at } in unpublished(round, task, published.info.phase) {
        let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
        status::enter(&mut status, &info, at);
        let event = ActionEvent {
            updated_at: at,
            ..event(round, &task.context.paths.output_prefix, &info, &status)
        };
        actions.push(report::step(round, event));
    }
    let Published {
        mut info,
        attempt,
        system_failures,
        launch,
        cache,
    } = published;
    info = round.action.form.info(info);
    if attempt == round.action.attempt() {
        info = with_own_version(info, &stored(round, task));
    }
    if info.reasons.is_empty() && launch == OnRecord::Started {
        info.reasons = task.pod_events.iter().map(Into::into).collect();
    }
    (status.plugin_state, status.plugin_state_version) = plugin_state(task, &info, launch);
    status.attempts = attempt;
    status.system_failures = system_failures;
    status.cache_status = cache.into();
    let Some(written) = write(round, &task.context, status, &info) else {
        return nothing(round, &info);
    };
    // First, or a process after a crash would not know of it. Nothing of the attempt runs any more.
    if info.phase.is_terminal()
        && let Some(before) = cached::before_end(task)
    {
        return before;
    }
    actions.extend(written);
    let is_left_over = info.cleanup_on_failure || round.is_deleted_at_the_end(task);
    if info.phase.is_terminal() && is_left_over {
        let child = round.action.children.current.present();
        let ours = child.filter(|child| child.belongs != Belongs::ToOthers);
        actions.extend(ours.map(release).unwrap_or_default());
    }
    let next = match launch {
        // Nothing but this very status tells that the next attempt can be launched.
        OnRecord::Nothing => Next::After(Duration::ZERO),
        OnRecord::Started | OnRecord::Waiting => next(round, &info),
    };
    Plan { actions, next }
}

/// A phase with a version of its own: the receiver keeps one event of a phase and version, and knows fewer phases than
/// there are.
pub(super) fn with_own_version(mut info: PhaseInfo, stored: &K8sState) -> PhaseInfo {
    let is_another = info.phase != stored.phase && stored.phase != Phase::Undefined;
    if is_another && action_phase(info.phase) == action_phase(stored.phase) {
        info.version = info.version.max(stored.version.saturating_add(1));
    }
    info
}

/// Reports a phase and enters it into a status that says the rest already; `None` where nothing is new.
pub(super) fn write(
    round: &Round<'_>,
    context: &TaskContext,
    mut status: TaskActionStatus,
    info: &PhaseInfo,
) -> Option<Vec<Step>> {
    let info = match round.action.form {
        StatusForm::Full => Cow::Borrowed(info),
        form @ (StatusForm::Short | StatusForm::Unwritable) => Cow::Owned(form.info(info.clone())),
    };
    let info = &*info;
    status::enter(&mut status, info, round.now);
    info.phase.published().clone_into(&mut status.plugin_phase);
    status.plugin_phase_version = info.version;
    if !status::is_news(&round.action.status, &status) {
        return None;
    }
    status.state_json = status::state_json(&round.action.spec, info.phase, round.now);
    let updated_at = status.phase_history.last().map(|entry| entry.occurred_at);
    let event = ActionEvent {
        updated_at: updated_at.unwrap_or(round.now),
        cache_status: status.cache_status,
        ..event(round, &context.paths.output_prefix, info, &status)
    };
    let mut steps = vec![report::step(round, event)];
    if info.phase.is_terminal() {
        steps.extend(round.finish(status));
    } else {
        steps.push(round.record(status));
    }
    Some(steps)
}

/// The changes before `phase` in this attempt that are not published yet.
fn unpublished(round: &Round<'_>, task: &Task, phase: Phase) -> Vec<PendingChange> {
    let stored = stored(round, task);
    let mut unpublished = merge::earlier(&stored, task, phase);
    let is_queued =
        phase == Phase::Queued || round.action.status.plugin_phase == Phase::Queued.published();
    let is_first = matches!(&task.state, Ok(state) if state.launch == Launch::NotStarted);
    // The process ended between create and status.
    if is_first
        && !is_queued
        && round
            .action
            .children
            .current
            .present()
            .is_some_and(is_of_launch)
    {
        let info = PhaseInfo::of(Phase::Queued, REASON_SUBMITTED);
        let at = round.now;
        unpublished.insert(0, PendingChange { info, at });
    }
    unpublished
}

fn is_of_launch(child: &Child) -> bool {
    child.belongs == Belongs::ToThisLaunch
}

/// When to look again if nothing changes. How long a pod may wait for its start is a matter of time; once it runs,
/// only a change of it is of interest, and its owner reference says which action it is of.
fn next(round: &Round<'_>, info: &PhaseInfo) -> Next {
    let runs = info.phase == Phase::Running && has_owner(round) && !has_pending_head(round);
    if runs || info.phase.is_terminal() {
        Next::AwaitChange
    } else {
        Next::After(round.policy.requeue)
    }
}

/// Whether the resource says which action it is of.
fn has_owner(round: &Round<'_>) -> bool {
    match &round.action.work {
        Work::Task(task) => task.plugin.properties().has_owner(round.config),
        Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => true,
    }
}

/// Whether the head pod of a resource with many pods has yet to start.
fn has_pending_head(round: &Round<'_>) -> bool {
    let Work::Task(task) = &round.action.work else {
        return false;
    };
    let head = task.context.head_pod.as_ref();
    head.is_some_and(|pod| pod["status"]["phase"] == "Pending")
}

fn plugin_state(task: &Task, info: &PhaseInfo, launch: OnRecord) -> (Vec<u8>, u8) {
    let launch = match launch {
        OnRecord::Started => Launch::Started,
        OnRecord::Waiting => Launch::NotStarted,
        OnRecord::Nothing => return (Vec::new(), 0),
    };
    let mut state = PluginState {
        launch,
        k8s: info.to_k8s_state(),
        ..task.state.clone().unwrap_or_default()
    };
    if let Some(last) = task.pod_events.last() {
        state.last_event_created_at = Some(last.created_at);
        state.last_event_recorded_at = Some(last.recorded_at);
    }
    (state.encode(), STATE_VERSION)
}

/// So many versions of each phase has one launch of an attempt.
const VERSIONS: u32 = 1 << 16;

/// The version of an event. A receiver keeps the first event of each phase and version of an attempt: the launches of an
/// attempt have versions of their own, later ones higher ones.
fn version(info: &PhaseInfo, n_failures: u32) -> u32 {
    let before = n_failures.saturating_mul(VERSIONS);
    before.saturating_add(info.version)
}

/// The event of a phase of the attempt and launch that `status` has, as of now.
pub(super) fn event(
    round: &Round<'_>,
    output_prefix: &str,
    info: &PhaseInfo,
    status: &TaskActionStatus,
) -> ActionEvent {
    let spec = &round.action.spec;
    ActionEvent {
        project: spec.project.clone(),
        domain: spec.domain.clone(),
        run: spec.run_name.clone(),
        action: spec.action_name.clone(),
        attempt: status.attempts.max(1),
        phase: action_phase(info.phase),
        version: version(info, status.system_failures),
        updated_at: round.now,
        reported_at: round.exactly,
        error: info.error.clone(),
        cluster: round.policy.cluster.clone(),
        output_prefix: output_prefix.to_owned(),
        cache_status: CatalogCacheStatus::CacheDisabled.into(),
        reasons: reasons(round, info),
        logs: info.info.logs.clone(),
        log_context: info.info.log_context.clone(),
    }
}

fn reasons(round: &Round<'_>, info: &PhaseInfo) -> Vec<longshore_plugins::ReasonInfo> {
    let own = (!info.reason.is_empty()).then(|| longshore_plugins::ReasonInfo {
        reason: info.reason.clone(),
        occurred_at: info.occurred_at.unwrap_or(round.now),
    });
    own.into_iter()
        .chain(info.reasons.iter().cloned())
        .collect()
}
