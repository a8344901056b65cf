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
/// The configured `maxSystemFailures`: an attempt is launched once more than that.
pub(super) const MAX_SYSTEM_FAILURES: u32 = 2;
/// The task type whose pods have no primary container.
const RAW: &str = "raw-container";

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
    /// Its program kills itself each time, in a primary container: the system is taken to have done it.
    Killed,
    /// The same where no container is the primary one: the program is at fault.
    KilledRaw,
    /// It needs more memory than it may have, each time.
    TooLarge,
    /// Its node evicts the pod of the first launch.
    Evicted,
}

/// How an action ends that nobody deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) reason: &'static str,
    pub(super) attempts: u32,
    /// Of the last attempt.
    pub(super) n_failures: u32,
    /// Code and kind, where it fails.
    pub(super) error: Option<(&'static str, &'static str)>,
}

impl Kind {
    /// `None`: it is deleted before.
    pub(super) fn ending(self) -> Option<Ending> {
        let ending = |reason, attempts, n_failures, error| Ending {
            reason,
            attempts,
            n_failures,
            error,
        };
        let completed = |attempts, n_failures| ending("Completed", attempts, n_failures, None);
        let failed = |attempts, code| {
            let error = Some((code, "USER"));
            ending("PermanentFailure", attempts, 0, error)
        };
        Some(match self {
            Self::Plain | Self::Shared => completed(1, 0),
            Self::Flaky => completed(2, 0),
            Self::Evicted => completed(1, 1),
            Self::Fails => failed(1, "Error"),
            Self::KilledRaw => failed(2, "Interrupted"),
            Self::TooLarge => failed(2, "OOMKilled"),
            Self::Killed => {
                let error = Some(("MaxSystemFailuresExceeded", "SYSTEM"));
                ending("PermanentFailure", 1, MAX_SYSTEM_FAILURES + 1, error)
            }
            Self::Aborted => return None,
        })
    }

    /// How many pods it has, where none is spared by the cache.
    pub(super) fn n_launches(self) -> usize {
        match self {
            Self::Plain | Self::Shared | Self::Fails | Self::Aborted => 1,
            Self::Flaky | Self::KilledRaw | Self::TooLarge | Self::Evicted => 2,
            Self::Killed => 1 + usize::try_from(MAX_SYSTEM_FAILURES).unwrap(),
        }
    }
}

/// An action of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work(pub(super) u32);

impl Work {
    pub(super) fn kind(self) -> Kind {
        match self.0 % PERIOD {
            1 => Kind::Killed,
            3 => Kind::Flaky,
            5 => Kind::KilledRaw,
            7 => Kind::Fails,
            9 => Kind::TooLarge,
            11 | 12 => Kind::Shared,
            15 => Kind::Aborted,
            17 => Kind::Evicted,
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
            Kind::Plain
            | Kind::Flaky
            | Kind::Fails
            | Kind::Aborted
            | Kind::Killed
            | Kind::KilledRaw
            | Kind::TooLarge
            | Kind::Evicted => self.name(),
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
            Kind::Killed | Kind::KilledRaw => format!("run {run_ms}ms exit 137"),
            Kind::TooLarge => format!("run {run_ms}ms oom"),
            Kind::Evicted => format!("run {run_ms}ms evicted 143; run {run_ms}ms exit 0"),
        }
    }

    fn task_type(self) -> &'static str {
        match self.kind() {
            Kind::KilledRaw => RAW,
            Kind::Plain
            | Kind::Flaky
            | Kind::Fails
            | Kind::Shared
            | Kind::Aborted
            | Kind::Killed
            | Kind::TooLarge
            | Kind::Evicted => "container",
        }
    }

    /// How often its attempts may fail by their own fault before the last one. [`Kind::Killed`] needs none of them.
    fn retries(self) -> u32 {
        match self.kind() {
            Kind::Flaky | Kind::Killed | Kind::KilledRaw | Kind::TooLarge => 1,
            Kind::Plain | Kind::Fails | Kind::Shared | Kind::Aborted | Kind::Evicted => 0,
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
                "taskType": self.task_type(), "cacheKey": self.version(),
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
            r#type: self.task_type().to_owned(),
            metadata: Some(TaskMetadata {
                discoverable: true,
                cache_serializable: true,
                retries: Some(RetryStrategy {
                    retries: self.retries(),
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
    /// Launches, each of which has a pod.
    pub(super) n_launches: usize,
    /// Those of them that come after another one of their action.
    pub(super) n_again: usize,
    /// Keys under which something is cached.
    pub(super) n_cached: usize,
    pub(super) n_shared: usize,
    pub(super) n_aborted: usize,
}

impl Expected {
    pub(super) fn of(n_actions: u32) -> Self {
        let mut expected = Self::default();
        let mut shared = BTreeSet::new();
        for work in (0..n_actions).map(Work) {
            let kind = work.kind();
            // Whoever comes second takes what the first one has cached.
            let is_spared = kind == Kind::Shared && !shared.insert(work.version());
            let n_launches = if is_spared { 0 } else { kind.n_launches() };
            let succeeds = kind.ending().is_some_and(|it| it.reason == "Completed");
            expected.n_launches += n_launches;
            expected.n_again += n_launches.saturating_sub(1);
            expected.n_cached += usize::from(succeeds && !is_spared);
            expected.n_shared += usize::from(kind == Kind::Shared);
            expected.n_aborted += usize::from(kind == Kind::Aborted);
        }
        expected
    }
}
