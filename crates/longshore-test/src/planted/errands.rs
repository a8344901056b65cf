//! A toy controller that calls a foreign system, right and wrong.
//!
//! An *errand* is a ConfigMap that needs an answer of a foreign system. Its state stands in the
//! ConfigMap: nothing, `asked`, or the answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use longshore_cluster::Cluster;
use longshore_core::{
    Action, AskError, Asked, Incarnation, Never, NoAnswer, ObjectRef, Patch, PatchKind, Plan,
    Question, QuestionId, Resource, Seen,
};
use longshore_kit::{
    Answers, Applier, ApplyError, Cache, CacheFeed, Clock, Controller, ListWatch, Runner,
    cache::reference,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::crowd::host_of;
use crate::{
    EPOCH, Process, SimClock, clock,
    fixtures::config_map,
    foreign::{ForeignClient, ForeignSystem, Reply},
    laws::{Decider, Law, Owned, Read, Scenario, all_reads},
};

const NAMESPACE: &str = "default";
/// The label of errands.
pub(super) const LABEL: &str = "test.longshore.dev/errand";
/// The state of an errand whose question may be under way.
pub(super) const STATE_ASKED: &str = "asked";
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const FETCH: &str = "fetch";
/// How long [`ErrandBug::AsksInRounds`] waits for an answer: as long as the kit does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Errands, and how they end.
const ERRANDS: [(&str, &str); 4] = [
    ("quick", "answer to quick"),
    ("slow", "answer to slow"),
    // Refused twice.
    ("stubborn", "answer to stubborn"),
    // The foreign system hangs the first time.
    ("lost", "answer to lost"),
];

/// What is wrong with the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrandBug {
    /// No bug: the toy is right.
    None,
    /// Sends the question before the intent is on record.
    AsksUnrecorded,
    /// Uses the answer up before it is on record.
    UsesFirst,
    /// Waits for the answer to the question of another process.
    WaitsForAnother,
    /// Takes a question that failed for one that is under way.
    IgnoresFailures,
    /// Sends the question while it observes, so that its rounds wait for answers.
    AsksInRounds,
    /// Has one limit for all foreign systems.
    OneLimitForAll,
}

impl ErrandBug {
    /// All of them, and the law that each breaks.
    pub const ALL: [(Self, Law); 6] = [
        (Self::AsksUnrecorded, Law::WrittenAhead),
        (Self::UsesFirst, Law::AnswersAreKept),
        (Self::WaitsForAnother, Law::Restartable),
        (Self::IgnoresFailures, Law::NothingDropped),
        (Self::AsksInRounds, Law::DelaysNobodyElse),
        (Self::OneLimitForAll, Law::DelaysNobodyElse),
    ];
}

/// The snapshot that a round decides upon.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrandObserved {
    /// The errand.
    pub errand: Seen<Errand>,
    /// The state of its question.
    pub asked: Asked<String>,
}

/// A ConfigMap that needs an answer of a foreign system.
#[derive(Clone, Debug, PartialEq)]
pub struct Errand {
    /// The ConfigMap.
    pub target: ObjectRef,
    /// The version that was seen.
    pub version: String,
    /// Empty, `asked`, or the answer.
    pub state: String,
}

/// What the toy records.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrandRecord {
    target: ObjectRef,
    version: String,
    state: String,
}

/// The question of the toy. The name is the idempotency key: a question that is sent twice has its effect once.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    name: String,
    host: String,
}

impl Question for Fetch {
    type Answer = String;

    fn kind(&self) -> &'static str {
        FETCH
    }

    fn host(&self) -> &str {
        &self.host
    }
}

type ErrandPlan = Plan<ErrandRecord, Never, Fetch>;

impl ErrandBug {
    fn fetch(self, name: &str) -> Fetch {
        let host = if self == Self::OneLimitForAll {
            "foreign"
        } else {
            host_of(name)
        };
        Fetch {
            name: name.to_owned(),
            host: host.to_owned(),
        }
    }

    fn plan(self, observed: &ErrandObserved) -> ErrandPlan {
        let errand = match &observed.errand {
            Seen::Present(errand) => errand,
            Seen::Absent => return Plan::await_change(),
            Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
        };
        let record = |state: &str| {
            Action::Persist(ErrandRecord {
                target: errand.target.clone(),
                version: errand.version.clone(),
                state: state.to_owned(),
            })
        };
        let ask = || Action::Ask(self.fetch(&errand.target.name));
        let used = || Action::Used(QuestionId::new(FETCH, ""));
        match (errand.state.as_str(), &observed.asked) {
            ("", _) if self == Self::AsksUnrecorded => Plan::of(vec![ask(), record("asked")]),
            ("", _) if self == Self::AsksInRounds => Plan::of(vec![record("asked")]),
            ("", _) => Plan::of(vec![record("asked"), ask()]),
            ("asked", Asked::AskedByAnother) if self == Self::WaitsForAnother => {
                Plan::await_change()
            }
            ("asked", Asked::Failed { .. }) if self == Self::IgnoresFailures => {
                Plan::await_change()
            }
            ("asked", Asked::NotAsked | Asked::AskedByAnother | Asked::Failed { .. })
                if self == Self::AsksInRounds =>
            {
                Plan::after(LOOK_AGAIN)
            }
            ("asked", Asked::NotAsked | Asked::AskedByAnother | Asked::Failed { .. }) => {
                Plan::of(vec![ask()])
            }
            ("asked", Asked::UnderWay { .. }) => Plan::await_change(),
            ("asked", Asked::Answered { answer, .. }) if self == Self::UsesFirst => {
                Plan::of(vec![used(), record(answer)])
            }
            ("asked", Asked::Answered { answer, .. }) => Plan::of(vec![record(answer), used()]),
            (_, asked) if asked.is_over() => Plan::of(vec![used()]),
            _ => Plan::await_change(),
        }
    }
}

crate::reads! {
    ErrandObserved { errand, asked }
}

impl Decider for ErrandBug {
    type Observed = ErrandObserved;
    type Status = ErrandRecord;
    type Effect = Never;
    type Question = Fetch;

    fn decide(&self, observed: &ErrandObserved) -> ErrandPlan {
        self.plan(observed)
    }

    fn max_actions(&self) -> usize {
        2
    }

    fn reads(&self, observed: &ErrandObserved) -> Result<Vec<Read<ErrandObserved>>, String> {
        all_reads(observed)
    }

    fn intent_of(&self, action: &Action<ErrandRecord, Never, Fetch>) -> Option<String> {
        matches!(action, Action::Ask(_)).then(|| "asked".to_owned())
    }

    fn is_intended(&self, observed: &ErrandObserved, intent: &str) -> bool {
        let errand = observed.errand.present();
        errand.is_some_and(|errand| errand.state == intent)
    }

    fn records_intent(&self, record: &ErrandRecord, intent: &str) -> bool {
        record.state == intent
    }

    fn leaves_terminal(&self, observed: &ErrandObserved, record: &ErrandRecord) -> bool {
        let state = observed.errand.present().map(|it| it.state.as_str());
        !matches!(state, None | Some("" | "asked")) && state != Some(&record.state)
    }
}

/// Observations of errands in every state, whatever became of the question.
pub fn errand_observations() -> impl Strategy<Value = ErrandObserved> {
    let state = prop_oneof![Just(""), Just("asked"), Just("answer to e")];
    let asked = any::<u8>().prop_map(|n| match n % 5 {
        0 => Asked::NotAsked,
        1 => Asked::UnderWay { since: EPOCH },
        2 => Asked::Answered {
            at: EPOCH,
            answer: "answer to e".to_owned(),
        },
        3 => Asked::Failed {
            at: EPOCH,
            why: NoAnswer::TimedOut,
            message: "silence".to_owned(),
        },
        _ => Asked::AskedByAnother,
    });
    (state, asked).prop_map(|(state, asked)| ErrandObserved {
        errand: Seen::Present(Errand {
            target: ObjectRef {
                resource: Resource::CONFIG_MAP,
                namespace: NAMESPACE.to_owned(),
                name: "e".to_owned(),
                uid: Some("u".to_owned()),
            },
            version: "7".to_owned(),
            state: state.to_owned(),
        }),
        asked,
    })
}

/// The toy on the kit.
#[derive(Debug)]
pub(super) struct Errands {
    bug: ErrandBug,
    applier: Applier,
    maps: Arc<Cache<ConfigMap>>,
    foreign: ForeignClient,
}

impl Errands {
    pub(super) async fn run(
        bug: ErrandBug,
        client: Client,
        foreign: ForeignClient,
        clock: Arc<dyn Clock>,
    ) {
        let maps = Cache::new();
        let feed: Arc<dyn CacheFeed> = maps.clone();
        let applier = Applier::new(client.clone(), "planted", [(Resource::CONFIG_MAP, feed)]);
        let watch = ListWatch::new(Api::<ConfigMap>::all(client)).labels(LABEL);
        let triggers = watch.into_cache(Arc::clone(&maps)).filter_map(|update| {
            let name = update.into_object().and_then(|it| it.metadata.name.clone());
            std::future::ready(name)
        });
        let controller = Arc::new(Self {
            bug,
            applier: applier.clone(),
            maps,
            foreign,
        });
        Runner::new(controller, applier, clock)
            .run(triggers, CancellationToken::new())
            .await;
    }
}

impl Controller for Errands {
    type Key = String;
    type Observed = ErrandObserved;
    type Status = ErrandRecord;
    type Effect = Never;
    type Question = Fetch;
    type Error = ApplyError;

    fn name(&self) -> &'static str {
        "planted.errands"
    }

    async fn observe(
        &self,
        key: &String,
        now: Timestamp,
        answers: &Answers<Fetch>,
    ) -> Result<ErrandObserved, ApplyError> {
        let errand = self.maps.get(NAMESPACE, key).map(|map| {
            let data = map.data.as_ref();
            let state = data.and_then(|data| data.get("state").cloned());
            Errand {
                target: reference(Resource::CONFIG_MAP, &*map),
                version: map.metadata.resource_version.clone().unwrap_or_default(),
                state: state.unwrap_or_default(),
            }
        });
        let asked = match &errand {
            Seen::Present(errand) if self.bug == ErrandBug::AsksInRounds => {
                self.asked_in_round(errand, now).await
            }
            Seen::Present(errand) => {
                let is_recorded = errand.state == STATE_ASKED;
                let id = QuestionId::new(FETCH, "");
                answers.recorded(&incarnation(errand), &id, is_recorded)
            }
            Seen::Absent | Seen::Unknown(_) => Asked::NotAsked,
        };
        Ok(ErrandObserved { errand, asked })
    }

    fn incarnation(&self, observed: &ErrandObserved) -> Seen<Incarnation> {
        observed.errand.as_ref().map(incarnation)
    }

    fn decide(&self, observed: &ErrandObserved) -> ErrandPlan {
        self.bug.plan(observed)
    }

    async fn persist(&self, key: &String, record: &ErrandRecord) -> Result<(), ApplyError> {
        let patch = Patch {
            target: record.target.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch: json!({
                "metadata": {"resourceVersion": record.version},
                "data": {"state": record.state},
            }),
        };
        self.applier.patch(key, &patch).await
    }

    async fn call(&self, _: &String, effect: &Never) -> Result<(), ApplyError> {
        match *effect {}
    }

    async fn ask(&self, _: &String, fetch: &Fetch, _: usize) -> Result<String, AskError> {
        self.foreign.ask(FETCH, &fetch.name).await
    }
}

impl Errands {
    /// What [`ErrandBug::AsksInRounds`] observes.
    async fn asked_in_round(&self, errand: &Errand, now: Timestamp) -> Asked<String> {
        if errand.state != STATE_ASKED {
            return Asked::NotAsked;
        }
        let asked = self.foreign.ask(FETCH, &errand.target.name);
        let error = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => return Asked::Answered { at: now, answer },
            Ok(Err(error)) => error,
            Err(elapsed) => AskError::new(NoAnswer::TimedOut, elapsed.to_string()),
        };
        Asked::Failed {
            at: now,
            why: error.why,
            message: error.message,
        }
    }
}

fn incarnation(errand: &Errand) -> Incarnation {
    Incarnation::of(errand.target.uid.clone().unwrap_or_default())
}

/// The toy with a bug, or none.
#[derive(Clone, Copy, Debug)]
pub struct ErrandScenario(pub ErrandBug);

/// See [`ErrandScenario`].
#[derive(Debug)]
pub struct ErrandWorld {
    cluster: Cluster,
    clock: Arc<SimClock>,
    foreign: ForeignSystem,
}

impl Scenario for ErrandScenario {
    type World = ErrandWorld;
    type Subject = Owned;

    fn name(&self) -> String {
        format!("errands with {:?}", self.0)
    }

    #[expect(
        clippy::expect_used,
        reason = "a scenario that cannot be built cannot be judged"
    )]
    async fn build(&self) -> ErrandWorld {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        for (name, _) in ERRANDS {
            let map = config_map(name).labelled(LABEL, "").typed();
            let created = api.create(&PostParams::default(), &map).await;
            created.expect("the scenario's objects");
        }
        let foreign = ForeignSystem::new(|question, n| {
            let answer = format!("answer to {question}");
            match (question, n) {
                ("slow", _) => Reply::AnswersAfter(Duration::from_secs(4), answer),
                ("stubborn", 1 | 2) => Reply::Fails(NoAnswer::Unreachable, "503".to_owned()),
                ("lost", 1) => Reply::Hangs,
                _ => Reply::Answers(answer),
            }
        });
        ErrandWorld {
            cluster,
            clock,
            foreign,
        }
    }

    fn start(&self, world: &mut ErrandWorld, process: &Process) -> Owned {
        let client = process.client(world.cluster.service());
        let foreign = world.foreign.through(process);
        Owned::spawn(Errands::run(self.0, client, foreign, world.clock.clone()))
    }

    #[expect(clippy::expect_used, reason = "the cluster is in memory")]
    async fn digest(&self, world: &ErrandWorld) -> String {
        let api: Api<ConfigMap> = Api::default_namespaced(world.cluster.client());
        let maps = api.list(&ListParams::default()).await.expect("a list");
        let states: BTreeMap<_, _> = maps
            .into_iter()
            .map(|map| {
                let state = map.data.and_then(|data| data.get("state").cloned());
                (map.metadata.name.unwrap_or_default(), state)
            })
            .collect();
        format!("{states:#?}")
    }
}

/// The expected ends of the errands.
pub fn errand_ends() -> String {
    let ends: BTreeMap<_, _> = ERRANDS
        .iter()
        .map(|(name, end)| ((*name).to_owned(), Some((*end).to_owned())))
        .collect();
    format!("{ends:#?}")
}
