//! What the first leader asks is held until the test lets it have its answers.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;
use longshore_node::{ContainerLogs, LogError, LogOptions, log_server::LogStream};
use longshore_test::{
    Answer, Conduct, Received,
    flyte::{
        System,
        connector::{created, output_prefix},
        events_of, refusal, store,
    },
};
use tokio::sync::watch;

use super::until;

/// Actions of which each is to have one kind of request under way.
pub(super) const JOB: &str = "begun";
pub(super) const WAITING: &str = "waiting";
pub(super) const OUTPUTS: &str = "outputs";
pub(super) const PUT: &str = "put";
pub(super) const RESERVED: &str = "reserved";
pub(super) const TOLD: &str = "told";
/// The number of events in one request.
pub(super) const N_TOLD: usize = 4;

/// A kind of request that the paused leader has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// That a connector begins a job.
    Begin,
    /// That a store takes the outputs of a job.
    Write,
    /// That the catalog takes outputs.
    Put,
    /// That the catalog grants a reservation.
    Reserve,
    /// That the events service takes events.
    Tell,
    /// Whether the webhook of a rule lets a pod pass.
    Pass,
    /// The log of a pod of a DAG, which goes into the archive.
    Read,
}

/// How far the test is: what the first leader asks is held until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Holds,
    /// The first leader is paused: others are answered.
    Paused,
    /// What was held is answered.
    Released,
}

/// What was held, and when it is to be answered.
#[derive(Clone)]
pub(super) struct Held {
    stage: watch::Sender<Stage>,
    kinds: watch::Sender<BTreeSet<Kind>>,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Holds),
            kinds: watch::Sender::default(),
        }
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Notes a request of the first leader; `None` where that is paused already.
    fn hold(&self, kind: Kind) -> Option<impl Future<Output = ()> + Send + use<>> {
        if *self.stage.borrow() != Stage::Holds {
            return None;
        }
        self.kinds.send_modify(|kinds| {
            kinds.insert(kind);
        });
        let mut stage = self.stage.subscribe();
        Some(async move {
            // The sender lives as long as the server.
            let _ = stage.wait_for(|stage| *stage == Stage::Released).await;
        })
    }

    /// A request that gets this answer when it is released; `None` where nothing is held.
    pub(super) fn answers(&self, kind: Kind, answer: Answer) -> Option<Conduct> {
        let held = self.hold(kind)?;
        Some(Conduct::Later(Box::pin(async move {
            held.await;
            answer
        })))
    }

    pub(super) async fn until(&self, kind: Kind) {
        let has = || self.kinds.borrow().contains(&kind);
        until(&format!("{kind:?} is under way"), has).await;
    }
}

fn ok(body: impl Into<Bytes>) -> Answer {
    Answer::new(StatusCode::OK, "application/proto", body)
}

/// Which requests are held, and what they are answered later.
pub(super) fn conduct(held: &Held, system: System, received: &Received) -> Option<Conduct> {
    let method = received.path.rsplit('/').next().unwrap_or_default();
    match system {
        System::Connector
            if method == "CreateTask" && output_prefix(received).contains(&format!("/{JOB}")) =>
        {
            // The job has begun: a leader that reads this answer would record it.
            held.answers(Kind::Begin, created(received))
        }
        // The client of a store would repeat the request.
        System::Store if received.method == http::Method::PUT => {
            let later = store::error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown");
            held.answers(Kind::Write, later)
        }
        System::Catalog if method == "Put" => held.answers(Kind::Put, ok("")),
        System::Catalog if method == "GetOrExtendReservation" => {
            // The reservation of another owner: a leader that reads this answer would ask again.
            held.answers(Kind::Reserve, ok(""))
        }
        System::Events => {
            let events = events_of(received).unwrap();
            let names = events.iter().filter_map(|event| {
                let id = event.id.as_ref()?;
                Some(id.name.as_str())
            });
            let is_held = names.into_iter().any(|name| name.starts_with(TOLD));
            // The sender would send the events again, in two parts.
            let refused = refusal(StatusCode::BAD_REQUEST, "invalid_argument", "one is bad");
            is_held.then(|| held.answers(Kind::Tell, refused))?
        }
        System::Connector | System::Store | System::Catalog => None,
    }
}

/// The logs of pods: the first leader gets the beginning of one, and its end later.
pub(super) struct Logs(pub(super) Held);

/// Of a log that is larger than what is written at one go.
const FIRST_LINE: &str = "as the first leader reads it\n";
const N_LINES: usize = 4_000;
pub(super) const SECOND_LOG: &str = "as the second leader reads it\n";

#[async_trait]
impl ContainerLogs for Logs {
    async fn logs(&self, _: &str, _: &str, _: &str, _: &LogOptions) -> Result<LogStream, LogError> {
        let Some(held) = self.0.hold(Kind::Read) else {
            return Ok(stream::iter([Ok(Bytes::from(SECOND_LOG))]).boxed());
        };
        let begin = stream::iter([Ok(Bytes::from(FIRST_LINE.repeat(N_LINES)))]);
        let end = stream::once(async move {
            held.await;
            Ok(Bytes::from(FIRST_LINE))
        });
        Ok(begin.chain(end).boxed())
    }
}
