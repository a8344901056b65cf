//! `flyte.org/v1`: the TaskAction, and everything that Flyte writes on the objects made for one, word for word.
//!
//! The TaskAction stays a JSON object on its way through the controller, so that fields which this
//! code does not know survive; [`TaskActionSpec`] and [`TaskActionStatus`] are views of its parts.

mod status;
mod task_action;
mod wire;

pub use status::{Condition, ErrorState, PhaseTransition, TaskActionStatus};
pub use task_action::TaskActionSpec;

/// The API group.
pub const GROUP: &str = "flyte.org";
/// The API version within [`GROUP`].
pub const VERSION: &str = "v1";
/// The kind.
pub const KIND: &str = "TaskAction";

/// Upstream's CustomResourceDefinition, unchanged (source and licence: `crds/SOURCE.md`).
pub const TASK_ACTION_CRD: &str = include_str!("../crds/flyte.org_taskactions.yaml");

/// `spec.actionType` of an action that runs a task; an empty one means the same.
pub const ACTION_TYPE_TASK: &str = "task";
/// `spec.actionType` of an action that waits for a person.
pub const ACTION_TYPE_CONDITION: &str = "condition";

/// Label of a TaskAction, by the actions service: the project.
pub const LABEL_FLYTE_PROJECT: &str = "flyte.org/project";
/// Label of a TaskAction, by the actions service: the domain.
pub const LABEL_FLYTE_DOMAIN: &str = "flyte.org/domain";
/// Label of a TaskAction, by the actions service: the run.
pub const LABEL_FLYTE_RUN: &str = "flyte.org/run";
/// Label of a TaskAction, by the actions service: the action.
pub const LABEL_FLYTE_ACTION: &str = "flyte.org/action";
/// Label of a TaskAction, by the actions service: [`ACTION_TYPE_TASK`] or [`ACTION_TYPE_CONDITION`].
pub const LABEL_FLYTE_ACTION_TYPE: &str = "flyte.org/action-type";
/// Label of a TaskAction, by the actions service: `true` on the action that the run is named after, else `false`.
pub const LABEL_FLYTE_IS_ROOT: &str = "flyte.org/is-root";

/// Label of a TaskAction: [`TERMINATED`] once it is terminal.
pub const LABEL_TERMINATION_STATUS: &str = "flyte.org/termination-status";
/// The value of [`LABEL_TERMINATION_STATUS`].
pub const TERMINATED: &str = "terminated";
/// Label of a TaskAction: the minute at which it became terminal, in UTC, as [`COMPLETED_TIME_FORMAT`].
pub const LABEL_COMPLETED_TIME: &str = "flyte.org/completed-time";
/// How [`LABEL_COMPLETED_TIME`] is written (strftime): its order as text is the order of time.
pub const COMPLETED_TIME_FORMAT: &str = "%Y-%m-%d.%H-%M";
/// Label of a TaskAction: [`TRUE`] once the actions service took note of its end. Not ours: left alone.
pub const LABEL_TERMINAL_STATUS_RECORDED: &str = "flyte.org/terminal-status-recorded";

/// Label of pods and pod templates: [`TRUE`] on everything that an executor watches.
pub const LABEL_MANAGED: &str = "flyte.org/managed";
/// Label of a JobSet: the run.
pub const LABEL_EXECUTION: &str = "flyte.org/execution";
/// Annotation of a JobSet: the task type.
pub const ANNOTATION_TASK_TYPE: &str = "flyte.org/task-type";
/// Annotation of a JobSet: the container whose end is the end of a pod.
pub const ANNOTATION_JOB_SET_PRIMARY: &str = "flyte.org/primary-container";
/// Label of pods: the organisation, always [`ORGANIZATION`]. Part of the scope in which secrets are looked up.
pub const LABEL_ORGANIZATION: &str = "organization";
/// The value of [`LABEL_ORGANIZATION`].
pub const ORGANIZATION: &str = "flyte";
/// Label of pods: the project, as it is. Part of the scope in which secrets are looked up.
pub const LABEL_PROJECT: &str = "project";
/// Label of pods: the domain, as it is. Part of the scope in which secrets are looked up.
pub const LABEL_DOMAIN: &str = "domain";
/// Label of pods: the run, as a label-safe value; absent where that is empty.
pub const LABEL_RUN: &str = "run";
/// Label of pods: the action, as a label-safe value; absent where that is empty.
pub const LABEL_ACTION: &str = "action";
/// Label of pods: the attempt, decimal, from 1.
pub const LABEL_ATTEMPT: &str = "attempt";
/// Label of pods: the name in the template's id, as a label-safe value; absent where that is empty.
pub const LABEL_TASK_NAME: &str = "task-name";
/// Label of pods: [`TRUE`] where the webhook is to inject secrets.
pub const LABEL_INJECT_SECRETS: &str = "inject-flyte-secrets";
/// Label of pods: how many of a GPU's seven slices a partition takes, decimal.
pub const LABEL_GPU_PARTITION_SLICES: &str = "platform.union.ai/gpu-partition-slices";

/// The value of labels that say yes.
pub const TRUE: &str = "true";

/// Annotation of pods: the container whose end is the task's end.
pub const ANNOTATION_PRIMARY_CONTAINER: &str = "primary_container_name";
/// Annotation of pods: an encoded secret, its number from 0 appended.
pub const ANNOTATION_SECRET_PREFIX: &str = "flyte.secrets/s";
/// Annotation of pods: whether the cluster autoscaler may move them; the configuration's default says no.
pub const ANNOTATION_SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Finalizer of a TaskAction: added once it is valid, removed after abort and finalize.
pub const FINALIZER_PLUGIN: &str = "flyte.org/plugin-finalizer";
/// Finalizer of the resource of a task: there only with `plugins.k8s.inject-finalizer`.
pub const FINALIZER_RESOURCE: &str = "flyte/flytek8s";

/// Condition: whether the action is on its way, and how far (its reason).
pub const CONDITION_PROGRESSING: &str = "Progressing";
/// Condition: true once it ended well.
pub const CONDITION_SUCCEEDED: &str = "Succeeded";
/// Condition: true once it ended otherwise.
pub const CONDITION_FAILED: &str = "Failed";
/// Condition: true while a foreign system or the API server holds the action; the message says who does, and why. Only
/// Longshore writes it.
pub const CONDITION_WAITING: &str = "Waiting";

/// Reason, and phase in the history: nothing of it runs yet, or it waits for resources or for the cache.
pub const REASON_QUEUED: &str = "Queued";
/// Reason, and phase in the history: images are pulled, volumes are mounted.
pub const REASON_INITIALIZING: &str = "Initializing";
/// Reason, and phase in the history: the user's code runs.
pub const REASON_EXECUTING: &str = "Executing";
/// Reason, and phase in the history: it ended well.
pub const REASON_COMPLETED: &str = "Completed";
/// Reason, and phase in the history: an attempt failed.
pub const REASON_RETRYABLE_FAILURE: &str = "RetryableFailure";
/// Reason, and phase in the history: it failed for good.
pub const REASON_PERMANENT_FAILURE: &str = "PermanentFailure";
/// Reason, and phase in the history: it was aborted on request.
pub const REASON_ABORTED: &str = "Aborted";
/// Reason: no plugin takes its task type.
pub const REASON_PLUGIN_NOT_FOUND: &str = "PluginNotFound";
/// Reason: its spec cannot be run.
pub const REASON_INVALID_SPEC: &str = "InvalidSpec";
/// Reason, and phase in the history: a condition action waits for its signal.
pub const REASON_PAUSED: &str = "Paused";
/// Reason, and phase in the history: a condition action got its signal.
pub const REASON_SIGNALED: &str = "Signaled";
/// Reason, and phase in the history: a condition action waited too long.
pub const REASON_TIMED_OUT: &str = "TimedOut";

/// Reason of an Event about a TaskAction: its plugin failed for want of something else, for example an answer of the API
/// server. The attempt goes on, unless it was one failure too many.
pub const REASON_FAILED_PLUGIN_HANDLE: &str = "FailedPluginHandle";
/// Reason of an Event about a TaskAction: no plugin takes its task type. It has failed.
pub const REASON_FAILED_PLUGIN_RESOLVE: &str = "FailedPluginResolve";
/// Reason of an Event about a TaskAction: its spec cannot be run. It has failed.
pub const REASON_FAILED_VALIDATION: &str = "FailedValidation";
/// Reason of an Event about a TaskAction: it was deleted, and its spec does not say what there is to abort.
pub const REASON_FINALIZATION_SKIPPED: &str = "FinalizationSkipped";
/// Reason of an Event about a TaskAction: the events service did not take a change of it. It waits, and sends it again.
pub const REASON_EVENT_PUBLISH_FAILED: &str = "ActionEventPublishFailed";
/// Reason of an Event about a TaskAction: cached outputs could not be copied to where its outputs belong. It tries again.
pub const REASON_OUTPUTS_NOT_COPIED: &str = "CachedOutputsNotCopied";
/// Reason of an Event about a TaskAction: its outputs may be cached, but the cache service does not say so, or the store
/// does not return them. The task runs.
pub const REASON_RUNS_WITHOUT_CACHE: &str = "RunsWithoutCache";
/// Reason of an Event about a TaskAction: the directory of its outputs could not be made. It tries again.
pub const REASON_NO_OUTPUT_DIRECTORY: &str = "NoOutputDirectory";
/// Reason of an Event about a TaskAction: a foreign system has not answered for some seconds. Also a reason of the condition
/// [`CONDITION_WAITING`].
pub const REASON_NOT_ANSWERED: &str = "NotAnswered";
/// Reason of an Event about a TaskAction: a request to a foreign system waits for its turn, because of a rate limit or
/// because too many requests to the same system are under way. Also a reason of the condition [`CONDITION_WAITING`].
pub const REASON_NOT_SENT: &str = "NotSent";
/// Reason of an Event about a TaskAction: a foreign system or the API server refuses for now. It tries again. Also a reason
/// of the condition [`CONDITION_WAITING`].
pub const REASON_REFUSED: &str = "Refused";
/// Reason of an Event about a TaskAction: the API server does not take its status. It tries again.
pub const REASON_STATUS_NOT_WRITTEN: &str = "StatusNotWritten";
/// Reason of an Event about a TaskAction: the API server takes its status again.
pub const REASON_STATUS_WRITTEN: &str = "StatusWritten";
/// Reason of an Event about a TaskAction: what it has made cannot be read. It looks again. Also a reason of the condition
/// [`CONDITION_WAITING`].
pub const REASON_NOT_SEEN: &str = "NotSeen";
/// Reason of an Event about a TaskAction: an object that is being deleted has the name of its resource. It waits until the
/// object is gone. Also a reason of the condition [`CONDITION_WAITING`].
pub const REASON_NAME_TAKEN: &str = "NameTaken";

/// Reason of an Event about a TaskAction: the API server refuses its status as too large. The status is written with short
/// texts and a short history; where that is refused, too, nothing of its progress is recorded, and it can be deleted.
pub const REASON_STATUS_TOO_LARGE: &str = "StatusTooLarge";

/// `status.errorState.kind`, and of errors everywhere: the user's code or specification is to blame.
pub const ERROR_KIND_USER: &str = "USER";
/// `status.errorState.kind`, and of errors everywhere: the machinery is to blame.
pub const ERROR_KIND_SYSTEM: &str = "SYSTEM";

/// Variable in every container: the action.
pub const ENV_ACTION_NAME: &str = "ACTION_NAME";
/// Variable in every container: the run.
pub const ENV_RUN_NAME: &str = "RUN_NAME";
/// Variable in every container: `spec.runOutputBase`.
pub const ENV_RUN_BASE: &str = "_U_RUN_BASE";
/// Variable in every container: the organisation, as the SDK wants it; always `local`.
pub const ENV_ORG_NAME: &str = "_U_ORG_NAME";

/// File in the directory of inputs: a `core.LiteralMap`.
pub const FILE_INPUTS: &str = "inputs.pb";
/// File that an attempt leaves where it ended well: a `core.LiteralMap`.
pub const FILE_OUTPUTS: &str = "outputs.pb";
/// File that an attempt leaves where it failed: a `core.ErrorDocument`.
pub const FILE_ERROR: &str = "error.pb";
/// File that an attempt may leave: a page for people.
pub const FILE_REPORT: &str = "report.html";
/// Directory of an attempt's checkpoints.
pub const DIRECTORY_CHECKPOINTS: &str = "_flytecheckpoints";

#[cfg(test)]
mod tests;
