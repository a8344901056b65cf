//! Everything that a plugin may know about the attempt that it works for (task action spec §10).

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use longshore_api::flyte::{self, TaskActionSpec};
use longshore_proto::flyteidl2::core::{LiteralMap, TaskTemplate};
use serde_json::Value;

use crate::{
    config::{Config, K8sConfig},
    names,
    paths::{Paths, Place},
    plugin::BuildError,
    pod, secrets,
    state::K8sState,
};

/// What `kubectl apply` keeps about the object that it is on. On another object it would be wrong.
const ANNOTATION_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One attempt of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskContext {
    /// Of the TaskAction, and of everything made for it.
    pub namespace: String,
    /// `<taskaction name>-<attempt - 1>`; plugins shorten it to what their resource allows.
    pub generated_name: String,
    /// When the TaskAction was created.
    pub created_at: Option<Timestamp>,
    /// From 1.
    pub attempt: u32,
    /// Retries plus one.
    pub max_attempts: u32,
    /// Spec fields, raw.
    pub run_name: String,
    /// Spec fields, raw.
    pub action_name: String,
    /// Spec fields, raw.
    pub project: String,
    /// Spec fields, raw.
    pub domain: String,
    /// The decoded template.
    pub template: TaskTemplate,
    /// The decoded inputs, `None` where there is no file, or the controller read none: only templates with
    /// `{{ .inputs.x }}` need them. The error says why what is there is of no use.
    pub inputs: Result<Option<LiteralMap>, String>,
    /// Whether it may run on machines that go away.
    pub is_interruptible: bool,
    /// The variables that every container gets: `ACTION_NAME`, `RUN_NAME`, …, `spec.envVars`; reserved names win.
    pub env: BTreeMap<String, String>,
    /// Labels for the resource and its pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the resource and its pods.
    pub annotations: BTreeMap<String, String>,
    /// `None` leaves the pod's own.
    pub service_account: Option<String>,
    /// The URLs of inputs and outputs.
    pub paths: Paths,
    /// The PodTemplate that [`pod_template_name`] names, where the controller read it.
    pub pod_template: Option<Value>,
    /// The result of [`Plugin::takes_pod_templates`](crate::Plugin::takes_pod_templates) for the cluster's definition.
    pub takes_pod_templates: bool,
    /// The pod that [`Plugin::head_pod`](crate::Plugin::head_pod) names, where there is one.
    pub head_pod: Option<Value>,
    /// The last reported phase of this attempt.
    pub last: K8sState,
    /// `error.pb` of this attempt, where [`Plugin::needs_error_file`](crate::Plugin::needs_error_file) requires it.
    pub error_file: ErrorFile,
}

/// What is known of `error.pb`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorFile {
    /// The file was not read, or could not be read.
    #[default]
    Unknown,
    /// There is no such file.
    Absent,
    /// The task wrote one.
    Present {
        /// Whether the error allows another attempt.
        is_recoverable: bool,
    },
}

/// The PodTemplate on which the pods of a task are built, in the namespace of the task or of the executor: the
/// task's own, which has to exist, or the configured one.
pub fn pod_template_name<'a>(template: &'a TaskTemplate, config: &'a K8sConfig) -> Option<&'a str> {
    own_pod_template(template)
        .or(config.default_pod_template_name.as_deref())
        .filter(|name| !name.is_empty())
}

/// The PodTemplate that the task itself names.
pub(crate) fn own_pod_template(template: &TaskTemplate) -> Option<&str> {
    let metadata = template.metadata.as_ref()?;
    Some(metadata.pod_template_name.as_str()).filter(|name| !name.is_empty())
}

impl TaskContext {
    /// Whether the task has inputs.
    pub fn declares_inputs(&self) -> bool {
        let interface = self.template.interface.as_ref();
        let inputs = interface.and_then(|interface| interface.inputs.as_ref());
        inputs.is_some_and(|inputs| !inputs.variables.is_empty())
    }

    /// How long an attempt may run: `timeout` of the template; `None` where that is absent or zero.
    pub fn timeout(&self) -> Option<Duration> {
        let timeout = self.template.metadata.as_ref()?.timeout?;
        let timeout = Duration::try_from(timeout).ok()?;
        (!timeout.is_zero()).then_some(timeout)
    }

    /// The context of one attempt (from 1; 0 means 1) of a TaskAction, without inputs.
    ///
    /// # Errors
    /// Where the template cannot be run, whatever the plugin: a failure for good.
    pub fn of(
        action: &Value,
        spec: &TaskActionSpec,
        template: TaskTemplate,
        attempt: u32,
        config: &Config,
    ) -> Result<Self, BuildError> {
        let attempt = attempt.max(1);
        let metadata = &action["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let place = Place {
            namespace,
            name,
            action_name: &spec.action_name,
            input_uri: &spec.input_uri,
            run_output_base: &spec.run_output_base,
        };
        let mut annotations = strings(&metadata["annotations"]);
        annotations.remove(ANNOTATION_LAST_APPLIED);
        annotations.extend(secrets::annotations(&template)?);
        let mut labels = strings(&metadata["labels"]);
        labels.extend(injected_labels(spec, &template, attempt));
        Ok(Self {
            namespace: namespace.to_owned(),
            generated_name: format!("{name}-{}", attempt - 1),
            created_at: text("creationTimestamp").parse().ok(),
            attempt,
            max_attempts: max_attempts(&template),
            run_name: spec.run_name.clone(),
            action_name: spec.action_name.clone(),
            project: spec.project.clone(),
            domain: spec.domain.clone(),
            inputs: Ok(None),
            is_interruptible: spec.interruptible == Some(true),
            env: env(spec),
            labels,
            annotations,
            service_account: service_account(&template)
                .or_else(|| config.default_service_account.clone()),
            paths: Paths::of(place, attempt),
            pod_template: None,
            takes_pod_templates: false,
            head_pod: None,
            last: K8sState::default(),
            error_file: ErrorFile::Unknown,
            template,
        })
    }
}

impl TaskContext {
    /// Whether the pod of the task cannot be built without its inputs.
    pub(crate) fn pod_needs_inputs(&self, config: &K8sConfig) -> bool {
        pod::needs_inputs(self, config)
    }
}

/// How many attempts a template allows: its retries plus one.
pub fn max_attempts(template: &TaskTemplate) -> u32 {
    let retries = template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.retries)
        .map_or(0, |retries| retries.retries);
    retries.saturating_add(1)
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    map.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn env(spec: &TaskActionSpec) -> BTreeMap<String, String> {
    let reserved = [
        (flyte::ENV_ACTION_NAME, spec.action_name.as_str()),
        (flyte::ENV_RUN_NAME, &spec.run_name),
        (flyte::ENV_RUN_BASE, &spec.run_output_base),
        (flyte::ENV_ORG_NAME, "local"),
    ];
    let mut env = spec.env_vars.clone();
    env.extend(reserved.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env
}

fn injected_labels(
    spec: &TaskActionSpec,
    template: &TaskTemplate,
    attempt: u32,
) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<&str, String> = [
        (flyte::LABEL_MANAGED, flyte::TRUE.to_owned()),
        (flyte::LABEL_ORGANIZATION, flyte::ORGANIZATION.to_owned()),
        (flyte::LABEL_PROJECT, spec.project.clone()),
        (flyte::LABEL_DOMAIN, spec.domain.clone()),
        (flyte::LABEL_ATTEMPT, attempt.to_string()),
    ]
    .into();
    let task_name = template.id.as_ref().map_or("", |id| &id.name);
    for (label, text) in [
        (flyte::LABEL_RUN, spec.run_name.as_str()),
        (flyte::LABEL_ACTION, &spec.action_name),
        (flyte::LABEL_TASK_NAME, task_name),
    ] {
        if !text.is_empty() {
            labels.insert(label, names::label_value(text));
        }
    }
    if secrets::has_secrets(template) {
        labels.insert(flyte::LABEL_INJECT_SECRETS, flyte::TRUE.to_owned());
    }
    labels
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value))
        .collect()
}

fn service_account(template: &TaskTemplate) -> Option<String> {
    let run_as = template.security_context.as_ref()?.run_as.as_ref()?;
    Some(run_as.k8s_service_account.clone()).filter(|account| !account.is_empty())
}

#[cfg(test)]
mod tests;
