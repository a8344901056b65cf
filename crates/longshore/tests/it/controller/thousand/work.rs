//! What the actions of a run are: most are as plain as can be, some fail, wait for each other, or are aborted.

use std::{collections::BTreeSet, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_api::flyte;
use longshore_proto::flyteidl2::core::{
    Container, Identifier, ResourceType, RetryStrategy, TaskMetadata, TaskTemplate,
    task_template::Target,
};
use longshore_test::{flyte::outputs, scripted_node::ANNOTATION_SCRIPT};
use prost::Message;
use serde_json::{Value, json};

/// So many actions have some of everything.
pub(super) const PERIOD: u32 = 20;

/// What becomes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It succeeds, and its outputs are cached.
    Plain,
    /// Its first attempt fails.
    Flaky,
    /// It fails for good.
    Fails,
    /// Another one has the same outputs: the one that runs first makes them for both.
    Shared,
    /// It would run on, and is deleted.
    Aborted,
}

/// An action of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work(pub(super) u32);

impl Work {
    pub(super) fn kind(self) -> Kind {
        match self.0 % PERIOD {
            3 => Kind::Flaky,
            7 => Kind::Fails,
            11 | 12 => Kind::Shared,
            15 => Kind::Aborted,
            _ => Kind::Plain,
        }
    }

    pub(super) fn name(self) -> String {
        format!("a{:04}", self.0)
    }

    /// The version of its outputs: the same for all that share them.
    fn version(self) -> String {
        match self.kind() {
            Kind::Shared => format!("shared-{}", self.0 / PERIOD),
            Kind::Plain | Kind::Flaky | Kind::Fails | Kind::Aborted => self.name(),
        }
    }

    /// What its pods do.
    fn script(self) -> String {
        let run_ms = self.0 * 37 % 900;
        match self.kind() {
            Kind::Plain | Kind::Shared => format!("run {run_ms}ms exit 0"),
            Kind::Flaky => format!("run {run_ms}ms exit 1 | run {run_ms}ms exit 0"),
            Kind::Fails => format!("run {run_ms}ms exit 1"),
            Kind::Aborted => "run 3000s exit 0".to_owned(),
        }
    }

    /// The TaskAction, whose inputs and outputs are below a folder.
    pub(super) fn action(self, folder: &Path) -> Value {
        let name = self.name();
        let store = format!("file://{}", folder.display());
        json!({
            "apiVersion": format!("{}/{}", flyte::GROUP, flyte::VERSION),
            "kind": flyte::KIND,
            "metadata": {"name": name, "annotations": {ANNOTATION_SCRIPT: self.script()}},
            "spec": {
                "runName": "thousand", "project": "p", "domain": "d", "actionName": name,
                "taskType": "container", "cacheKey": self.version(),
                "inputUri": format!("{store}/inputs.pb"),
                "runOutputBase": format!("{store}/outputs"),
                "taskTemplate": BASE64_STANDARD.encode(self.template().encode_to_vec()),
            },
        })
    }

    fn template(self) -> TaskTemplate {
        TaskTemplate {
            id: Some(Identifier {
                resource_type: ResourceType::Task.into(),
                project: "p".to_owned(),
                domain: "d".to_owned(),
                name: "task".to_owned(),
                version: "1".to_owned(),
                ..Identifier::default()
            }),
            r#type: "container".to_owned(),
            metadata: Some(TaskMetadata {
                discoverable: true,
                cache_serializable: true,
                retries: Some(RetryStrategy {
                    retries: u32::from(self.kind() == Kind::Flaky),
                    backoff: None,
                }),
                ..TaskMetadata::default()
            }),
            interface: Some(outputs::interface()),
            target: Some(Target::Container(Container {
                image: "example.test/image:1".to_owned(),
                args: outputs::arguments(),
                ..Container::default()
            })),
            ..TaskTemplate::default()
        }
    }
}

/// What is expected of all actions together.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    /// Attempts that have a pod.
    pub(super) n_attempts: usize,
    /// Keys under which something is cached.
    pub(super) n_cached: usize,
    pub(super) n_flaky: usize,
    pub(super) n_shared: usize,
    pub(super) n_aborted: usize,
}

impl Expected {
    pub(super) fn of(n_actions: u32) -> Self {
        let mut expected = Self::default();
        let mut shared = BTreeSet::new();
        for work in (0..n_actions).map(Work) {
            let (n_attempts, is_cached) = match work.kind() {
                Kind::Plain => (1, true),
                Kind::Flaky => (2, true),
                Kind::Fails | Kind::Aborted => (1, false),
                Kind::Shared => {
                    let is_first = shared.insert(work.version());
                    (usize::from(is_first), is_first)
                }
            };
            expected.n_attempts += n_attempts;
            expected.n_cached += usize::from(is_cached);
            expected.n_flaky += usize::from(work.kind() == Kind::Flaky);
            expected.n_shared += usize::from(work.kind() == Kind::Shared);
            expected.n_aborted += usize::from(work.kind() == Kind::Aborted);
        }
        expected
    }
}
