//! Loads what a round is decided upon, and assembles it.
//!
//! [`Observer::load`] reads caches, memory and answers, and changes nothing but caches. [`Loaded::assemble`] is pure: it
//! turns what was read into the [`Observed`] that a decision sees.
//!
//! In the usual course of an attempt no request goes to the API server: caches hold actions and pods, and the kit starts
//! no round before they show what earlier rounds wrote. Where the cache does not show a resource whose absence would mean
//! something (it was there, or its name is taken, or its action is to go), a live read has the last word.

mod assemble;
mod choose;

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_SUCCEEDED, Condition};
use longshore_core::{Asked, Class, Classify, Incarnation, ObjectRef, Resource, Seen};
use longshore_kit::{Answers, Cache, Memory, RawObject, Requests};
use longshore_plugins::{
    Config, HeadPod, Phase, PhaseInfo, PluginState, Runner, SlotNeed, TaskContext,
    pod_template_name, subdomain,
};
use longshore_proto::flyteidl2::core::TaskTemplate;
use prost::Message;
use serde_json::Value;

use self::choose::Chosen;
use crate::{
    catalog::Cache as CacheState,
    data::TaskData,
    decide::Observed,
    facts::Facts,
    kinds::Kinds,
    model::{
        Abort, Action, ActionKey, Blocked, CreateFailure, Invalid, LaunchId, QuotaScope,
        RemoteTask, SlotState, Task, Work,
    },
    pod_templates::PodTemplates,
    questions::{ActionAnswers, TaskQuestion},
    remote::{AskConnectors, Slots, stored},
    sayings::Sayings,
    service::Plugins,
};

/// Reads for rounds.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) actions: Arc<Cache<RawObject>>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) pod_templates: PodTemplates,
    pub(crate) memory: Memory<ActionKey, Facts>,
    pub(crate) slots: Slots,
    pub(crate) requests: Requests,
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) config: Config,
    pub(crate) data: Arc<dyn TaskData>,
    /// Whether outputs are cached, where templates say so.
    pub(crate) is_caching: bool,
    /// Whether somebody receives the events of actions.
    pub(crate) has_event_receiver: bool,
    pub(crate) connectors: Arc<dyn AskConnectors>,
    /// How many actions have just said what holds them.
    pub(crate) sayings: Sayings,
}

/// All that a round has read.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<'a> {
    pub(crate) now: Timestamp,
    pub(crate) key: &'a ActionKey,
    pub(crate) answers: &'a Answers<TaskQuestion>,
    pub(crate) action: Seen<LoadedAction>,
}

/// An action, and what was read for it.
#[derive(Clone, Debug)]
pub(crate) struct LoadedAction {
    /// The action as its object says, with its work.
    pub(crate) action: Action,
    /// What this process remembers of it.
    pub(crate) facts: Arc<Facts>,
    /// What it has of the quota of jobs.
    pub(crate) slot: SlotState,
    /// Whether outputs are cached, where templates say so.
    pub(crate) is_caching: bool,
    /// `None` where the action has no resources, or they do not matter any more.
    pub(crate) children: Option<LoadedChildren>,
}

/// The resources of an action.
#[derive(Clone, Debug)]
pub(crate) struct LoadedChildren {
    pub(crate) kind: Resource,
    /// That of the current attempt.
    pub(crate) current: Seen<Value>,
    /// Whether it was read from the API server.
    pub(crate) is_read: bool,
    /// Those of earlier attempts that are there.
    pub(crate) earlier: Vec<Value>,
    /// Which pod is the head of a resource with many pods.
    pub(crate) head: Option<HeadPod>,
    /// That pod; only read where there is a head.
    pub(crate) head_pod: Option<Seen<Value>>,
    /// The PodTemplate that the next resource is built on, where its template names one.
    pub(crate) pod_template: Option<Seen<Value>>,
    /// What its plugin has an abort do, where that is not the usual.
    pub(crate) abort: Option<Abort>,
}

/// An action whose progress is not known.
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
        Ok(self.load(key, now, answers).await?.assemble())
    }

    async fn load<'a>(
        &self,
        key: &'a ActionKey,
        now: Timestamp,
        answers: &'a Answers<TaskQuestion>,
    ) -> Result<Loaded<'a>, Unreadable> {
        let fail = |source| Unreadable {
            key: key.clone(),
            source,
        };
        let action = match self.actions.get(&key.namespace, &key.name) {
            Seen::Present(object) => {
                let object = object.to_value().map_err(fail)?;
                let action = Action::of(object).map_err(fail)?;
                Seen::Present(self.load_action(key, action, now, answers).await)
            }
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        };
        Ok(Loaded {
            now,
            key,
            answers,
            action,
        })
    }

    async fn load_action(
        &self,
        key: &ActionKey,
        mut action: Action,
        now: Timestamp,
        answers: &Answers<TaskQuestion>,
    ) -> LoadedAction {
        let incarnation = &action.incarnation();
        let facts = self.memory.get(key, incarnation);
        let answers = ActionAnswers {
            answers,
            incarnation,
            facts: &facts,
        };
        let has_work = self.has_work(&action);
        if has_work {
            if matches!(action.work, Work::Nothing) {
                let work = self.work(key, &action, &facts, now);
                action.work = work.unwrap_or_else(Work::Invalid);
            }
            action.asked = answers.ids();
            action.has_event_receiver = self.has_event_receiver;
            action.reported = answers.reported();
            action.unanswered = answers.unanswered();
        }
        action.said.at = facts.said_at;
        action.said.is_crowded = self.sayings.is_crowded(now);
        action.unlisted_since = facts.unlisted_since;
        action.undone = facts.undone.clone();
        action.form = facts.form;
        let children = if has_work && !matches!(action.work, Work::Remote(_)) {
            Some(self.load_children(&action, &facts).await)
        } else {
            None
        };
        LoadedAction {
            slot: self.slots.state_of(facts.slot.as_ref()),
            is_caching: self.is_caching,
            action,
            facts,
            children,
        }
    }

    /// Whether something is to be done for an action, or may be left over of it.
    fn has_work(&self, action: &Action) -> bool {
        let is_let_go = action.is_deleting && !action.has_finalizer;
        let succeeded = action.status.condition(CONDITION_SUCCEEDED);
        let may_have_left_overs = self.config.k8s.delete_resource_on_finalize
            || !succeeded.is_some_and(Condition::is_true);
        let has_ended = action.status.is_terminal() && !action.is_deleting && !may_have_left_overs;
        !(is_let_go || has_ended || matches!(action.work, Work::Condition))
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

    /// The actions whose jobs run, by what their statuses say. `Unknown` before the first list.
    pub(crate) fn running_jobs(&self) -> Seen<Vec<(ActionKey, Incarnation, QuotaScope)>> {
        let running = |object: &RawObject| {
            let action = Action::of(object.to_value().ok()?).ok()?;
            let (spec, status) = (&action.spec, &action.status);
            let plugin = match self.plugins.resolve(&spec.task_type)? {
                Runner::Remote(plugin) => plugin,
                Runner::Resource(_) => self.plugins.of_connectors(&spec.task_type)?,
            };
            let is_running =
                !status.is_terminal() && plugin.slot(stored(status)) == SlotNeed::Taken;
            let key = ActionKey {
                namespace: action.target.namespace.clone(),
                name: action.target.name.clone(),
            };
            let scope = QuotaScope {
                project: spec.project.clone(),
                domain: spec.domain.clone(),
            };
            is_running.then(|| (key, action.incarnation(), scope))
        };
        let actions = self.actions.all();
        actions.map(|actions| actions.iter().filter_map(|it| running(it)).collect())
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
        let Chosen {
            runner,
            unlisted,
            host,
        } = self.chosen(runner, &context, action);
        self.supports_inputs(&runner, &context)?;
        let plugin = match runner {
            Runner::Resource(plugin) => plugin,
            Runner::Remote(plugin) => {
                let task = RemoteTask {
                    unlisted,
                    connector: host,
                    ..RemoteTask::new(plugin, context)
                };
                return Ok(Work::Remote(Box::new(task)));
            }
        };
        let status = &action.status;
        let launch = LaunchId::of(&action.target, status);
        let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
        if let Ok(state) = &state {
            context.last = state.k8s.clone();
        }
        context.takes_pod_templates = self.kinds.takes_pod_templates(plugin.resource());
        let has_directories = self.data.has_directories(&context.paths.output_prefix);
        let missing = self.kinds.missing(plugin.resource());
        let missing = missing.map(|definition| Blocked {
            since: now,
            kind: CreateFailure::NotServed(definition),
        });
        Ok(Work::Task(Box::new(Task {
            plugin,
            context,
            state,
            info: PhaseInfo::of(Phase::Undefined, ""),
            owed: None,
            outcome: Asked::NotAsked,
            inputs: Asked::NotAsked,
            directory: has_directories.then_some(Asked::NotAsked),
            pending: Vec::new(),
            pod_events: Vec::new(),
            to_remember: None,
            new_head: None,
            blocked: missing.or_else(|| facts.blocked(&launch)),
            not_before: facts.not_before(&launch),
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
    /// inputs were not read, and no status would say why.
    fn supports_inputs(&self, runner: &Runner, context: &TaskContext) -> Result<(), Invalid> {
        let url = &context.paths.input;
        let Err(why) = self.data.supports(url) else {
            return Ok(());
        };
        let needs_inputs = match runner {
            Runner::Resource(plugin) => plugin.needs_inputs(context),
            Runner::Remote(_) => context.declares_inputs(),
        };
        if needs_inputs && !url.is_empty() {
            return Err(Invalid::spec(why.to_string()));
        }
        Ok(())
    }

    async fn load_children(&self, action: &Action, facts: &Facts) -> LoadedChildren {
        let is_launched_next = match &action.work {
            Work::Task(task) => task.is_not_started(),
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => true,
        };
        let mut earlier = Vec::new();
        if is_launched_next || action.is_deleting {
            let targets = (1..action.attempt()).map(|attempt| address(action, attempt));
            earlier.extend(targets.filter_map(|target| self.kinds.get(&target).present().cloned()));
        }
        let target = address(action, action.attempt());
        let mut current = self.kinds.get(&target);
        let launch = LaunchId::of(&action.target, &action.status);
        let is_known_gone = facts.gone.as_ref() == Some(&launch);
        let is_read = current.is_absent() && counts(action) && !is_known_gone;
        if is_read {
            current = self.live(&target).await;
        }
        let (mut head, mut pod_template) = (None, None);
        let namespace = &action.target.namespace;
        if let Work::Task(task) = &action.work {
            let context = &task.context;
            if let Seen::Present(resource) = &current {
                head = task.plugin.head_pod(context, resource);
            }
            if current.is_absent() && is_launched_next && !action.is_deleting {
                let name = pod_template_name(&context.template, &self.config.k8s);
                pod_template = name.map(|name| self.pod_templates.get(namespace, name));
            }
        }
        LoadedChildren {
            abort: self.load_abort(action, &current, facts).await,
            kind: target.resource,
            current,
            is_read,
            earlier,
            head_pod: head.as_ref().map(|head| self.kinds.head(namespace, head)),
            head,
            pod_template,
        }
    }

    /// What an abort does with the resource of an action that is being deleted.
    async fn load_abort(
        &self,
        action: &Action,
        current: &Seen<Value>,
        facts: &Facts,
    ) -> Option<Abort> {
        let (Work::Task(task), Seen::Present(resource)) = (&action.work, current) else {
            return None;
        };
        if !action.is_deleting || !action.has_finalizer {
            return None;
        }
        let behavior = task.plugin.on_abort(&task.context, resource);
        if behavior.is_usual() {
            return None;
        }
        let object = match &behavior.object {
            Some(object) => self.live(object).await,
            None => current.clone(),
        };
        Some(Abort {
            behavior,
            object,
            refused: facts.abort_refused.clone(),
        })
    }

    async fn live(&self, target: &ObjectRef) -> Seen<Value> {
        match self.requests.get(target).await {
            Ok(resource) => resource.into(),
            Err(error) => Seen::Unknown(error.to_unknown()),
        }
    }
}

/// Whether it would mean something that the resource of the current attempt is not there.
fn counts(action: &Action) -> bool {
    if action.is_deleting {
        return true;
    }
    let Work::Task(task) = &action.work else {
        return false;
    };
    let blocked = task.blocked.as_ref().map(|blocked| &blocked.kind);
    let is_taken = blocked == Some(&CreateFailure::NameTaken);
    !action.status.is_terminal() && (!task.is_not_started() || is_taken)
}

/// The address of the resource of an attempt. Of an action that cannot be run any more, the resources were pods with the
/// usual names.
fn address(action: &Action, attempt: u32) -> ObjectRef {
    let generated_name = format!("{}-{}", action.target.name, attempt.saturating_sub(1));
    let (resource, name) = match &action.work {
        Work::Task(task) => {
            let mut context = task.context.clone();
            if context.attempt != attempt {
                context.generated_name = generated_name;
            }
            (task.plugin.resource(), task.plugin.resource_name(&context))
        }
        Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => {
            (Resource::POD, subdomain(&generated_name))
        }
    };
    ObjectRef {
        resource,
        namespace: action.target.namespace.clone(),
        name,
        uid: None,
    }
}
