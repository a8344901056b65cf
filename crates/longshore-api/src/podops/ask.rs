//! The `webhook` of a rule of a PodTransitionRule: its configuration, the requests to it, and its responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// A `webhook` rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleWebhook {
    /// The service that the controller calls.
    pub client_config: RuleClientConfig,
    /// `Ignore` or `Fail`. Upstream never reads the field: an error always rejects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,
    /// What the request says of each pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<RuleParameter>,
}

/// The service that a rule calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleClientConfig {
    /// URL of the requests about pods.
    pub url: String,
    /// The authorities to trust there, as base64 of PEM. Empty: the authorities that the machine trusts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_bundle: String,
    /// The service that reports on the tasks of earlier responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll: Option<RulePoll>,
}

/// The service that reports on tasks, and how often the controller calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RulePoll {
    /// URL of the requests about tasks: `<this>?<rawQueryKey>=<id of the task>`.
    pub url: String,
    /// The key of the query; [`RulePoll::DEFAULT_KEY`] where it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raw_query_key: String,
    /// The authorities to trust there, as [`RuleClientConfig::ca_bundle`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_bundle: String,
    /// Seconds from one request to the next; the webhook of podops fills in 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<i64>,
    /// Seconds after which the controller stops asking about a task; the webhook of podops fills in 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
}

impl RulePoll {
    /// The key of the query where the rule names none.
    pub const DEFAULT_KEY: &str = "task-id";

    /// The key of the query.
    pub fn query_key(&self) -> &str {
        match self.raw_query_key.as_str() {
            "" => Self::DEFAULT_KEY,
            key => key,
        }
    }
}

/// What the request says of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleParameter {
    /// Under this key.
    pub key: String,
    /// This text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Or a field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<RuleParameterSource>,
}

/// Where the value of a parameter is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleParameterSource {
    /// In a field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<RuleFieldRef>,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleFieldRef {
    /// As `metadata.name`, or `metadata.labels['app']`.
    pub field_path: String,
}

/// The question: may these pods go on?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleQuestion {
    /// The id of this request in logs.
    pub trace_id: String,
    /// The name of the rule.
    pub rule_name: String,
    /// The stage that the pods are in.
    pub stage: String,
    /// The pods.
    pub resources: Vec<RuleSubject>,
}

/// A pod of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleSubject {
    /// `core/v1`: upstream's spelling.
    pub api_version: String,
    /// Always `Pod`.
    pub kind: String,
    /// Name of the pod.
    pub name: String,
    /// The parameters of the rule for this pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// The response of the webhook of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleAnswer {
    /// All pods may go on, unless `poll` is set; else only those of `finishedNames`.
    pub success: bool,
    /// Pods that may go on in any case. Null where Go has nothing to say.
    #[serde(deserialize_with = "or_nothing")]
    pub finished_names: Vec<String>,
    /// Why, for people.
    #[serde(deserialize_with = "or_nothing")]
    pub message: String,
    /// The decision takes time: the controller has to poll a task.
    pub poll: bool,
    /// The deprecated name of `poll`.
    #[serde(rename = "async")]
    pub is_async: bool,
    /// The trace id of the request that this answers.
    #[serde(deserialize_with = "or_nothing")]
    pub trace_id: String,
    /// The id of the task to poll.
    #[serde(deserialize_with = "or_nothing")]
    pub task_id: String,
}

/// The response about a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RulePollAnswer {
    /// The task does well.
    pub success: bool,
    /// Why, for people.
    #[serde(deserialize_with = "or_nothing")]
    pub message: String,
    /// With `success`: all pods of the task may go on.
    pub finished: bool,
    /// Pods that may go on in any case. Null where Go has nothing to say.
    #[serde(deserialize_with = "or_nothing")]
    pub finished_names: Vec<String>,
    /// The controller stops asking about this task. It sends a new request about the pods that may not go on.
    pub stop: bool,
}

/// Go writes null for a list that is not set, and reads null as what is not set.
fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
