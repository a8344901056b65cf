//! The laws of every controller, over generated actions.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use longshore_api::flyte::TaskActionStatus;
use longshore_core::{Action as Do, Asked, NoAnswer, QuestionId, Seen, Unknown, UnknownCause};
use longshore_plugins::{ErrorKind, K8sConfig, Phase, PhaseInfo};
use longshore_test::{
    EPOCH,
    laws::{Decider, check_decider},
};
use proptest::prelude::*;

use super::{
    ActionPlan, Observed, Record, decide,
    tests::{action, cached::uncached},
};
use crate::{
    catalog::{Cache, CatalogCacheStatus, Hit, Unkeyed},
    config::Policy,
    data::Outcome,
    model::{Note, Work},
    questions::{Holder, Report, TaskQuestion},
};

#[derive(Debug)]
struct Decisions;

impl Decider for Decisions {
    type Observed = Observed;
    type Status = Record;
    type Effect = Note;
    type Question = TaskQuestion;

    fn decide(&self, observed: &Observed) -> ActionPlan {
        decide(&Policy::default(), &K8sConfig::default(), observed)
    }

    /// At most: reports of up to four phases, record, labels, the removal of the resource, the cache's part, and the
    /// answers that are used up.
    fn max_actions(&self) -> usize {
        8 + ASKED.len()
    }

    fn blinded(&self, observed: &Observed) -> Vec<Observed> {
        let unknown = || Unknown::new(UnknownCause::Unreachable, "the watch is down");
        let no_action = Observed {
            action: Seen::Unknown(unknown()),
            ..observed.clone()
        };
        let mut blinded = vec![no_action];
        if let Seen::Present(action) = &observed.action {
            let mut no_child = action.clone();
            no_child.children.current = Seen::Unknown(unknown());
            blinded.push(Observed {
                action: Seen::Present(no_child),
                ..observed.clone()
            });
        }
        blinded
    }

    fn leaves_terminal(&self, observed: &Observed, record: &Record) -> bool {
        let old = observed.action.present().map(|action| &action.status);
        old.is_some_and(|old| old.is_terminal() && *old != record.status)
    }

    fn intent_of(&self, action: &Do<Record, Note, TaskQuestion>) -> Option<String> {
        if let Do::Create(create) = action {
            Some(create.identity.value().to_owned())
        } else {
            None
        }
    }

    /// The finalizer says that something may exist, attempt and system failures which launch it is.
    fn is_intended(&self, observed: &Observed, intent: &str) -> bool {
        observed.action.present().is_some_and(|action| {
            let launch = crate::model::LaunchId::of(&action.target, &action.status);
            action.has_finalizer && launch.to_string() == intent
        })
    }
}

fn phases() -> impl Strategy<Value = PhaseInfo> {
    let phase = prop::sample::select(Phase::ALL.to_vec());
    let kind = prop::sample::select(vec![ErrorKind::User, ErrorKind::System, ErrorKind::Unknown]);
    (phase, kind, 0..3_u32, any::<bool>()).prop_map(|(phase, kind, version, cleanup)| {
        let mut info = if phase == Phase::RetryableFailure {
            PhaseInfo::retryable(kind, "Code", "message")
        } else if phase == Phase::PermanentFailure {
            PhaseInfo::permanent(kind, "Code", "message")
        } else {
            PhaseInfo::of(phase, "reason")
        };
        info.version = version;
        info.cleanup_on_failure = cleanup;
        info
    })
}

/// Questions that may be under way, or have an answer.
const ASKED: [(&str, &str); 6] = [
    ("store_outcome", "pod"),
    ("store_outcome", "the pod before"),
    ("store_inputs", ""),
    ("store_cache_key", ""),
    ("catalog_get", ""),
    ("catalog_reserve", ""),
];

/// How far a question may be, up to 20 s ago.
fn asked<T: Clone + std::fmt::Debug + 'static>(answers: Vec<T>) -> impl Strategy<Value = Asked<T>> {
    let answered =
        (prop::sample::select(answers), 0..20_i64).prop_map(|(answer, ago)| Asked::Answered {
            at: at(ago),
            answer,
        });
    let failed = (0..20_i64).prop_map(|ago| Asked::Failed {
        at: at(ago),
        why: NoAnswer::TimedOut,
        message: "down".to_owned(),
    });
    let under_way = (0..20_i64).prop_map(|ago| Asked::UnderWay { since: at(ago) });
    prop_oneof![Just(Asked::NotAsked), under_way, answered, failed]
}

fn at(ago: i64) -> jiff::Timestamp {
    EPOCH - jiff::SignedDuration::from_secs(ago)
}

/// What may be known of a cache.
fn caches() -> impl Strategy<Value = Cache> {
    let outputs = Bytes::from_static(b"o");
    let found = asked(vec![
        None,
        Some(Hit::Literals(outputs.clone())),
        Some(Hit::File("s3://b/o".to_owned())),
    ]);
    let reserved = || asked(["flyte/r-a", "flyte/r-b"].map(holder).to_vec());
    let put = asked(vec![CatalogCacheStatus::CachePopulated]);
    let keyed = (
        any::<(bool, bool)>(),
        (found, asked(vec![None, Some(outputs)]), asked(vec![()])),
        (reserved(), reserved(), asked(vec![()])),
        (asked(vec![true, false]), put),
    );
    let keyed = keyed.prop_map(
        |((serializable, freed), (found, read, copied), (reserved, before, released), kept)| {
            let Cache::Keyed(mut cached) = uncached(serializable).cache() else {
                return Cache::None;
            };
            cached.is_freed = freed;
            (cached.found, cached.read, cached.copied) = (found, read, copied);
            (cached.reserved, cached.reserved_before) = (reserved, before);
            cached.released = released;
            (cached.exists, cached.put) = kept;
            Cache::Keyed(cached)
        },
    );
    let unkeyed = (any::<bool>(), asked(vec![()])).prop_map(|(is_serializable, key)| {
        Cache::Unkeyed(Unkeyed {
            url: "s3://b/in".to_owned(),
            is_serializable,
            key,
        })
    });
    prop_oneof![Just(Cache::None), unkeyed, keyed]
}

fn holder(owner: &str) -> Holder {
    Holder {
        owner: owner.to_owned(),
        heartbeat: Duration::from_secs(10),
    }
}

fn outcomes() -> impl Strategy<Value = Asked<Outcome>> {
    asked(vec![
        Outcome::Complete,
        Outcome::Incomplete("nothing".to_owned()),
    ])
}

/// What the run service has acknowledged of an action with this status: the next one, or another one's. Nothing follows a
/// status that is final.
fn report_of(reported: &Asked<bool>, status: &TaskActionStatus) -> Asked<Arc<Report>> {
    match reported {
        Asked::Answered { answer: true, .. } if status.is_terminal() => Asked::NotAsked,
        Asked::NotAsked => Asked::NotAsked,
        Asked::AskedByAnother => Asked::AskedByAnother,
        Asked::UnderWay { since } => Asked::UnderWay { since: *since },
        Asked::Failed { at, why, message } => Asked::Failed {
            at: *at,
            why: *why,
            message: message.clone(),
        },
        Asked::Answered { at, answer } => {
            let mut next = status.clone();
            next.plugin_phase_version += 1;
            let (upon, next) = if *answer {
                (status.clone(), next)
            } else {
                (next.clone(), next)
            };
            let report = Report {
                events: Vec::new(),
                upon,
                status: Some(next),
            };
            Asked::Answered {
                at: *at,
                answer: Arc::new(report),
            }
        }
    }
}

fn observations() -> impl Strategy<Value = Observed> {
    let published = prop::option::of((phases(), 0..4_u32));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        published,
        prop::option::of((phases(), prop::option::of((phases(), 0..2000_i64)))),
        1..3_u32,
        flags,
        (0..4_u32, caches(), outcomes(), asked(vec![()])),
        asked(vec![true, false]),
    )
        .prop_map(
            |(
                published,
                pod,
                max_attempts,
                (deleting, finalizer, has_directory),
                (n_failures, cache, outcome, directory),
                reported,
            )| {
                let mut world = action().with(|it| {
                    it.max_attempts = max_attempts;
                    it.action.status.system_failures = n_failures;
                    it.action.is_deleting = deleting;
                    it.action.has_finalizer = finalizer;
                    it.cache = cache;
                });
                if let Some((info, version)) = published {
                    world = world.started(info.phase, version, &info.reason);
                }
                if let Some((info, noticed)) = pod {
                    world = world.pod(info);
                    if let Some((before, ago)) = noticed {
                        world = world.pending(before, ago).pod_event("event:1", ago);
                    }
                }
                let mut observed = world.observed();
                if let Seen::Present(action) = &mut observed.action
                    && let Work::Task(task) = &mut action.work
                {
                    task.outcome = outcome;
                    task.directory = has_directory.then_some(directory);
                }
                if let Seen::Present(action) = &mut observed.action {
                    let asked = ASKED.iter();
                    let asked = asked.map(|(kind, about)| QuestionId::new(kind, *about));
                    action.asked = asked.collect();
                    action.reported = report_of(&reported, &action.status);
                }
                observed
            },
        )
}

#[test]
fn every_decision_keeps_the_laws() {
    let broken = check_decider(&Decisions, &observations(), 400);
    assert!(broken.is_empty(), "{}", broken[0]);
}
