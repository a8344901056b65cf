//! The laws of every controller (style guide 3.6).

use longshore_core::{Never, NoAnswer};
use longshore_store::RunKey;
use longshore_test::laws::{Decider, Read, all_reads, check_decider};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::test_rows::queued;

const MAX_PODS: usize = 3;

struct Pods;

longshore_test::reads! {
    Observed { now, ti_id, task, launcher, pods, replay_done, started_at, config, asked, log_notes, newest_surplus }
}

impl Decider for Pods {
    type Observed = Observed;
    type Status = Never;
    type Effect = LaunchEffect;
    type Question = LogQuestion;

    fn decide(&self, observed: &Observed) -> LaunchPlan {
        decide_launch(observed)
    }

    fn max_actions(&self) -> usize {
        // The answers about pods that are gone, a report, a create.
        3 * MAX_PODS + MAX_PODS + 2
    }

    fn reads(&self, observed: &Observed) -> Result<Vec<Read<Observed>>, String> {
        all_reads(observed)
    }

    fn intent_of(&self, action: &LaunchAction) -> Option<String> {
        match action {
            Action::Create(create) => create.object["metadata"]["name"]
                .as_str()
                .map(|name| format!("create {name}")),
            Action::Delete(delete) => Some(format!("delete {}", delete.target.name)),
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Patch(_)
            | Action::Call(_)
            | Action::Announce(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => None,
        }
    }

    /// A pod is created for a committed row that waits for it, and deleted where no committed row wants it.
    fn is_intended(&self, observed: &Observed, intent: &str) -> bool {
        let pods = observed.pods.present().into_iter().flatten();
        let Some(task) = observed.task.present() else {
            return intent.starts_with("delete");
        };
        let is_wanted = format!("create {}", name(task.launch)) == intent
            && task.state == Some(TaskState::Queued)
            && task.pod_uid.is_none();
        let is_unwanted = |pod: &LaunchedView| {
            let is_occupying = task.state.is_some_and(TaskState::is_occupying);
            let is_overrun = task.state == Some(TaskState::Running)
                && task
                    .deadline
                    .is_some_and(|deadline| deadline <= observed.now);
            pod.launch < task.launch
                || (pod.launch == task.launch
                    && (!is_occupying || is_overrun || pod.phase == LaunchedPhase::Stuck))
        };
        let of_intent = |pod: &&LaunchedView| format!("delete {}", pod.object.name) == intent;
        is_wanted || pods.clone().filter(of_intent).any(is_unwanted)
    }
}

fn name(launch: u32) -> String {
    format!("pod-{launch}")
}

fn pod(index: usize) -> impl Strategy<Value = LaunchedView> {
    let phase = prop::sample::select(vec![
        LaunchedPhase::Live,
        LaunchedPhase::Stuck,
        LaunchedPhase::Succeeded,
        LaunchedPhase::Failed,
    ]);
    let launch = u32::try_from(index).unwrap_or(0) + 1;
    let limit = prop::option::of(1..=3_i64);
    (phase, any::<bool>(), limit).prop_map(move |(phase, is_deleting, limit)| LaunchedView {
        resource_version: Some("7".to_owned()),
        object: ObjectRef {
            resource: longshore_core::Resource::POD,
            namespace: "default".to_owned(),
            name: name(launch),
            uid: Some(format!("uid-{launch}")),
        },
        launch,
        phase,
        is_deleting,
        node: String::new(),
        created_at: limit.map(|second| at(-3 * second)),
        time: PodTime {
            began_at: Some(Timestamp::UNIX_EPOCH),
            limit,
        },
    })
}

fn pods() -> impl Strategy<Value = Seen<Vec<LaunchedView>>> {
    let all = [pod(0), pod(1), pod(2)].map(prop::option::of);
    all.prop_map(|pods| {
        let pods: Vec<LaunchedView> = pods.into_iter().flatten().collect();
        if pods.is_empty() {
            Seen::Absent
        } else {
            Seen::Present(pods)
        }
    })
}

fn task(ti_id: Uuid) -> impl Strategy<Value = Seen<TaskView>> {
    let states = [
        None,
        Some(TaskState::Scheduled),
        Some(TaskState::Queued),
        Some(TaskState::Running),
        Some(TaskState::Restarting),
        Some(TaskState::Success),
        Some(TaskState::Failed),
        Some(TaskState::UpForRetry),
        Some(TaskState::UpForReschedule),
        Some(TaskState::Deferred),
        Some(TaskState::AwaitingInput),
        Some(TaskState::UpstreamFailed),
        Some(TaskState::Skipped),
        Some(TaskState::Removed),
    ];
    let state = prop::sample::select(states.to_vec());
    let deadline = prop::option::of(-1..=1_i64);
    let view = (state, 1..=4_u32, any::<bool>(), 0..3_u8, deadline);
    let view = view.prop_map(move |(state, launch, is_recorded, pod, deadline)| {
        let deadline = deadline.map(|second| Timestamp::from_second(second).unwrap());
        let object = json!({"metadata": {
            "name": name(launch),
            "annotations": {ANNOTATION_TASK_INSTANCE_ID: ti_id.to_string()},
        }});
        let pods = [None, Some(Ok(object)), Some(Err("broken".to_owned()))];
        Seen::Present(TaskView {
            state,
            ended_at: deadline,
            launch,
            pod_uid: is_recorded.then(|| format!("uid-{launch}")),
            pod: pods[usize::from(pod)].clone(),
            deadline,
            limit: deadline,
            lingers_until: deadline,
            log: LogPath::of(&queued(ti_id, &run(), "task")),
        })
    });
    prop_oneof![9 => view, 1 => Just(Seen::Absent)]
}

fn run() -> RunKey {
    RunKey {
        dag_id: "dag".to_owned(),
        run_id: "run".to_owned(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn asked() -> impl Strategy<Value = Asked<LogAnswer>> {
    let problem = || "broken".to_owned();
    let answers = [
        LogAnswer::Stored,
        LogAnswer::StoredInPart(problem()),
        LogAnswer::NoLog,
        LogAnswer::Unreadable(problem()),
    ];
    let answered = (prop::sample::select(answers.to_vec()), -700..=0_i64);
    let answered = answered.prop_map(|(answer, second)| Asked::Answered {
        at: at(second),
        answer,
    });
    prop_oneof![
        Just(Asked::NotAsked),
        Just(Asked::UnderWay { since: at(0) }),
        answered,
        Just(Asked::Failed {
            at: at(0),
            why: NoAnswer::TimedOut,
            message: problem(),
        }),
        Just(Asked::AskedByAnother),
    ]
}

fn note() -> impl Strategy<Value = LogNote> {
    let since = prop::option::of(-700..=0_i64);
    (any::<bool>(), since).prop_map(|(is_kept, since)| LogNote {
        is_kept,
        unreadable_since: since.map(at),
        problem: since.map(|_| "broken".to_owned()),
    })
}

fn observed() -> impl Strategy<Value = Observed> {
    let ti_id = Uuid::from_u128(1);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let uid = || prop::sample::select(vec!["uid-1", "uid-2", "uid-3"]).prop_map(str::to_owned);
    let asked = prop::collection::btree_map(uid(), asked(), 0..=MAX_PODS);
    let notes = prop::collection::btree_map(uid(), note(), 0..=MAX_PODS);
    (task(ti_id), pods(), flags, asked, notes).prop_map(
        move |(task, pods, flags, asked, log_notes)| Observed {
            now: Timestamp::UNIX_EPOCH,
            ti_id,
            task,
            pods,
            launcher: Launcher::TaskAction,
            replay_done: flags.0,
            started_at: at(if flags.1 { -5 } else { -20 }),
            config: Disposal {
                delete_worker_pods: flags.1,
                delete_worker_pods_on_failure: flags.2,
                keep_failed_for: Duration::from_secs(1),
                keep_failed: 1,
            },
            asked,
            log_notes: Arc::new(log_notes),
            newest_surplus: flags.0.then(|| (Some(at(-3)), "uid-2".to_owned())),
        },
    )
}

#[test]
fn the_decision_about_the_pods_of_a_try_keeps_the_laws() {
    assert_eq!(check_decider(&Pods, &observed(), 2_000), []);
}

/// A pod whose row has reached an end, by itself or by a cancellation, goes only after its log is kept.
fn is_deleted_unkept(observed: &Observed) -> bool {
    let Seen::Present(task) = &observed.task else {
        return false;
    };
    let has_ended = task.state.is_some_and(TaskState::is_finished);
    let is_kept = |uid: &String| {
        let note = observed.log_notes.get(uid);
        let answer = observed.asked.get(uid).and_then(Asked::answer);
        note.is_some_and(|note| note.is_kept)
            || answer.is_some_and(|answer| !matches!(answer, LogAnswer::Unreadable(_)))
    };
    let is_of_this_launch = |target: &ObjectRef| target.name == name(task.launch);
    let plan = decide_launch(observed);
    has_ended
        && plan.actions.iter().any(|action| {
            let Action::Delete(delete) = action else {
                return false;
            };
            let uid = delete.target.uid.as_ref();
            is_of_this_launch(&delete.target) && !uid.is_some_and(is_kept)
        })
}

/// An answer is used up after the note of what it means, in the same plan.
fn is_used_unnoted(observed: &Observed) -> bool {
    let plan = decide_launch(observed);
    let pods = observed.pods.present().into_iter().flatten();
    let uids: Vec<&str> = pods.filter_map(|pod| pod.object.uid.as_deref()).collect();
    plan.actions.iter().enumerate().any(|(index, action)| {
        let Action::Used(id) = action else {
            return false;
        };
        let uid = id.about.as_str();
        let before = observed.log_notes.get(uid);
        let was_kept = before.is_some_and(|note| note.is_kept);
        let is_note = |action: &LaunchAction| {
            matches!(action, Action::Call(LaunchEffect::NoteLog { object, note })
                if note.is_kept && object.uid.as_deref() == Some(uid))
        };
        let is_noted = plan.actions.iter().take(index).any(is_note);
        uids.contains(&uid) && !was_kept && !is_noted
    })
}

proptest! {
    #[test]
    fn a_log_is_kept_before_its_pod_goes(observed in observed()) {
        prop_assert!(!is_deleted_unkept(&observed));
    }

    #[test]
    fn what_is_known_of_a_log_is_noted_before_the_answer_is_used_up(observed in observed()) {
        prop_assert!(!is_used_unnoted(&observed));
    }
}
