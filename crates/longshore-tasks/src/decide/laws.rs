//! The laws of every controller, over generated actions.

use longshore_core::Action as Do;
use longshore_plugins::{ErrorKind, K8sConfig, Phase, PhaseInfo};
use longshore_test::laws::{Decider, check_decider};
use proptest::prelude::*;

use super::{ActionPlan, Effect, Observed, Record, decide, tests::action};
use crate::{config::Policy, data::Outcome, model::Work};
use longshore_core::Seen;

#[derive(Debug)]
struct Decisions;

impl Decider for Decisions {
    type Observed = Observed;
    type Status = Record;
    type Effect = Effect;

    fn decide(&self, observed: &Observed) -> ActionPlan {
        decide(&Policy::default(), &K8sConfig::default(), observed)
    }

    /// At most: reports of up to four phases, record, labels, and the removal of the resource.
    fn max_actions(&self) -> usize {
        7
    }

    fn blinded(&self, observed: &Observed) -> Vec<Observed> {
        let unknown = || "the watch is down".to_owned();
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
            Some(create.identity.1.clone())
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

fn observations() -> impl Strategy<Value = Observed> {
    let published = prop::option::of((phases(), 0..4_u32));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        published,
        prop::option::of((phases(), prop::option::of((phases(), 0..2000_i64)))),
        1..3_u32,
        flags,
        0..4_u32,
    )
        .prop_map(
            |(published, pod, max_attempts, (deleting, finalizer, complete), n_failures)| {
                let mut world = action().with(|it| {
                    it.max_attempts = max_attempts;
                    it.action.status.system_failures = n_failures;
                    it.action.is_deleting = deleting;
                    it.action.has_finalizer = finalizer;
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
