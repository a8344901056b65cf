//! A TaskAction as a decision sees it, and the resources made for it.

mod abort;
mod form;
mod held;
mod slots;

use std::{fmt, str::FromStr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use longshore_api::{
    flyte::{
        self, CONDITION_WAITING, Condition, FINALIZER_PLUGIN, FINALIZER_RESOURCE, LABEL_ATTEMPT,
        REASON_INVALID_SPEC, REASON_PLUGIN_NOT_FOUND, TaskActionSpec, TaskActionStatus,
    },
    tasks::ANNOTATION_LAUNCH,
};
use longshore_core::{Asked, Incarnation, ObjectRef, QuestionId, Resource, Seen};
use longshore_k8s::metadata::is_deleting;
use longshore_kit::Turn;
use longshore_plugins::{
    Call, HeadPod, K8sState, Launch, Phase, PhaseInfo, Plugin, PluginState, ReasonInfo,
    RemotePlugin, StateError, Step, TASK_ACTION, TaskContext,
};
use serde_json::Value;

use crate::{
    catalog::Cache,
    data::{Outcome, Owed},
    questions::Report,
};

pub use abort::{Abort, AbortRefused};
pub(crate) use form::InForm;
pub use held::{Blocked, CreateFailure, Refused, Said, Unanswered, Undone};
pub use longshore_core::StatusForm;
pub use slots::{QuotaScope, SlotChange, SlotState};

/// The address of a TaskAction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ActionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A TaskAction, and what was read for it.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its address, with its uid.
    pub target: ObjectRef,
    /// The object as it was seen; a status is written only upon this version of it.
    pub object: Arc<Value>,
    /// Its spec. Empty where it cannot be read.
    pub spec: TaskActionSpec,
    /// Its status on record.
    pub status: TaskActionStatus,
    /// Whether it has a deletion timestamp.
    pub is_deleting: bool,
    /// Whether it has our finalizer.
    pub has_finalizer: bool,
    /// What is to be done for it.
    pub work: Work,
    /// The resources made for it.
    pub children: Children,
    /// The questions about it that are under way, or whose answers wait to be used up.
    pub asked: Vec<QuestionId>,
    /// Whether somebody receives its events, and acknowledges each before a status says the same.
    pub has_event_receiver: bool,
    /// What the run service has acknowledged, and no status says yet.
    pub reported: Asked<Arc<Report>>,
    /// The questions about it that have no answer.
    pub unanswered: Vec<Unanswered>,
    /// What its status says of what holds it.
    pub said: Said,
    /// What the API server does not do for it.
    pub undone: Undone,
    /// Since when it has waited for connectors that have not listed their task types yet, as far as this process remembers.
    pub unlisted_since: Option<Timestamp>,
    /// The form in which a status is written.
    pub form: StatusForm,
}

/// What is to be done for an action.
#[derive(Clone, Debug)]
pub enum Work {
    /// Run a task.
    Task(Box<Task>),
    /// Run a task that makes no resource.
    Remote(Box<RemoteTask>),
    /// Wait for a person.
    Condition,
    /// Nothing: it cannot be run.
    Invalid(Invalid),
    /// Nothing: it ended, and nothing of it is left over.
    Nothing,
}

/// Why an action cannot be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalid {
    /// Reason of its conditions.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

/// The current attempt of a task.
#[derive(Clone, Debug)]
pub struct Task {
    /// The plugin of its task type.
    pub plugin: Arc<dyn Plugin>,
    /// What the plugin knows about the attempt.
    pub context: TaskContext,
    /// How far it is, as the status says.
    pub state: Result<PluginState, StateError>,
    /// What the plugin says about the resource of the attempt; `Undefined` where there is none.
    pub info: PhaseInfo,
    /// What the attempt owes; `None` as long as it has not ended by itself.
    pub owed: Option<Owed>,
    /// What the attempt left behind.
    pub outcome: Asked<Outcome>,
    /// Whether the inputs were read, of a task whose resource cannot be built without them.
    pub inputs: Asked<()>,
    /// Whether the directory that the attempt is to write to was made; `None` where its store has no directories.
    pub directory: Option<Asked<()>>,
    /// Changes that were observed and are not on record yet, oldest first.
    pub pending: Vec<PendingChange>,
    /// Events about the resource that are not published yet, oldest first.
    pub pod_events: Vec<PodEvent>,
    /// The same for the next round, where this process remembers others.
    pub to_remember: Option<PendingChanges>,
    /// The pod of an operator whose changes lead to a round from now on; `None` where they do already.
    pub new_head: Option<HeadPod>,
    /// Why the last create of this launch failed.
    pub blocked: Option<Blocked>,
    /// When the launch may begin, where a system failure came before it.
    pub not_before: Option<Timestamp>,
    /// What is known of its cache.
    pub cache: Cache,
}

impl Task {
    /// Whether the status says that nothing of the launch exists.
    pub fn is_not_started(&self) -> bool {
        matches!(&self.state, Ok(state) if state.launch == Launch::NotStarted)
    }
}

/// The current attempt of a task that makes no resource.
#[derive(Clone, Debug)]
pub struct RemoteTask {
    /// The plugin of its task type.
    pub plugin: Arc<dyn RemotePlugin>,
    /// What the plugin knows about the attempt.
    pub context: TaskContext,
    /// The connectors that have to list their task types before the next step, in words; `None` where none has to.
    pub unlisted: Option<String>,
    /// What the plugin says now.
    pub step: Result<Step, StateError>,
    /// Whether the inputs were read, where the next step needs them; without them no step is taken.
    pub inputs: Option<Asked<()>>,
    /// What the attempt left behind, where it ended well and returned nothing.
    pub outcome: Asked<Outcome>,
    /// Whether the outputs that it returned are written.
    pub written: Asked<()>,
    /// What has to become of its slot before its next step; `None` where nothing has to.
    pub slot: Option<SlotChange>,
    /// Whether its connector was asked from the state on record, and has to answer before the next step.
    pub is_under_way: bool,
    /// How far the request is that the step announces; `None` where it was not asked for.
    pub turn: Option<Turn>,
    /// Whether the step was taken upon the answer that its job was begun.
    pub is_begun: bool,
    /// The question whose answer the step was taken upon, where it does not stay until another state is on record.
    pub answered: Option<QuestionId>,
    /// What is to be asked so that it does not go on.
    pub abort: Option<Call>,
    /// Whether that was asked from the state on record.
    pub aborted: Asked<()>,
    /// What is known of its cache.
    pub cache: Cache,
    /// The host of its questions to its connector ([`AskConnectors::host`](crate::remote::AskConnectors::host)).
    pub connector: String,
}

/// A change of an attempt, and when it was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingChange {
    /// What the plugin said.
    pub info: PhaseInfo,
    /// When it said so first.
    pub at: Timestamp,
}

/// The changes of a launch that are not on record yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingChanges {
    /// The launch; empty where there are none.
    pub launch: String,
    /// What was on record when they were observed.
    pub stored: K8sState,
    /// Oldest first, one of each phase.
    pub changes: Vec<PendingChange>,
}

/// A Kubernetes Event about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// What it says.
    pub note: String,
    /// By the API server's clock, in whole seconds.
    pub created_at: Timestamp,
    /// When it came here, by our own clock.
    pub recorded_at: Timestamp,
    /// Whether it was there before this process: another one may have published it.
    pub is_replayed: bool,
}

impl From<&PodEvent> for ReasonInfo {
    fn from(event: &PodEvent) -> Self {
        Self {
            reason: event.note.clone(),
            occurred_at: event.created_at,
        }
    }
}

/// What a plan has this process remember of an action, until the next process. Nothing of it is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The action.
    pub of: Incarnation,
    /// The fact.
    pub fact: Fact,
}

/// A fact that the next round of an action needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The changes of its attempt that are not on record yet.
    Pending(PendingChanges),
    /// The pod whose changes lead to a round: it does not say itself which action it is of.
    Head(HeadPod),
    /// What becomes of the slot.
    Slot(SlotChange),
    /// The launch whose resource is gone for good.
    Gone(LaunchId),
    /// The next launch of an attempt, and when it may begin.
    NextLaunch(LaunchId, Timestamp),
    /// Since when what it has made cannot be read; `None` where it can be.
    Unread(Option<Timestamp>),
    /// When an Event has said what holds it, where no status can.
    Told(Timestamp),
    /// Since when it waits for the lists of connectors; `None` where it no longer does.
    Unlisted(Option<Timestamp>),
}

/// The resources of an action, one per attempt.
#[derive(Clone, Debug)]
pub struct Children {
    /// Of the current attempt.
    pub current: Seen<Child>,
    /// Of earlier attempts, those that are there.
    pub earlier: Vec<Child>,
    /// The current launch, where this round has read from the API server that its resource is gone. No round creates it
    /// again, so that none has to read this once more.
    pub newly_gone: Option<LaunchId>,
    /// What an abort does with the current one; `None` where it deletes it, and where there is no abort.
    pub abort: Option<Abort>,
}

impl Children {
    /// Those of this action, the current one last.
    pub fn ours(&self) -> impl Iterator<Item = &Child> {
        let all = self.earlier.iter().chain(self.current.present());
        all.filter(|child| child.belongs != Belongs::ToOthers)
    }
}

/// A resource that has the name of one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its address, with its uid.
    pub target: ObjectRef,
    /// Whose it is.
    pub belongs: Belongs,
    /// Whether its deletion is under way.
    pub is_deleting: bool,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// All finalizers that it has.
    pub finalizers: Vec<String>,
    /// Whether nothing of it runs, now or later.
    pub is_over: bool,
    /// Whether it has our finalizer.
    pub has_finalizer: bool,
}

/// Whose a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// Its annotation has this launch.
    ToThisLaunch,
    /// It is of an earlier launch of this attempt.
    ToThisAttempt,
    /// It is of another attempt of this action.
    ToThisAction,
    /// It is not of this action.
    ToOthers,
}

/// A launch of an attempt: what a resource of ours is identified by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchId {
    /// Of the TaskAction.
    pub uid: String,
    /// From 1.
    pub attempt: u32,
    /// System failures before it.
    pub n_failures: u32,
}

impl LaunchId {
    /// The launch that is next, or under way, by the status.
    pub fn of(target: &ObjectRef, status: &TaskActionStatus) -> Self {
        Self {
            uid: target.uid.clone().unwrap_or_default(),
            attempt: status.attempts.max(1),
            n_failures: status.system_failures,
        }
    }

    /// Whose this resource is. One that upstream made carries no annotation: its owner and its label tell. Upstream has
    /// the resource of a launch deleted before it counts the system failure: what is not being deleted is of the launch
    /// that the status has.
    pub fn owns(&self, resource: &Value) -> Belongs {
        let metadata = &resource["metadata"];
        let launch = metadata["annotations"][ANNOTATION_LAUNCH].as_str();
        let theirs = match launch.map(Self::from_str) {
            Some(Ok(launch)) => launch,
            Some(Err(_)) => return Belongs::ToOthers,
            None => {
                let attempt = metadata["labels"][LABEL_ATTEMPT].as_str();
                let attempt = attempt.and_then(|attempt| attempt.parse().ok());
                let (Some(uid), Some(attempt)) = (owner(resource), attempt) else {
                    return Belongs::ToOthers;
                };
                let is_before = is_deleting(resource) && self.n_failures > 0;
                Self {
                    uid: uid.to_owned(),
                    attempt,
                    n_failures: self.n_failures - u32::from(is_before),
                }
            }
        };
        if theirs.uid != self.uid {
            Belongs::ToOthers
        } else if theirs.attempt != self.attempt {
            Belongs::ToThisAction
        } else if theirs.n_failures == self.n_failures {
            Belongs::ToThisLaunch
        } else {
            Belongs::ToThisAttempt
        }
    }
}

impl fmt::Display for LaunchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.uid, self.attempt, self.n_failures)
    }
}

impl FromStr for LaunchId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(());
        let (uid, attempt, n_failures) = (next()?, next()?, next()?);
        Ok(Self {
            uid: uid.to_owned(),
            attempt: attempt.parse().map_err(drop)?,
            n_failures: n_failures.parse().map_err(drop)?,
        })
    }
}

/// The uid of the TaskAction that controls a resource.
fn owner(resource: &Value) -> Option<&str> {
    let owners = resource["metadata"]["ownerReferences"].as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner["controller"] == true && owner["kind"] == flyte::KIND)?;
    owner["uid"].as_str()
}

impl Child {
    /// Whether it is of the current attempt.
    pub fn is_of_attempt(&self) -> bool {
        matches!(self.belongs, Belongs::ToThisLaunch | Belongs::ToThisAttempt)
    }

    /// The resource of that name, as `launch` sees it.
    pub fn of(kind: Resource, resource: &Value, launch: &LaunchId) -> Self {
        let is_deleting = is_deleting(resource);
        let phase = resource["status"]["phase"].as_str();
        let has_ended = kind == Resource::POD && matches!(phase, Some("Succeeded" | "Failed"));
        // A pod that no node has taken, and that is being deleted, will not be taken any more.
        let never_starts = kind == Resource::POD && resource["spec"]["nodeName"].is_null();
        // An operator may begin anew what seems to have ended: it is over when the operator has let it go.
        let is_let_go = kind != Resource::POD && is_deleting && has_no_other_finalizer(resource);
        Self {
            target: address(kind, resource),
            belongs: launch.owns(resource),
            is_deleting,
            deleted_at: deleted_at(resource),
            finalizers: finalizers(resource).map(str::to_owned).collect(),
            is_over: has_ended || is_deleting && never_starts || is_let_go,
            has_finalizer: has_finalizer(resource, FINALIZER_RESOURCE),
        }
    }
}

impl RemoteTask {
    /// An attempt before anything was read for it.
    pub fn new(plugin: Arc<dyn RemotePlugin>, context: TaskContext) -> Self {
        Self {
            plugin,
            context,
            unlisted: None,
            step: Ok(Step::quiet(PhaseInfo::of(Phase::Undefined, ""), Vec::new())),
            inputs: None,
            outcome: Asked::NotAsked,
            written: Asked::NotAsked,
            slot: None,
            is_under_way: false,
            turn: None,
            is_begun: false,
            answered: None,
            abort: None,
            aborted: Asked::NotAsked,
            cache: Cache::None,
            connector: String::new(),
        }
    }
}

impl Action {
    /// An action as it was seen, before anything was read for it.
    ///
    /// # Errors
    /// A status that does not have the shape of its schema: its progress is not known.
    pub fn of(object: Value) -> Result<Self, serde_json::Error> {
        let mut status = TaskActionStatus::of(&object)?;
        let is_said = |condition: &mut Condition| condition.kind == CONDITION_WAITING;
        let condition = status.conditions.extract_if(.., is_said).next();
        let (spec, work) = match TaskActionSpec::of(&object) {
            Ok(spec) if spec.is_condition() => (spec, Work::Condition),
            Ok(spec) => (spec, Work::Nothing),
            Err(error) => {
                let invalid = Invalid::spec(format!("the spec cannot be read: {error}"));
                (TaskActionSpec::default(), Work::Invalid(invalid))
            }
        };
        Ok(Self {
            target: address(TASK_ACTION, &object),
            spec,
            status,
            is_deleting: is_deleting(&object),
            has_finalizer: has_finalizer(&object, FINALIZER_PLUGIN),
            work,
            children: Children {
                current: Seen::Absent,
                earlier: Vec::new(),
                newly_gone: None,
                abort: None,
            },
            asked: Vec::new(),
            has_event_receiver: true,
            reported: Asked::NotAsked,
            unanswered: Vec::new(),
            said: Said {
                condition,
                ..Said::default()
            },
            undone: Undone::default(),
            unlisted_since: None,
            form: StatusForm::Full,
            object: Arc::new(object),
        })
    }

    /// The action as questions and memories know it.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation::of(self.target.uid.clone().unwrap_or_default())
    }

    /// The current attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.status.attempts.max(1)
    }

    /// When its deletion was asked for.
    pub fn deleted_at(&self) -> Option<Timestamp> {
        deleted_at(&self.object)
    }

    /// When it was created.
    pub fn created_at(&self) -> Option<Timestamp> {
        let text = self.object["metadata"]["creationTimestamp"].as_str()?;
        text.parse().ok()
    }

    /// A label of it.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"][key].as_str()
    }
}

impl Invalid {
    /// A spec that cannot be run.
    pub fn spec(message: impl Into<String>) -> Self {
        Self {
            reason: REASON_INVALID_SPEC,
            message: message.into(),
        }
    }

    /// A task type without a plugin.
    pub fn plugin(task_type: &str) -> Self {
        Self {
            reason: REASON_PLUGIN_NOT_FOUND,
            message: format!(
                "no plugin found for task type {task_type:?}: no plugin takes it, and there is no default plugin"
            ),
        }
    }

    /// What is missing in the spec of a task.
    pub fn missing(spec: &TaskActionSpec) -> Option<Self> {
        let missing: Vec<&str> = [
            ("runName", spec.run_name.is_empty()),
            ("project", spec.project.is_empty()),
            ("domain", spec.domain.is_empty()),
            ("actionName", spec.action_name.is_empty()),
            ("taskType", spec.task_type.is_empty()),
            ("taskTemplate", spec.task_template.is_empty()),
            ("inputUri", spec.input_uri.is_empty()),
            ("runOutputBase", spec.run_output_base.is_empty()),
        ]
        .into_iter()
        .filter_map(|(field, is_empty)| is_empty.then_some(field))
        .collect();
        let message = format!("required spec fields are empty: [{}]", missing.join(" "));
        (!missing.is_empty()).then(|| Self::spec(message))
    }
}

/// The address of this object, with its uid.
pub(crate) fn address(resource: Resource, object: &Value) -> ObjectRef {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    ObjectRef {
        resource,
        namespace: text("namespace").unwrap_or_default(),
        name: text("name").unwrap_or_default(),
        uid: text("uid"),
    }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).any(|it| it == finalizer)
}

/// Whether no finalizer but ours holds an object that is being deleted.
fn has_no_other_finalizer(object: &Value) -> bool {
    finalizers(object).all(|it| it == FINALIZER_RESOURCE)
}

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().filter_map(Value::as_str)
}

/// When the deletion of an object was asked for: its timestamp is the end of the grace period.
fn deleted_at(object: &Value) -> Option<Timestamp> {
    let metadata = &object["metadata"];
    let at: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    at.checked_sub(SignedDuration::from_secs(grace)).ok()
}
