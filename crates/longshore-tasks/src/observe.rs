//! Reads what a round is decided upon.
//!
//! In the usual course of an attempt nothing is asked of the API server: caches hold actions and pods, and the kit
//! starts no round before they show what earlier rounds wrote. Where the cache does not show a resource whose absence
//! would mean something (it was there, or its name is taken, or its action is to go), a live read has the last word.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_SUCCEEDED, Condition, TaskActionStatus};
use longshore_core::{Asked, Class, Classify, Incarnation, ObjectRef, Resource, Seen};
use longshore_kit::{Answers, Cache, Memory, RawObject, Requests};
use longshore_plugins::{
    Config, ErrorFile, Phase, PhaseInfo, Plugin, PluginState, Runner, TaskContext, subdomain,
};
use longshore_proto::flyteidl2::core::TaskTemplate;
use prost::Message;
use serde_json::Value;

use crate::{
    catalog::{self, Cache as CacheState},
    data::{Outcome, TaskData},
    decide::{Observed, owes},
    facts::Facts,
    happenings::Happenings,
    heads::Heads,
    kinds::Kinds,
    model::{
        Action, ActionKey, Belongs, Child, Invalid, LaunchId, Obstacle, ObstacleKind, RemoteTask,
        Task, Work,
    },
    noticed::NoticedChanges,
    pod_templates::PodTemplates,
    questions::{Known, Report, TaskQuestion},
    remote::Rooms,
    service::Plugins,
};

/// Reads for rounds.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) actions: Arc<Cache<RawObject>>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) pod_templates: PodTemplates,
    pub(crate) memory: Memory<ActionKey, Facts>,
    pub(crate) rooms: Rooms,
    pub(crate) requests: Requests,
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) config: Config,
    pub(crate) data: Arc<dyn TaskData>,
    pub(crate) noticed: NoticedChanges,
    pub(crate) happenings: Arc<Happenings>,
    /// Whether outputs are cached, where templates say so.
    pub(crate) is_caching: bool,
}

/// An action of which nobody can tell how far it is.
#[derive(Debug, thiserror::Error)]
#[error("the status of TaskAction {key} does not have the shape of its schema")]
pub(crate) struct Unreadable {
    key: ActionKey,
    source: serde_json::Error,
}

impl Classify for Unreadable {
    fn class(&self) -> Class {
        Class::Invalid
    }
}

impl Observer {
    /// Reads all that a round about an action needs.
    pub(crate) async fn observe(
        &self,
        key: &ActionKey,
        now: Timestamp,
        answers: &Answers<TaskQuestion>,
    ) -> Result<Observed, Unreadable> {
        let fail = |source| Unreadable {
            key: key.clone(),
            source,
        };
        let action = match self.actions.get(&key.namespace, &key.name) {
            Seen::Present(object) => {
                let object = object.to_value().map_err(fail)?;
                let action = Action::of(object).map_err(fail)?;
                let incarnation = &incarnation(&action);
                let facts = self.memory.get(key, incarnation);
                let known = Known {
                    answers,
                    incarnation,
                    facts: &facts,
                };
                Seen::Present(self.read(key, action, now, known).await)
            }
            Seen::Absent => {
                self.forget(key);
                Seen::Absent
            }
            Seen::Unknown(why) => Seen::Unknown(why),
        };
        Ok(Observed { now, action })
    }

    /// An action as it is now, with the work that it asks for; `None` where there is none.
    pub(crate) fn current(&self, key: &ActionKey, now: Timestamp) -> Option<Action> {
        let object = self.actions.get(&key.namespace, &key.name);
        let mut action = Action::of(object.present()?.to_value().ok()?).ok()?;
        if matches!(action.work, Work::Nothing) {
            let work = self.work(key, &action, &Facts::default(), now);
            action.work = work.ok()?;
        }
        Some(action)
    }

    /// What was waiting to be written was, or nobody wants it any more.
    pub(crate) fn written(&self, key: &ActionKey, status: &TaskActionStatus) {
        if status.is_terminal() {
            self.forget(key);
        } else {
            self.noticed.forget(key);
        }
    }

    fn forget(&self, key: &ActionKey) {
        self.noticed.forget(key);
        self.happenings.forget(key);
        self.heads.forget(key);
        self.rooms.leave(key);
    }

    async fn read(
        &self,
        key: &ActionKey,
        mut action: Action,
        now: Timestamp,
        known: Known<'_>,
    ) -> Action {
        let is_let_go = action.is_deleting && !action.has_finalizer;
        if is_let_go || action.status.is_terminal() {
            self.rooms.leave(key);
        }
        let may_have_left_overs =
            self.config.k8s.delete_resource_on_finalize || !has_succeeded(&action);
        let has_ended = action.status.is_terminal() && !action.is_deleting && !may_have_left_overs;
        if is_let_go || has_ended || matches!(action.work, Work::Condition) {
            return action;
        }
        if matches!(action.work, Work::Nothing) {
            action.work = match self.work(key, &action, known.facts, now) {
                Ok(work) => work,
                Err(invalid) => Work::Invalid(invalid),
            };
        }
        action.asked = known.ids();
        action.reported = known.reported();
        // First, because whoever waits for its cache takes no room from others.
        if self.is_caching {
            catalog::see(key, &mut action, known);
        }
        if matches!(action.work, Work::Remote(_)) {
            self.step(key, &mut action, now, known);
        } else {
            self.read_children(key, &mut action, now, known).await;
        }
        action
    }

    /// The current attempt of a task, before anything was read for it.
    fn work(
        &self,
        key: &ActionKey,
        action: &Action,
        facts: &Facts,
        now: Timestamp,
    ) -> Result<Work, Invalid> {
        let spec = &action.spec;
        if let Some(invalid) = Invalid::missing(spec) {
            return Err(invalid);
        }
        let runner = self.plugins.resolve(&spec.task_type);
        let runner = runner.ok_or_else(|| Invalid::plugin(&spec.task_type))?;
        let template = TaskTemplate::decode(spec.task_template.as_slice()).map_err(|error| {
            let message = format!("taskTemplate is no flyteidl2.core.TaskTemplate: {error}");
            Invalid::spec(message)
        })?;
        let attempt = action.attempt();
        let context = TaskContext::of(&action.object, spec, template, attempt, &self.config);
        let mut context = context.map_err(|error| Invalid::spec(error.message))?;
        self.admit(&key.namespace, &context)?;
        self.supports_inputs(&runner, &context)?;
        let plugin = match runner {
            Runner::Resource(plugin) => plugin,
            Runner::Remote(plugin) => {
                return Ok(Work::Remote(Box::new(RemoteTask::new(plugin, context))));
            }
        };
        let status = &action.status;
        let launch = LaunchId::of(&action.target, status);
        let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
        if let Ok(state) = &state {
            context.last = state.k8s.clone();
        }
        let missing = self.kinds.missing(plugin.resource());
        let missing = missing.map(|definition| Obstacle {
            since: now,
            kind: ObstacleKind::NotServed(definition),
        });
        Ok(Work::Task(Box::new(Task {
            plugin,
            context,
            state,
            info: PhaseInfo::of(Phase::Undefined, ""),
            owed: None,
            outcome: Asked::NotAsked,
            inputs: Asked::NotAsked,
            directory: None,
            noticed: Vec::new(),
            happened: Vec::new(),
            obstacle: missing.or_else(|| facts.obstacle(&launch)),
            cache: CacheState::None,
        })))
    }

    /// Whether actions of this namespace may name what this one does.
    fn admit(&self, namespace: &str, context: &TaskContext) -> Result<(), Invalid> {
        let paths = [&context.paths.input, &context.paths.output_prefix];
        for url in paths.into_iter().filter(|url| !url.is_empty()) {
            let admitted = self.data.admits(namespace, url);
            admitted.map_err(|error| Invalid::spec(error.to_string()))?;
        }
        Ok(())
    }

    /// Whether there is a store for the inputs, where the task needs them. Without this the task would fail because its
    /// inputs were not read, and nobody would be told why.
    fn supports_inputs(&self, runner: &Runner, context: &TaskContext) -> Result<(), Invalid> {
        let url = &context.paths.input;
        let Err(why) = self.data.supports(url) else {
            return Ok(());
        };
        let needs_inputs = match runner {
            Runner::Resource(plugin) => plugin.needs_inputs(context),
            Runner::Remote(_) => declares_inputs(context),
        };
        if needs_inputs && !url.is_empty() {
            return Err(Invalid::spec(why.to_string()));
        }
        Ok(())
    }

    async fn read_children(
        &self,
        key: &ActionKey,
        action: &mut Action,
        now: Timestamp,
        known: Known<'_>,
    ) {
        let launch = LaunchId::of(&action.target, &action.status);
        let names = Names::of(action);
        let is_launched_next = match &action.work {
            Work::Task(task) => task.is_not_started(),
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => true,
        };
        if is_launched_next || action.is_deleting {
            let earlier = (1..action.attempt()).map(|attempt| names.address(attempt));
            let earlier = earlier.filter_map(|target| self.cached(&target).present().cloned());
            action.children.earlier = earlier
                .map(|resource| Child::of(names.resource, &resource, &launch))
                .collect();
        }
        let target = names.address(action.attempt());
        let cached = self.cached(&target);
        let resource = if cached.is_absent() && counts(action) && !was_read(action, known.report())
        {
            self.live(&target).await
        } else {
            cached
        };
        action.children.current = resource
            .as_ref()
            .map(|resource| Child::of(names.resource, resource, &launch));
        if let (Work::Task(task), true, false) = (
            &mut action.work,
            action.children.current.is_absent(),
            action.is_deleting,
        ) && task.is_not_started()
            && let Err(why) = self.learn_to_build(task, known)
        {
            action.children.current = Seen::Unknown(why);
        }
        let is_ours = action.children.current.present().is_some_and(is_of_attempt);
        if let (Work::Task(task), Seen::Present(resource), true) =
            (&mut action.work, &resource, is_ours)
        {
            if let Err(why) = self.learn_to_judge(key, task, resource) {
                action.children.current = Seen::Unknown(why);
                return;
            }
            task.info = task.plugin.phase(&task.context, resource, now);
            let is_open = !action.is_deleting && !action.status.is_terminal();
            if let (Ok(state), true) = (&task.state, is_open) {
                let uid = resource["metadata"]["uid"].as_str().unwrap_or_default();
                task.happened = self.happenings.untold(key, uid, state);
                let (stored, info) = (&state.k8s, &task.info);
                task.noticed = self.noticed.see(key, &launch, stored, info, now);
            }
            if is_open {
                task.owed = owes(&task.info, &task.context.template);
                if task.owed.is_some() {
                    let uid = resource["metadata"]["uid"].as_str().unwrap_or_default();
                    task.outcome = known.outcome(uid);
                }
                if task.plugin.needs_error_file(resource) {
                    task.context.error_file = error_file(&task.outcome);
                    task.info = task.plugin.phase(&task.context, resource, now);
                }
            }
        }
    }

    fn cached(&self, target: &ObjectRef) -> Seen<Value> {
        self.kinds.get(target)
    }

    async fn live(&self, target: &ObjectRef) -> Seen<Value> {
        match self.requests.get(target).await {
            Ok(resource) => resource.into(),
            Err(error) => Seen::Unknown(error.to_unknown()),
        }
    }
}

/// What a plugin is told of an attempt that failed by itself.
fn error_file(outcome: &Asked<Outcome>) -> ErrorFile {
    match outcome.answer() {
        Some(Outcome::Failed { is_recoverable, .. }) => ErrorFile::Present {
            is_recoverable: *is_recoverable,
        },
        Some(Outcome::Complete | Outcome::Incomplete(_)) => ErrorFile::Absent,
        None => ErrorFile::Unknown,
    }
}

/// The incarnation of an action that questions are about.
pub(crate) fn incarnation(action: &Action) -> Incarnation {
    Incarnation::of(action.target.uid.clone().unwrap_or_default())
}

fn is_of_attempt(child: &Child) -> bool {
    matches!(
        child.belongs,
        Belongs::ToThisLaunch | Belongs::ToThisAttempt
    )
}

/// Whether it would mean something that the resource of the current attempt is not there.
fn counts(action: &Action) -> bool {
    if action.is_deleting {
        return true;
    }
    let Work::Task(task) = &action.work else {
        return false;
    };
    let obstacle = task.obstacle.as_ref().map(|obstacle| &obstacle.kind);
    let is_taken = obstacle == Some(&ObstacleKind::NameTaken);
    !action.status.is_terminal() && (!task.is_not_started() || is_taken)
}

/// Whether an earlier round has read what this one decides upon: that round made `report`, and this round waits for its
/// acknowledgement or follows it. The report of a deletion has no status: it is made once nothing of the action is left.
fn was_read(action: &Action, report: Option<&Report>) -> bool {
    let Some(report) = report else {
        return false;
    };
    let is_of_this_state =
        report.upon == action.status && (!action.is_deleting || report.status.is_none());
    match &action.reported {
        Asked::UnderWay { .. } => is_of_this_state || !action.is_deleting,
        Asked::Answered { .. } => is_of_this_state,
        Asked::NotAsked | Asked::Failed { .. } | Asked::AskedByAnother => false,
    }
}

/// The names of an action's resources, one per attempt.
struct Names {
    resource: Resource,
    namespace: String,
    action: String,
    /// `None` where the action cannot be run any more; then its resources were pods with the usual names.
    plugin: Option<(Arc<dyn Plugin>, TaskContext)>,
}

impl Names {
    fn of(action: &Action) -> Self {
        let plugin = match &action.work {
            Work::Task(task) => Some((Arc::clone(&task.plugin), task.context.clone())),
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => None,
        };
        let resource = plugin.as_ref().map(|(plugin, _)| plugin.resource());
        Self {
            resource: resource.unwrap_or(Resource::POD),
            namespace: action.target.namespace.clone(),
            action: action.target.name.clone(),
            plugin,
        }
    }

    fn address(&self, attempt: u32) -> ObjectRef {
        let generated = format!("{}-{}", self.action, attempt.saturating_sub(1));
        let name = match &self.plugin {
            Some((plugin, context)) if context.attempt == attempt => plugin.resource_name(context),
            Some((plugin, context)) => plugin.resource_name(&TaskContext {
                generated_name: generated,
                ..context.clone()
            }),
            None => subdomain(&generated),
        };
        ObjectRef {
            resource: self.resource,
            namespace: self.namespace.clone(),
            name,
            uid: None,
        }
    }
}

fn has_succeeded(action: &Action) -> bool {
    let succeeded = action.status.condition(CONDITION_SUCCEEDED);
    succeeded.is_some_and(Condition::is_true)
}

/// Whether the task has inputs.
fn declares_inputs(context: &TaskContext) -> bool {
    let interface = context.template.interface.as_ref();
    let inputs = interface.and_then(|interface| interface.inputs.as_ref());
    inputs.is_some_and(|inputs| !inputs.variables.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_test::EPOCH;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_report_was_made_upon_is_not_read_again() {
        let object = json!({
            "metadata": {"name": "r-a", "namespace": "flyte", "uid": "u"},
            "spec": {"runName": "r", "actionName": "a", "taskType": "t"},
        });
        let action = Action::of(object).unwrap();
        let mut next = action.status.clone();
        next.plugin_phase_version += 1;
        let report = |upon: &TaskActionStatus, status: Option<&TaskActionStatus>| {
            Arc::new(Report {
                events: Vec::new(),
                upon: upon.clone(),
                status: status.cloned(),
            })
        };
        let of_change = report(&action.status, Some(&next));
        let of_deletion = report(&action.status, None);
        let of_earlier = report(&next, Some(&next));
        for (made, is_deleting, under_way, answered) in [
            (&of_change, false, true, true),
            (&of_earlier, false, true, false),
            (&of_deletion, true, true, true),
            // Made before the action was deleted: what is left of the action is not known.
            (&of_change, true, false, false),
        ] {
            let was_read = |reported| {
                let action = Action {
                    reported,
                    is_deleting,
                    ..action.clone()
                };
                was_read(&action, Some(made.as_ref()))
            };
            let answer = Arc::clone(made);
            assert_eq!(was_read(Asked::UnderWay { since: EPOCH }), under_way);
            assert_eq!(was_read(Asked::Answered { at: EPOCH, answer }), answered);
            assert!(!was_read(Asked::NotAsked));
        }
        assert!(!was_read(&action, None));
    }
}
