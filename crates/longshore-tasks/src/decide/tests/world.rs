//! A world for one decision, and plans in words.

use longshore_api::{flyte::FINALIZER_PLUGIN, tasks::ANNOTATION_LAUNCH};
use longshore_core::{Asked, Next, NoAnswer, Patch, Resource};
use longshore_plugins::{
    BuildError, Config, K8sState, Launch, Phase, PhaseInfo, Plugin, PluginState, Request,
    STATE_VERSION, StateError, TASK_ACTION, TaskContext,
};
use longshore_proto::flyteidl2::core::TaskTemplate;
use longshore_test::EPOCH;
use serde_json::json;

use super::super::*;
use crate::{
    catalog::Cache,
    data::Outcome,
    events::ActionEvent,
    model::{Blocked, CreateFailure, LaunchId, PendingChange, PodEvent, Task},
    questions::Report,
};

/// A plugin that builds an empty pod, or says that it cannot.
#[derive(Debug)]
struct Fake {
    builds: Result<(), &'static str>,
    needs_inputs: bool,
}

impl Plugin for Fake {
    fn id(&self) -> &'static str {
        "fake"
    }
    fn task_types(&self) -> &'static [&'static str] {
        &[]
    }
    fn resource(&self) -> Resource {
        Resource::POD
    }
    fn needs_inputs(&self, _: &TaskContext) -> bool {
        self.needs_inputs
    }
    fn build(&self, _: &TaskContext) -> Result<Value, BuildError> {
        self.builds.map(|()| json!({})).map_err(|code| BuildError {
            code,
            message: "no image".to_owned(),
        })
    }
    fn phase(&self, _: &TaskContext, _: &Value, _: Timestamp) -> PhaseInfo {
        PhaseInfo::of(Phase::Undefined, "")
    }
}

/// A world for one decision, changed by adjectives.
#[derive(Clone)]
pub(in crate::decide) struct World {
    pub(in crate::decide) action: Action,
    pub(in crate::decide) max_attempts: u32,
    pub(in crate::decide) builds: Result<(), &'static str>,
    pub(in crate::decide) state: Result<PluginState, StateError>,
    pub(in crate::decide) info: PhaseInfo,
    pub(in crate::decide) outcome: Seen<Outcome>,
    /// `None` for a task that needs none.
    pub(in crate::decide) inputs: Option<Seen<()>>,
    /// `None` where its store has no directories.
    pub(in crate::decide) directory: Option<Seen<()>>,
    pub(in crate::decide) pending: Vec<PendingChange>,
    pub(in crate::decide) pod_events: Vec<PodEvent>,
    pub(in crate::decide) blocked: Option<CreateFailure>,
    pub(in crate::decide) not_before: Option<Timestamp>,
    pub(in crate::decide) cache: Cache,
    pub(in crate::decide) config: K8sConfig,
    pub(in crate::decide) now: Timestamp,
}

/// A valid action with its finalizer.
pub(in crate::decide) fn action() -> World {
    let object = json!({
        "metadata": {
            "name": "r-a", "namespace": "flyte", "uid": "u", "resourceVersion": "7",
            "finalizers": [FINALIZER_PLUGIN],
        },
        "spec": {"runName": "r", "project": "p", "domain": "d", "actionName": "a", "taskType": "t",
                 "runOutputBase": "file:///out", "inputUri": "file:///in"},
    });
    World {
        action: Action::of(object).unwrap(),
        max_attempts: 1,
        builds: Ok(()),
        state: Ok(PluginState::default()),
        info: PhaseInfo::of(Phase::Undefined, ""),
        outcome: Seen::Present(Outcome::Complete),
        inputs: None,
        directory: None,
        pending: Vec::new(),
        pod_events: Vec::new(),
        blocked: None,
        not_before: None,
        cache: Cache::None,
        config: K8sConfig::default(),
        now: EPOCH,
    }
}

impl World {
    pub(in crate::decide) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// This was published of its attempt.
    pub(in crate::decide) fn started(self, phase: Phase, version: u32, reason: &str) -> Self {
        self.with(|it| {
            let status = &mut it.action.status;
            status.attempts = status.attempts.max(1);
            phase.published().clone_into(&mut status.plugin_phase);
            status.plugin_phase_version = version;
            let state = PluginState {
                launch: Launch::Started,
                k8s: K8sState {
                    phase,
                    version,
                    reason: reason.to_owned(),
                },
                ..PluginState::default()
            };
            status.plugin_state = state.encode();
            status.plugin_state_version = STATE_VERSION;
            status::enter(status, &PhaseInfo::of(phase, reason), EPOCH);
            it.state = Ok(state);
        })
    }

    /// Its pod is there, and says this.
    pub(in crate::decide) fn pod(self, info: PhaseInfo) -> Self {
        self.pod_of(info, |_| {})
    }

    pub(in crate::decide) fn pod_of(
        self,
        info: PhaseInfo,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        self.with(|it| {
            let launch = LaunchId::of(&it.action.target, &it.action.status);
            let mut pod = json!({
                "metadata": {
                    "name": format!("r-a-{}", launch.attempt - 1), "namespace": "flyte", "uid": "pod",
                    "annotations": {ANNOTATION_LAUNCH: launch.to_string()},
                },
                "spec": {"nodeName": "n"},
            });
            change(&mut pod);
            let child = Child::of(Resource::POD, &pod, &launch);
            it.action.children.current = Seen::Present(child);
            it.info = info;
        })
    }

    /// Its pod said this so many milliseconds ago, and no status says so.
    pub(in crate::decide) fn pending(self, info: PhaseInfo, ago: i64) -> Self {
        self.with(|it| {
            let at = it.now - jiff::SignedDuration::from_millis(ago);
            it.pending.push(PendingChange { info, at });
        })
    }

    /// This happened to its pod so many milliseconds ago, and no status says so.
    pub(in crate::decide) fn pod_event(self, note: &str, ago: i64) -> Self {
        self.with(|it| {
            let recorded_at = it.now - jiff::SignedDuration::from_millis(ago);
            it.pod_events.push(PodEvent {
                note: note.to_owned(),
                created_at: Timestamp::from_second(recorded_at.as_second()).unwrap(),
                recorded_at,
                is_replayed: false,
            });
        })
    }

    pub(in crate::decide) fn deleting(self) -> Self {
        self.with(|it| it.action.is_deleting = true)
    }

    pub(in crate::decide) fn observed(&self) -> Observed {
        let mut action = self.action.clone();
        let attempt = action.attempt();
        let template = TaskTemplate::default();
        let config = Config::default();
        let context = TaskContext::of(
            &action.object,
            &action.spec,
            template.clone(),
            attempt,
            &config,
        );
        action.work = Work::Task(Box::new(Task {
            plugin: Arc::new(Fake {
                builds: self.builds,
                needs_inputs: self.inputs.is_some(),
            }),
            context: TaskContext {
                max_attempts: self.max_attempts,
                ..context.unwrap()
            },
            state: self.state.clone(),
            info: self.info.clone(),
            owed: owes(&self.info, &template),
            outcome: asked(&self.outcome, self.now),
            inputs: asked(self.inputs.as_ref().unwrap_or(&Seen::Absent), self.now),
            directory: self.directory.as_ref().map(|it| asked(it, self.now)),
            pending: self.pending.clone(),
            pod_events: self.pod_events.clone(),
            to_remember: None,
            new_head: None,
            blocked: self
                .blocked
                .clone()
                .map(|kind| Blocked { since: EPOCH, kind }),
            not_before: self.not_before,
            cache: self.cache.clone(),
        }));
        Observed {
            now: self.now,
            action: Seen::Present(action),
        }
    }

    pub(in crate::decide) fn plan(&self) -> ActionPlan {
        plan_of(&self.config, self.observed())
    }
}

/// The plan, and what follows from its events once the run service has acknowledged them.
pub(in crate::decide) fn plan_of(config: &K8sConfig, mut observed: Observed) -> ActionPlan {
    let policy = Policy::default();
    let mut plan = of_observed(&policy, config, &observed);
    let told = plan.actions.iter().find_map(report_of).cloned();
    let at = plan
        .actions
        .iter()
        .position(|step| report_of(step).is_some());
    let (Some(told), Some(at), Seen::Present(action)) = (told, at, &mut observed.action) else {
        return plan;
    };
    action.reported = Asked::Answered {
        at: observed.now,
        answer: told,
    };
    let acknowledged = of_observed(&policy, config, &observed);
    plan.actions.truncate(at + 1);
    // What stands before the events is decided again.
    let follows = acknowledged.actions.into_iter().skip(at);
    let follows =
        follows.filter(|step| !matches!(step, Do::Used(id) if id.kind == "run_service_report"));
    plan.actions.extend(follows);
    plan.next = acknowledged.next;
    plan
}

pub(in crate::decide) fn report_of(step: &Step) -> Option<&Arc<Report>> {
    if let Do::Ask(TaskQuestion::Report(report)) = step {
        Some(report)
    } else {
        None
    }
}

fn event(event: &ActionEvent) -> String {
    let phase = event.phase.as_str_name();
    let phase = phase.trim_start_matches("ACTION_PHASE_");
    let notes = event.reasons.iter();
    let notes = notes.filter(|it| it.reason.starts_with("event:"));
    let notes: String = notes.map(|it| format!(" {}", it.reason)).collect();
    // Of launches after the first one, behind how many system failures they come.
    let (n_failures, version) = (event.version >> 16, event.version & 0xffff);
    let launch = (n_failures > 0).then(|| format!("+{n_failures}"));
    let launch = launch.unwrap_or_default();
    format!(
        "report {phase}.{version}{launch} of {}{notes}",
        event.attempt
    )
}

/// How far a question is: not asked where nothing is seen, and failed just now where that is not known.
pub(in crate::decide) fn asked<T: Clone>(seen: &Seen<T>, now: Timestamp) -> Asked<T> {
    match seen {
        Seen::Absent => Asked::NotAsked,
        Seen::Present(answer) => Asked::Answered {
            at: now,
            answer: answer.clone(),
        },
        Seen::Unknown(why) => Asked::Failed {
            at: now,
            why: NoAnswer::Unreachable,
            message: why.message.clone(),
        },
    }
}

/// A patch: that of the action is always its labels.
fn patched(patch: &Patch) -> String {
    if patch.target.resource == TASK_ACTION {
        return "label".to_owned();
    }
    format!("patch {} with {}", patch.target.name, patch.patch)
}

/// A plan in words.
pub(in crate::decide) fn words(plan: &ActionPlan) -> String {
    let mut words: Vec<String> = plan.actions.iter().map(step).collect();
    words.push(match plan.next {
        Next::AwaitChange => "await".to_owned(),
        Next::After(time) => format!("after {time:?}"),
    });
    words.join("; ")
}

/// What a plan has the process remember.
fn noted(fact: &Fact) -> String {
    match fact {
        Fact::NextLaunch(launch, at) => {
            format!(
                "launch {launch} after {}s",
                at.as_second() - EPOCH.as_second()
            )
        }
        Fact::Unread(Some(_)) => "note that it is not seen".to_owned(),
        Fact::Unread(None) => "note that it is seen".to_owned(),
        Fact::Told(_) => "note that it is told".to_owned(),
        Fact::Unlisted(Some(_)) => "note that it waits for a list".to_owned(),
        Fact::Unlisted(None) => "note that it waits for no list".to_owned(),
        fact @ (Fact::Pending(_) | Fact::Head(_) | Fact::Slot(_) | Fact::Gone(_)) => {
            format!("note {fact:?}")
        }
    }
}

pub(in crate::decide) fn step(step: &Step) -> String {
    match step {
        Do::Persist(record) => {
            let status = &record.status;
            let ended = status.is_terminal().then(|| {
                let failed = status.condition(longshore_api::flyte::CONDITION_FAILED);
                failed.map_or("completed".to_owned(), |it| {
                    format!("failed {}: {}", it.reason, it.message)
                })
            });
            let phase = status.plugin_phase.trim_start_matches("Phase");
            let mut words = format!(
                "persist {phase}.{} of {}",
                status.plugin_phase_version, status.attempts
            );
            if status.system_failures > 0 {
                words.push_str(&format!(" +{}", status.system_failures));
            }
            if status.cache_status > 0 {
                words.push_str(&format!(" cache {}", status.cache_status));
            }
            if status.plugin_state.is_empty() {
                words.push_str(" (nothing started)");
            }
            ended.map_or(words.clone(), |ended| format!("{words} {ended}"))
        }
        Do::Create(create) => {
            let name = create.object["metadata"]["name"].as_str().unwrap();
            format!("create {name} as {}", create.identity.value())
        }
        Do::Patch(patch) => patched(patch),
        Do::Delete(delete) => format!("delete {}", delete.target.name),
        Do::Call(note) => noted(&note.fact),
        Do::Announce(announcement) => format!("warn {}", announcement.reason),
        Do::Used(id) => format!("use {}", id.kind),
        Do::Ask(question) => match question {
            TaskQuestion::Report(report) => {
                let events: Vec<String> = report.events.iter().map(event).collect();
                events.join("; ")
            }
            TaskQuestion::Inputs { .. } => "read inputs".to_owned(),
            TaskQuestion::Directory { .. } => "make directory".to_owned(),
            TaskQuestion::Outcome { .. } => "look".to_owned(),
            TaskQuestion::Outputs { .. } => "write outputs".to_owned(),
            TaskQuestion::Key { .. } => "make key".to_owned(),
            TaskQuestion::LookUp { .. } => "look up".to_owned(),
            TaskQuestion::Cached { .. } => "read cached".to_owned(),
            TaskQuestion::Copy { .. } => "copy".to_owned(),
            TaskQuestion::Exists { .. } => "check outputs".to_owned(),
            TaskQuestion::Reserve { heartbeat, .. } => format!("reserve for {heartbeat:?}"),
            TaskQuestion::Put { .. } => "keep".to_owned(),
            TaskQuestion::Release { .. } => "give up".to_owned(),
            TaskQuestion::Connector { call, .. } => match call.request {
                Request::Create(_) | Request::Get(_) => "ask".to_owned(),
                Request::Delete(_) => "end".to_owned(),
            },
        },
        Do::EnsureFinalizer { .. } => "finalizer".to_owned(),
        Do::RemoveFinalizer { target, .. } => format!("release {}", target.name),
    }
}
