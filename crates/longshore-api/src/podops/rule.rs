//! `apps.kusionstack.io/v1alpha1` PodTransitionRule: rules that pods meet on their way into and out of operations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The API group.
pub const GROUP: &str = "apps.kusionstack.io";
/// The API version within [`GROUP`].
pub const VERSION: &str = "v1alpha1";
/// The kind of a PodTransitionRule object.
pub const KIND_POD_TRANSITION_RULE: &str = "PodTransitionRule";
/// Upstream's CustomResourceDefinition, unchanged (source and licence: `crds/SOURCE.md`).
pub const POD_TRANSITION_RULE_CRD: &str =
    include_str!("../../crds/apps.kusionstack.io_podtransitionrules.yaml");
/// Finalizer of a PodTransitionRule: it stays until its annotations are removed from pods.
pub const FINALIZER_PROTECTED: &str = "finalizer.operating.kusionstack.io/protected";
/// Annotation of a pod, by users: the rules that it does not have to pass, as JSON `{"skipRules": ["<rule name>"]}`.
pub const ANNOTATION_SKIP_RULES: &str = "podtransitionrule.kusionstack.io/skip-rule-conditions";
/// Annotation of a pod: what a PodTransitionRule says of it, as JSON; `/` and the name of the PodTransitionRule follow the
/// prefix.
pub const ANNOTATION_DETAIL_PREFIX: &str = "detail.podtransitionrule.kusionstack.io";

/// The annotation that shows what this PodTransitionRule says of a pod.
pub fn detail_annotation(rule: &str) -> String {
    format!("{ANNOTATION_DETAIL_PREFIX}/{rule}")
}

/// When the controller evaluates a rule.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Stage {
    /// Before traffic is drained.
    #[default]
    PreCheck,
    /// After the work is done.
    PostCheck,
}

impl Stage {
    /// Upstream's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreCheck => "PreCheck",
            Self::PostCheck => "PostCheck",
        }
    }
}

/// The spec of a PodTransitionRule: the pods that it selects, and its rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTransitionRuleSpec {
    /// A label selector of the pods in the same namespace that the rules are about. Upstream requires it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Value>,
    /// The rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<TransitionRule>,
}

/// One rule. The webhook accepts exactly one of availablePolicy, labelCheck and webhook; of a rule that was stored with
/// several of them, a pod has to pass all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransitionRule {
    /// Its name, required.
    pub name: String,
    /// The controller does not evaluate it.
    pub disabled: bool,
    /// When the controller evaluates it; an absent stage means `PreCheck`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Names of registered pod conditions. None is registered, so that a rule with names is about no pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Which of the selected pods the rule is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<RuleFilter>,
    /// How many of the pods may be out of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_policy: Option<AvailablePolicy>,
    /// Which labels the pods must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_check: Option<LabelCheck>,
    /// The [`RuleWebhook`](super::RuleWebhook) that decides, as it stands in the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
}

/// Which of the selected pods a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleFilter {
    /// A label selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<Value>,
}

/// How many of the selected pods may be out of service. Numbers, or percentages as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AvailablePolicy {
    /// At most so many are out of service; a percentage is rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable_value: Option<Value>,
    /// At least so many serve; a percentage is rounded down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available_value: Option<Value>,
}

/// Which labels a pod must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelCheck {
    /// A label selector, required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Value>,
}

/// The status. The fields that Longshore does not write survive in `rest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTransitionRuleStatus {
    /// The selected pods, by name, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The generation that was evaluated.
    pub observed_generation: i64,
    /// What the rules say of pods that are in a stage, by pod name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// What rules wait for, by the name of the rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule_states: Vec<RuleState>,
    /// When anything but this changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// The state of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleState {
    /// The rule.
    pub name: String,
    /// The state of a `webhook` rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_status: Option<RuleWebhookStatus>,
}

/// The requests and tasks of a `webhook` rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleWebhookStatus {
    /// The requests about pods that no task is about; upstream has no such field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RuleRequest>,
    /// The tasks that the controller polls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_states: Vec<RuleTask>,
    /// The tasks that ended, kept for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RuleTask>,
}

/// A request about pods. It is in the status before the controller sends it, so that the next process repeats it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleRequest {
    /// The `traceId` that the controller sends.
    pub trace_id: String,
    /// The pods by name, each with a hash of what brought it to the rule: the request is not about another operation,
    /// or about the next pod of that name.
    pub pods: BTreeMap<String, String>,
}

/// A task of a webhook, whose decision takes time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleTask {
    /// Its id, which the webhook chose.
    pub task_id: String,
    /// Names of the pods that wait for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processing: Vec<String>,
    /// Names of the pods that the webhook has let go on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<String>,
    /// When the task began, RFC 3339: the controller stops asking after the timeout of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<String>,
    /// When the last response came that changed this task, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_time: Option<String>,
    /// The last message about the task, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What the rules of one PodTransitionRule say of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detail {
    /// The pod; not part of the annotation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The stage of the pod: of [`Stage`], or `Unknown` in annotations.
    pub stage: String,
    /// No rule rejects the pod.
    pub passed: bool,
    /// Rules that passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_rules: Vec<String>,
    /// Rules that reject the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reject_info: Vec<RejectInfo>,
}

/// Why a rule rejects a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RejectInfo {
    /// Name of the rule that rejects the pod.
    pub rule_name: String,
    /// Why the rule rejects the pod, for people.
    pub reason: String,
}

/// What of a pod has to be there before it serves: the value of
/// [`ANNOTATION_AVAILABLE_CONDITIONS`](super::ANNOTATION_AVAILABLE_CONDITIONS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AvailableConditions {
    /// Finalizers by their holders, as `<Kind>/<ns>/<name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_finalizers: Option<BTreeMap<String, String>>,
}
