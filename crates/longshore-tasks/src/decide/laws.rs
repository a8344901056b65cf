//! The laws of every controller, over generated actions.

use std::time::Duration;

use bytes::Bytes;
use longshore_core::{Action as Do, Never, Seen, Unknown, UnknownCause};
use longshore_plugins::{ErrorKind, K8sConfig, Phase, PhaseInfo};
use longshore_test::{
    EPOCH,
    laws::{Decider, check_decider},
};
use proptest::prelude::*;

use super::{
    ActionPlan, Effect, Observed, Record, decide,
    tests::{action, cached::uncached},
};
use crate::{
    catalog::{Cached, CatalogCacheStatus, Held, decide::Claim},
    config::Policy,
    data::Outcome,
    model::Work,
};

#[derive(Debug)]
struct Decisions;

impl Decider for Decisions {
    type Observed = Observed;
    type Status = Record;
    type Effect = Effect;
    type Question = Never;

    fn decide(&self, observed: &Observed) -> ActionPlan {
        decide(&Policy::default(), &K8sConfig::default(), observed)
    }

    /// At most: reports of up to four phases, record, labels, the removal of the resource, and the cache's part.
    fn max_actions(&self) -> usize {
        8
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

    fn intent_of(&self, action: &Do<Record, Effect>) -> Option<String> {
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

/// What may be known of a cache.
fn caches() -> impl Strategy<Value = Seen<Cached>> {
    let outputs = prop::sample::select(vec![
        Seen::Absent,
        Seen::Present(Bytes::from_static(b"o")),
        Seen::unknown(UnknownCause::Unreachable, "down"),
    ]);
    let owner = prop::sample::select(vec![Some("flyte/r-a"), Some("flyte/r-b"), None]);
    let held = prop::option::of((owner, 0..20_i64));
    let kept = prop::option::of(Just(CatalogCacheStatus::CachePopulated));
    let cached =
        (any::<bool>(), outputs, held, kept).prop_map(|(serialized, outputs, held, kept)| {
            let mut cached = uncached(serialized);
            cached.outputs = outputs;
            cached.held = held.map(|(owner, ago)| Held {
                at: EPOCH - jiff::SignedDuration::from_secs(ago),
                claim: owner.map_or_else(
                    || Claim::Failed("down".to_owned()),
                    |owner| Claim::HeldBy {
                        owner: owner.to_owned(),
                        heartbeat: Duration::from_secs(10),
                    },
                ),
            });
            cached.kept = kept;
            Seen::Present(cached)
        });
    let unknown = Just(Seen::unknown(UnknownCause::Unreachable, "no bucket"));
    prop_oneof![Just(Seen::Absent), unknown, cached]
}

fn observations() -> impl Strategy<Value = Observed> {
    let published = prop::option::of((phases(), 0..4_u32));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        published,
        prop::option::of((phases(), prop::option::of((phases(), 0..2000_i64)))),
        1..3_u32,
        flags,
        (0..4_u32, caches()),
    )
        .prop_map(
            |(
                published,
                pod,
                max_attempts,
                (deleting, finalizer, complete),
                (n_failures, cached),
            )| {
                let mut world = action().with(|it| {
                    it.max_attempts = max_attempts;
                    it.action.status.system_failures = n_failures;
                    it.action.is_deleting = deleting;
                    it.action.has_finalizer = finalizer;
                    it.cached = cached;
                });
                if let Some((info, version)) = published {
                    world = world.started(info.phase, version, &info.reason);
                }
                if let Some((info, noticed)) = pod {
                    world = world.pod(info);
                    if let Some((before, ago)) = noticed {
                        world = world.noticed(before, ago).happened("event:1", ago);
                    }
                }
                let mut observed = world.observed();
                if let Seen::Present(action) = &mut observed.action
                    && let Work::Task(task) = &mut action.work
                {
                    let lost = Outcome::Incomplete("nothing".to_owned());
                    task.outcome = Seen::Present(if complete { Outcome::Complete } else { lost });
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
