//! The questions of TaskActions to stores, the catalog, connectors and the run service, as the kit sends them. Pure; the
//! `ask` module sends them.
//!
//! Each question to a store or the catalog may be asked twice: what it writes is the same each time, at a place that only
//! this action writes, or under the action's own name.

mod answers;
mod limits;

use std::{
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use longshore_api::flyte::TaskActionStatus;
use longshore_core::Question;
use longshore_plugins::{Answer, CacheKey, Call, JobOutputs, Request};
use longshore_proto::flyteidl2::core::LiteralMap;
use prost::Message;

use crate::{
    catalog::{CatalogCacheStatus, Entry, Hit, Metadata},
    data::{Outcome, Owed},
    events::ActionEvent,
};

pub(crate) use answers::{ActionAnswers, without_answer};
pub(crate) use limits::limits;

/// Kinds of questions to stores.
const INPUTS: &str = "store_inputs";
const DIRECTORY: &str = "store_directory";
const OUTCOME: &str = "store_outcome";
const OUTPUTS: &str = "store_outputs";
const LARGE_OUTPUTS: &str = "store_large_outputs";
const KEY: &str = "store_cache_key";
const CACHED: &str = "store_cached_outputs";
const COPY: &str = "store_copy";
const EXISTS: &str = "store_exists";
/// Kinds of questions to the catalog.
const GET: &str = "catalog_get";
const RESERVE: &str = "catalog_reserve";
const PUT: &str = "catalog_put";
const RELEASE: &str = "catalog_release";
/// Kinds of questions to connectors.
pub(crate) const CREATE: &str = "connector_create";
const STATUS: &str = "connector_get";
pub(crate) const DELETE: &str = "connector_delete";
/// The kind of questions to the run service.
const REPORT: &str = "run_service_report";

/// The host of questions to the catalog: an executor has one.
const CATALOG: &str = "catalog";
/// The host of questions to the run service: an executor has one.
const RUN_SERVICE: &str = "run service";
/// The host of URLs without an authority.
const THIS_MACHINE: &str = "file://";

/// A question about an action.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskQuestion {
    /// What are the inputs, of a task that cannot be built or begun without them?
    Inputs {
        /// Where they are.
        url: String,
    },
    /// Make the directory of an attempt, with those above it.
    Directory {
        /// The directory.
        url: String,
    },
    /// What has an attempt left behind?
    Outcome {
        /// What has ended: the uid of the resource or, of a task that makes none, the attempt.
        of: String,
        /// The directory of the attempt.
        prefix: String,
        /// What it owes.
        owed: Owed,
    },
    /// Write the outputs that a connector returned.
    Outputs {
        /// The directory of the attempt.
        prefix: String,
        /// The outputs.
        outputs: JobOutputs,
    },
    /// What are the outputs of this task cached under? The inputs are part of the answer.
    Key {
        /// Where the inputs are; empty for a task without inputs.
        url: String,
    },
    /// What is cached?
    LookUp {
        /// The attempt that asks.
        entry: Entry,
    },
    /// What are the cached outputs?
    Cached {
        /// Where they are.
        url: String,
    },
    /// Write cached outputs to where those of the attempt belong.
    Copy {
        /// The attempt.
        entry: Entry,
        /// The outputs, as they are in a file.
        outputs: Bytes,
    },
    /// Are there outputs of the attempt?
    Exists {
        /// The attempt.
        entry: Entry,
    },
    /// Take the reservation, or extend it.
    Reserve {
        /// The attempt that asks.
        entry: Entry,
        /// The uid of its action.
        uid: String,
        /// The reservation is extended again within this.
        heartbeat: Duration,
        /// The answer is of use within this: it leaves time to ask again while the reservation holds.
        timeout: Duration,
    },
    /// Cache the outputs of an attempt.
    Put {
        /// The attempt.
        entry: Entry,
        /// Where the outputs come from.
        metadata: Box<Metadata>,
    },
    /// Give the reservation up.
    Release {
        /// The attempt.
        entry: Entry,
    },
    /// Ask a connector about a job. A connector that is asked twice begins two jobs: that it is about to be asked is on
    /// record before it is, and not before its turn.
    Connector {
        /// The [`fingerprint`] of the state that is on record when it is asked.
        of: String,
        /// The host of the connector.
        to: String,
        /// What is asked.
        call: Box<Call>,
    },
    /// Tell the run service, and answer once it has acknowledged.
    Report(Arc<Report>),
}

/// Events, and the status that is written once the run service has acknowledged them.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The events, oldest first.
    pub events: Vec<ActionEvent>,
    /// The status that the events were decided upon.
    pub upon: TaskActionStatus,
    /// The status that the events belong to; `None` where the action goes after them.
    pub status: Option<TaskActionStatus>,
}

/// What a foreign system answered.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskAnswer {
    /// To questions that write: it is written.
    Done,
    /// To [`Inputs`](TaskQuestion::Inputs): `None` where there is no file; or why what is there is of no use.
    Inputs(Result<Option<Arc<LiteralMap>>, String>),
    /// To [`Outcome`](TaskQuestion::Outcome).
    Outcome(Outcome),
    /// To [`Key`](TaskQuestion::Key): `None` where there cannot be one.
    Key(Option<CacheKey>),
    /// To [`LookUp`](TaskQuestion::LookUp): `None` where nothing of use is cached.
    Found(Option<Hit>),
    /// To [`Cached`](TaskQuestion::Cached): as they are in a file; or why they cannot be used, where the store has
    /// answered.
    Cached(Result<Bytes, String>),
    /// To [`Exists`](TaskQuestion::Exists).
    Exists(bool),
    /// To [`Reserve`](TaskQuestion::Reserve).
    Reserved(Holder),
    /// To [`Put`](TaskQuestion::Put): what the status says of it.
    Put(CatalogCacheStatus),
    /// To [`Connector`](TaskQuestion::Connector), where a job is begun or asked for.
    Connector(Answer),
    /// To [`Report`](TaskQuestion::Report): the report that the run service has acknowledged.
    Reported(Arc<Report>),
}

/// The owner of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of the owner.
    pub owner: String,
    /// The catalog expects the owner again within this.
    pub heartbeat: Duration,
}

impl Question for TaskQuestion {
    type Answer = TaskAnswer;

    fn kind(&self) -> &'static str {
        match self {
            Self::Inputs { .. } => INPUTS,
            Self::Directory { .. } => DIRECTORY,
            Self::Outcome { .. } => OUTCOME,
            Self::Outputs { outputs, .. } => match outputs {
                JobOutputs::Here(_) => OUTPUTS,
                JobOutputs::Again(_) => LARGE_OUTPUTS,
            },
            Self::Key { .. } => KEY,
            Self::LookUp { .. } => GET,
            Self::Cached { .. } => CACHED,
            Self::Copy { .. } => COPY,
            Self::Exists { .. } => EXISTS,
            Self::Reserve { .. } => RESERVE,
            Self::Put { .. } => PUT,
            Self::Release { .. } => RELEASE,
            Self::Connector { call, .. } => match call.request {
                Request::Create(_) => CREATE,
                Request::Get(_) => STATUS,
                Request::Delete(_) => DELETE,
            },
            Self::Report(_) => REPORT,
        }
    }

    fn host(&self) -> &str {
        match self.system() {
            System::Store(url) => authority(url),
            System::Catalog => CATALOG,
            System::Connector { host, .. } => host,
            System::RunService => RUN_SERVICE,
        }
    }

    fn about(&self) -> String {
        match self {
            Self::Outcome { of, .. } | Self::Connector { of, .. } => of.clone(),
            Self::Directory { url } | Self::Cached { url } => url.clone(),
            Self::Outputs { prefix, .. } => prefix.clone(),
            Self::Copy { entry, .. } | Self::Exists { entry } | Self::Put { entry, .. } => {
                entry.output_prefix.clone()
            }
            Self::Inputs { .. }
            | Self::Key { .. }
            | Self::LookUp { .. }
            | Self::Reserve { .. }
            | Self::Release { .. }
            | Self::Report(_) => String::new(),
        }
    }

    fn may_drop_answer(&self) -> bool {
        Self::only_reads(self.kind())
    }

    fn held_bytes(&self) -> usize {
        if let Self::Copy { outputs, .. } = self {
            outputs.len()
        } else {
            0
        }
    }

    /// Other answers are short, or were made so.
    fn answer_bytes(answer: &TaskAnswer) -> usize {
        match answer {
            TaskAnswer::Inputs(Ok(Some(inputs))) => inputs.encoded_len(),
            TaskAnswer::Found(Some(Hit::Literals(outputs))) | TaskAnswer::Cached(Ok(outputs)) => {
                outputs.len()
            }
            TaskAnswer::Connector(Answer::Created { response, .. }) => response.resource_meta.len(),
            TaskAnswer::Inputs(_)
            | TaskAnswer::Found(_)
            | TaskAnswer::Cached(_)
            | TaskAnswer::Connector(_)
            | TaskAnswer::Done
            | TaskAnswer::Outcome(_)
            | TaskAnswer::Key(_)
            | TaskAnswer::Exists(_)
            | TaskAnswer::Reserved(_)
            | TaskAnswer::Put(_)
            | TaskAnswer::Reported(_) => 0,
        }
    }

    fn is_recorded_first(&self) -> bool {
        self.kind() == CREATE
    }
}

/// A foreign system that is asked.
enum System<'a> {
    /// The object store of this URL.
    Store(&'a str),
    /// The cache service.
    Catalog,
    /// The connector of a task type.
    Connector { task_type: &'a str, host: &'a str },
    /// The run service, which is told of events.
    RunService,
}

impl TaskQuestion {
    /// The foreign system that is asked.
    fn system(&self) -> System<'_> {
        match self {
            Self::Inputs { url }
            | Self::Directory { url }
            | Self::Key { url }
            | Self::Cached { url } => System::Store(url),
            Self::Outcome { prefix, .. } | Self::Outputs { prefix, .. } => System::Store(prefix),
            Self::Copy { entry, .. } | Self::Exists { entry } => {
                System::Store(&entry.output_prefix)
            }
            Self::LookUp { .. }
            | Self::Reserve { .. }
            | Self::Put { .. }
            | Self::Release { .. } => System::Catalog,
            Self::Connector { to, call, .. } => System::Connector {
                task_type: &call.category.task_type,
                host: to,
            },
            Self::Report(_) => System::RunService,
        }
    }

    /// The foreign system that is asked, in words.
    fn whom(&self) -> String {
        match self.system() {
            System::Store(url) => format!("the store of {url}"),
            System::Catalog => "the cache service".to_owned(),
            System::Connector { task_type, .. } => format!("the connector of {task_type}"),
            System::RunService => "the events service".to_owned(),
        }
    }

    /// Whether a connector is asked.
    pub(crate) fn is_of_connectors(kind: &str) -> bool {
        matches!(kind, CREATE | STATUS | DELETE)
    }

    /// Whether an action whose attempt is launched waits for the answer: it runs on while its cache is asked.
    pub(crate) fn holds_what_runs(kind: &str) -> bool {
        !matches!(kind, KEY | GET | CACHED | RESERVE)
    }

    /// Whether an attempt that has ended waits for the answer. Its phase is that of one that runs, so that nothing but the
    /// condition Waiting says that it is held.
    pub(crate) fn holds_what_has_ended(kind: &str) -> bool {
        matches!(kind, OUTCOME | OUTPUTS | LARGE_OUTPUTS)
    }

    /// Whether the answer is all that the question is for: it changes nothing where it is asked. An action that is being
    /// deleted needs none of these answers.
    pub(crate) fn only_reads(kind: &str) -> bool {
        matches!(kind, INPUTS | OUTCOME | EXISTS | GET | CACHED | STATUS)
    }

    /// Whether a plan asks this again until there is an answer; any other failure is final, or the action goes on
    /// without an answer.
    pub(crate) fn is_repeated(kind: &str) -> bool {
        matches!(
            kind,
            INPUTS
                | DIRECTORY
                | OUTCOME
                | OUTPUTS
                | LARGE_OUTPUTS
                | KEY
                | COPY
                | RESERVE
                | DELETE
                | REPORT
        )
    }
}

/// The host of a URL: its scheme and authority. All buckets of one kind have the endpoint of the configuration.
fn authority(url: &str) -> &str {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        return THIS_MACHINE;
    };
    let scheme = url.get(..start).unwrap_or(url);
    match scheme {
        "s3://" | "gs://" => return scheme,
        "abfs://" | "abfss://" => return "abfs://",
        _ => {}
    }
    let rest = url.get(start..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    url.get(..start + end).unwrap_or(url)
}

/// Tells states of a plugin apart.
pub fn fingerprint(state: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(state);
    format!("{:016x}", hasher.finish())
}

/// Which answers an action needs no more.
pub(crate) mod spent {
    use longshore_core::QuestionId;

    use super::{
        CACHED, COPY, CREATE, DELETE, DIRECTORY, EXISTS, GET, INPUTS, LARGE_OUTPUTS, OUTCOME,
        OUTPUTS, PUT, STATUS,
    };

    /// The stage of an attempt.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Stage<'a> {
        /// Whether something of it exists: nothing is asked any more that is asked before.
        pub(crate) is_launched: bool,
        /// Whether it waits for its inputs, or is about to be made from them.
        pub(crate) needs_inputs: bool,
        /// Its directory.
        pub(crate) prefix: &'a str,
        /// What [`TaskQuestion::Outcome`](super::TaskQuestion::Outcome) is about.
        pub(crate) of: Option<&'a str>,
        /// The fingerprint of its state on record.
        pub(crate) state: &'a str,
        /// That of the state that its next request announces.
        pub(crate) announced: Option<&'a str>,
    }

    /// Whether the answer to this question is of no use in this stage.
    pub(crate) fn is_spent(id: &QuestionId, stage: Stage<'_>) -> bool {
        let about = id.about.as_str();
        match id.kind {
            INPUTS => !stage.needs_inputs,
            GET | CACHED => stage.is_launched,
            DIRECTORY | COPY => stage.is_launched || about != stage.prefix,
            OUTCOME => stage.of != Some(about),
            OUTPUTS | LARGE_OUTPUTS | EXISTS | PUT => about != stage.prefix,
            CREATE => about != stage.state && Some(about) != stage.announced,
            STATUS | DELETE => about != stage.state,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::QuestionId;

    use super::{spent::Stage, *};

    #[test]
    fn questions_count_against_the_host_that_they_go_to() {
        for (url, expected) in [
            ("s3://bucket/k/1", "s3://"),
            ("gs://b", "gs://"),
            ("abfs://b/k", "abfs://"),
            ("abfss://b@acme.dfs.core.windows.net/k", "abfs://"),
            ("https://h:1?x", "https://h:1"),
            ("file:///tmp/x", "file://"),
            ("/tmp/x", "file://"),
            ("", "file://"),
        ] {
            assert_eq!(authority(url), expected, "{url}");
            let url = url.to_owned();
            assert_eq!(TaskQuestion::Inputs { url }.host(), expected);
        }
    }

    #[test]
    fn the_task_types_of_a_connector_share_the_places_of_one_host() {
        let question = |task_type: &str| TaskQuestion::Connector {
            of: String::new(),
            to: "connector:8000".to_owned(),
            call: Box::new(Call {
                category: longshore_plugins::Category {
                    task_type: task_type.to_owned(),
                    ..Default::default()
                },
                connector: None,
                request: Request::Get(Box::default()),
            }),
        };
        assert_eq!(question("a").host(), question("b").host());
        assert_eq!(question("a").whom(), "the connector of a");
    }

    #[test]
    fn what_foreign_systems_may_send_much_of_is_counted() {
        let large = Bytes::from_static(&[7; 1000]);
        let inputs = LiteralMap {
            literals: [("i".repeat(1000), Default::default())].into(),
        };
        let job = Answer::Created {
            response: longshore_proto::flyteidl2::connector::CreateTaskResponse {
                resource_meta: vec![7; 1000],
            },
            by: longshore_plugins::Teller::default(),
        };
        for answer in [
            TaskAnswer::Inputs(Ok(Some(Arc::new(inputs)))),
            TaskAnswer::Found(Some(Hit::Literals(large.clone()))),
            TaskAnswer::Cached(Ok(large)),
            TaskAnswer::Connector(job),
        ] {
            let n_bytes = TaskQuestion::answer_bytes(&answer);
            assert!((1000..1010).contains(&n_bytes), "{n_bytes} of {answer:?}");
        }
        assert_eq!(TaskQuestion::answer_bytes(&TaskAnswer::Done), 0);
    }

    #[test]
    fn an_answer_is_spent_when_its_attempt_is_launched_or_another_one_is_next() {
        let new = Stage {
            is_launched: false,
            needs_inputs: true,
            prefix: "s3://b/1",
            of: None,
            state: "s",
            announced: Some("s, announced"),
        };
        let launched = Stage {
            is_launched: true,
            needs_inputs: false,
            of: Some("pod"),
            ..new
        };
        for (kind, about, of_new, of_launched) in [
            (INPUTS, "", false, true),
            (GET, "", false, true),
            (DIRECTORY, "s3://b/1", false, true),
            (COPY, "s3://b/0", true, true),
            (OUTCOME, "pod", true, false),
            (OUTCOME, "pod before", true, true),
            (PUT, "s3://b/1", false, false),
            (PUT, "s3://b/0", true, true),
            (KEY, "", false, false),
            (RESERVE, "", false, false),
            (RELEASE, "", false, false),
            (CREATE, "s", false, false),
            (CREATE, "s, announced", false, false),
            (CREATE, "the state before", true, true),
            (STATUS, "s, announced", true, true),
            (STATUS, "the state before", true, true),
        ] {
            let id = QuestionId::new(kind, about);
            assert_eq!(spent::is_spent(&id, new), of_new, "{id:?}");
            assert_eq!(spent::is_spent(&id, launched), of_launched, "{id:?}");
        }
    }
}
