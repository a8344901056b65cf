//! The laws of every controller, over generated actions.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use longshore_api::{
    flyte::{CONDITION_WAITING, REASON_NOT_SEEN, TaskActionStatus},
    tasks::ANNOTATION_LAUNCH,
};
use longshore_core::{Action as Do, Asked, NoAnswer, ObjectRef, QuestionId, Resource, Seen};
use longshore_kit::{Answers, Change, NotDone, Verb};
use longshore_plugins::{
    AbortBehavior, BuildError, ErrorKind, HeadPod, K8sConfig, Phase, PhaseInfo, Plugin, TaskContext,
};
use longshore_test::{
    EPOCH,
    laws::{Decider, Read, all_reads, check_decider},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ActionPlan, Observed, Record, decide,
    tests::{action, cached::uncached},
};
use crate::{
    catalog::{Cache, CatalogCacheStatus, Hit, Unkeyed},
    config::Policy,
    data::Outcome,
    facts::Facts,
    model::{
        Abort, Action, ActionKey, Children, Fact, LaunchId, Note, Refused, SlotState, StatusForm,
        Undone, Work,
    },
    observe::{Loaded, LoadedAction, LoadedChildren},
    questions::{Holder, Report, TaskQuestion},
};

longshore_test::reads! {
    Observed { now, action }
    Action {
        target, object, spec, status, is_deleting, has_finalizer, work, children, asked,
        has_event_receiver, reported,
        unanswered, said, undone, unlisted_since, form
    }
    Abort { behavior, object, refused }
    Children { current, earlier, newly_gone, abort }
    LoadedAction { action, facts, slot, is_caching, children }
    LoadedChildren { kind, current, is_read, earlier, head, head_pod, pod_template, abort }
}

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

    /// At most: six notes, what holds it, reports of up to four phases, record, a warning that it is too large, labels, the
    /// removal of the resource, the cache's two parts, and the answers that are used up.
    fn max_actions(&self) -> usize {
        17 + ASKED.len()
    }

    fn reads(&self, observed: &Observed) -> Result<Vec<Read<Observed>>, String> {
        all_reads(observed)
    }

    /// What cannot be seen is noted, and said.
    fn is_allowed_blind(&self, action: &Do<Record, Note, TaskQuestion>) -> bool {
        match action {
            Do::Call(note) => matches!(note.fact, Fact::Unread(Some(_)) | Fact::Told(_)),
            Do::Persist(record) => {
                let said = record.status.condition(CONDITION_WAITING);
                said.is_some_and(|said| said.reason == REASON_NOT_SEEN)
            }
            Do::Announce(announcement) => announcement.reason == REASON_NOT_SEEN,
            Do::EnsureFinalizer { .. }
            | Do::Create(_)
            | Do::Patch(_)
            | Do::Delete(_)
            | Do::Ask(_)
            | Do::Used(_)
            | Do::RemoveFinalizer { .. } => false,
        }
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
    let read = vec![Ok(outputs), Err("it is not there any more".to_owned())];
    let reserved = || asked(["flyte/r-a", "flyte/r-b"].map(holder).to_vec());
    let put = asked(vec![CatalogCacheStatus::CachePopulated]);
    let keyed = (
        any::<(bool, bool)>(),
        any::<(bool, bool)>(),
        (found, asked(read), asked(vec![()])),
        (reserved(), reserved(), asked(vec![()])),
        (asked(vec![true, false]), put),
    );
    let keyed = keyed.prop_map(
        |(
            (serializable, freed),
            (is_look_up_given_up, is_reservation_given_up),
            (found, read, copied),
            (reserved, before, released),
            kept,
        )| {
            let Cache::Keyed(mut cached) = uncached(serializable).cache() else {
                return Cache::None;
            };
            cached.is_freed = freed;
            cached.is_look_up_given_up = is_look_up_given_up;
            cached.is_reservation_given_up = is_reservation_given_up;
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

/// What the API server may not do, for up to a minute.
fn undone() -> impl Strategy<Value = Undone> {
    let since = || prop::option::of(0..60_i64);
    let verbs = vec![Verb::Delete, Verb::EnsureFinalizer, Verb::RemoveFinalizer];
    let verb = prop::sample::select(verbs);
    let parts = (since(), since(), since(), since(), verb, any::<bool>());
    parts.prop_map(|(status, change, unread, told, verb, is_final)| {
        let refused = |ago| Refused {
            since: at(ago),
            why: NotDone {
                why: "no".to_owned(),
                is_final,
            },
        };
        let action = action().action.target;
        let pod = ObjectRef {
            resource: Resource::POD,
            name: "r-a-0".to_owned(),
            uid: Some("pod".to_owned()),
            ..action.clone()
        };
        let target = if verb == Verb::Delete { pod } else { action };
        Undone {
            status: status.map(refused),
            change: change.map(|ago| (Change { verb, target }, refused(ago))),
            unread_since: unread.map(at),
            told_at: told.map(at),
        }
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
        (0..4_u32, caches(), outcomes(), asked(vec![()]), undone()),
        asked(vec![true, false]),
        prop::sample::select(vec![
            StatusForm::Full,
            StatusForm::Short,
            StatusForm::Unwritable,
        ]),
    )
        .prop_map(
            |(
                published,
                pod,
                max_attempts,
                (deleting, finalizer, has_directory),
                (n_failures, cache, outcome, directory, undone),
                reported,
                form,
            )| {
                let mut world = action().with(|it| {
                    it.max_attempts = max_attempts;
                    it.action.status.system_failures = n_failures;
                    it.action.is_deleting = deleting;
                    it.action.has_finalizer = finalizer;
                    it.action.form = form;
                    it.action.undone = undone;
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

/// Judges a resource by its `status.phase`, with the head that `status.head` names.
#[derive(Debug)]
struct ByStatus;

impl Plugin for ByStatus {
    fn id(&self) -> &'static str {
        "by status"
    }
    fn task_types(&self) -> &'static [&'static str] {
        &[]
    }
    fn resource(&self) -> Resource {
        Resource::POD
    }
    fn build(&self, _: &TaskContext) -> Result<Value, BuildError> {
        Ok(json!({}))
    }
    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let name = resource["status"]["head"].as_str()?;
        Some(HeadPod::Named(name.to_owned()))
    }
    fn phase(&self, context: &TaskContext, resource: &Value, _: Timestamp) -> PhaseInfo {
        let has_failed = context.head_pod.as_ref();
        if has_failed.is_some_and(|head| head["status"]["phase"] == "Failed") {
            return PhaseInfo::retryable(ErrorKind::User, "HeadFailed", "the head failed");
        }
        let phase = resource["status"]["phase"].as_str();
        PhaseInfo::of(phase.and_then(Phase::parse).unwrap_or_default(), "")
    }
}

/// The same decisions, upon what was read: the assembling in between keeps the laws too.
#[derive(Debug)]
struct Rounds;

impl Decider for Rounds {
    type Observed = LoadedAction;
    type Status = Record;
    type Effect = Note;
    type Question = TaskQuestion;

    fn decide(&self, observed: &LoadedAction) -> ActionPlan {
        let loaded = Loaded {
            now: EPOCH,
            key: &ActionKey {
                namespace: "flyte".to_owned(),
                name: "r-a".to_owned(),
            },
            answers: &Answers::none(),
            action: Seen::Present(observed.clone()),
        };
        Decisions.decide(&loaded.assemble())
    }

    fn max_actions(&self) -> usize {
        Decisions.max_actions()
    }

    fn reads(&self, observed: &LoadedAction) -> Result<Vec<Read<LoadedAction>>, String> {
        all_reads(observed)
    }

    fn is_allowed_blind(&self, action: &Do<Record, Note, TaskQuestion>) -> bool {
        Decisions.is_allowed_blind(action)
    }

    fn leaves_terminal(&self, observed: &LoadedAction, record: &Record) -> bool {
        let old = &observed.action.status;
        old.is_terminal() && *old != record.status
    }
}

/// A pod of a launch, or of another owner, in some phase and with some head.
fn resources() -> impl Strategy<Value = Option<(bool, Phase, Option<Phase>)>> {
    let phase = || prop::sample::select(Phase::ALL.to_vec());
    prop::option::of((any::<bool>(), phase(), prop::option::of(phase())))
}

fn loaded() -> impl Strategy<Value = LoadedAction> {
    let published = prop::option::of(prop::sample::select(Phase::ALL.to_vec()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let worlds = (published, resources(), flags, 0..2_u32);
    worlds.prop_map(
        |(published, resource, (deleting, finalizer, has_template), n_earlier)| {
            let mut world = action().with(|it| {
                it.action.is_deleting = deleting;
                it.action.has_finalizer = finalizer;
                it.action.status.attempts = n_earlier + 1;
            });
            if let Some(phase) = published {
                world = world.started(phase, 0, "before");
            }
            let Seen::Present(mut action) = world.observed().action else {
                unreachable!("a world has an action");
            };
            if let Work::Task(task) = &mut action.work {
                task.plugin = Arc::new(ByStatus);
                task.info = PhaseInfo::of(Phase::Undefined, "");
                task.owed = None;
            }
            let launch = LaunchId::of(&action.target, &action.status);
            let pod = |launch: &str, phase: Phase, head: bool| {
                json!({
                    "metadata": {
                        "name": "r-a-0", "namespace": "flyte", "uid": "pod",
                        "annotations": {ANNOTATION_LAUNCH: launch},
                    },
                    "status": {"phase": phase.published(), "head": head.then_some("head")},
                })
            };
            let current = resource.map(|(is_ours, phase, head)| {
                let launch = launch.to_string();
                pod(
                    if is_ours { &launch } else { "others/1/0" },
                    phase,
                    head.is_some(),
                )
            });
            let head = resource.and_then(|(_, _, head)| head);
            let suspend = AbortBehavior::patch(json!({"spec": {"suspend": true}}));
            let is_patched = deleting && has_template;
            let aborted = current.clone().filter(|_| is_patched);
            let abort = aborted.map(|object| Abort {
                behavior: suspend,
                object: Seen::Present(object),
                refused: None,
            });
            let children = LoadedChildren {
                kind: Resource::POD,
                current: current.into(),
                is_read: true,
                earlier: vec![pod("u/1/0", Phase::Running, false); n_earlier as usize],
                head: head.map(|_| HeadPod::Named("head".to_owned())),
                head_pod: head.map(|phase| Seen::Present(pod("", phase, false))),
                pod_template: has_template.then(|| Seen::Present(json!({}))),
                abort,
            };
            LoadedAction {
                action,
                facts: Arc::<Facts>::default(),
                slot: SlotState::Unlimited,
                is_caching: false,
                children: Some(children),
            }
        },
    )
}

#[test]
fn what_is_read_is_assembled_and_decided_upon_within_the_laws() {
    let broken = check_decider(&Rounds, &loaded(), 400);
    assert!(broken.is_empty(), "{}", broken[0]);
}
