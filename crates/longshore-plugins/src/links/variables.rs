//! The variables that templates of links may hold.

use std::collections::BTreeMap;

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::Identifier;

use crate::{context::TaskContext, names, text_template};

/// Values by lower-case name. Empty ones are not put in: the template then shows what is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
}

impl Variables {
    /// The variables that are known without a pod.
    pub(crate) fn of_task(context: &TaskContext) -> Self {
        let mut variables = Self::default();
        let none = Identifier::default();
        let id = context.template.id.as_ref().unwrap_or(&none);
        for (name, value) in [
            ("namespace", context.namespace.as_str()),
            ("nodeID", &context.action_name),
            ("actionName", &context.action_name),
            ("runName", &context.run_name),
            ("executionName", &context.run_name),
            ("executionProject", &context.project),
            ("executionDomain", &context.domain),
            ("generatedName", &names::subdomain(&context.generated_name)),
            (
                "taskRetryAttempt",
                &context.attempt.saturating_sub(1).to_string(),
            ),
            ("taskID", &id.name),
            ("taskVersion", &id.version),
            ("taskOrg", &id.org),
            ("taskProject", &id.project),
            ("taskDomain", &id.domain),
        ] {
            variables.set(name, value);
        }
        variables
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values
            .insert(name.to_ascii_lowercase(), value.to_owned());
    }

    /// The pod whose logs are meant.
    pub(crate) fn pod(&mut self, name: &str, namespace: &str) {
        self.set("podName", name);
        self.set("namespace", namespace);
    }

    /// The id of a container without the name of its runtime, which log files do not have.
    pub(crate) fn container_id(&mut self, id: &str) {
        let bare = id.split_once("://").map_or(id, |(_, bare)| bare);
        self.set("containerID", bare);
    }

    /// When the pod began and, as far as is known, ended.
    pub(crate) fn times(&mut self, start: Timestamp, finish: Timestamp) {
        for (which, at) in [("Start", start), ("Finish", finish)] {
            let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
            self.set(&format!("podRFC3339{which}Time"), &whole.to_string());
            self.set(&format!("podUnix{which}Time"), &at.as_second().to_string());
        }
    }

    /// The text with its variables filled in.
    pub(crate) fn fill(&self, text: &str) -> String {
        let value = |name: &str| {
            let value = self.values.get(&name.to_ascii_lowercase());
            Ok::<_, std::convert::Infallible>(value.filter(|value| !value.is_empty()).cloned())
        };
        match text_template::replace(text, value) {
            Ok(filled) => filled,
            Err(never) => match never {},
        }
    }
}
