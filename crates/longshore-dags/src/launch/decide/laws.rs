//! The laws of every controller (style guide 3.6).

use longshore_core::{Never, Unknown, UnknownCause};
use longshore_test::laws::{Decider, check_decider};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const MAX_PODS: usize = 3;

struct Pods;

impl Decider for Pods {
    type Observed = LaunchObserved;
    type Status = Never;
    type Effect = LaunchEffect;
    type Question = Never;

    fn decide(&self, observed: &LaunchObserved) -> Plan<Never, LaunchEffect> {
        decide_launch(observed)
    }

    fn max_actions(&self) -> usize {
        MAX_PODS + 2
    }

    fn blinded(&self, observed: &LaunchObserved) -> Vec<LaunchObserved> {
        let blind = || Unknown::new(UnknownCause::NotListedYet, "not seen");
        let (mut no_task, mut no_pods) = (observed.clone(), observed.clone());
        no_task.task = Seen::Unknown(blind());
        no_pods.pods = Seen::Unknown(blind());
        vec![no_task, no_pods]
    }

    fn intent_of(&self, action: &Action<Never, LaunchEffect>) -> Option<String> {
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
    fn is_intended(&self, observed: &LaunchObserved, intent: &str) -> bool {
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
            pod.launch < task.launch || (pod.launch == task.launch && (!is_occupying || is_overrun))
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
        LaunchedPhase::Succeeded,
        LaunchedPhase::Failed,
    ]);
    let launch = u32::try_from(index).unwrap_or(0) + 1;
    (phase, any::<bool>()).prop_map(move |(phase, is_deleting)| LaunchedView {
        object: ObjectRef {
            resource: longshore_core::Resource::POD,
            namespace: "default".to_owned(),
            name: name(launch),
            uid: Some(format!("uid-{launch}")),
        },
        launch,
        phase,
        is_deleting,
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
            launch,
            pod_uid: is_recorded.then(|| format!("uid-{launch}")),
            pod: pods[usize::from(pod)].clone(),
            deadline,
        })
    });
    prop_oneof![9 => view, 1 => Just(Seen::Absent)]
}

fn observed() -> impl Strategy<Value = LaunchObserved> {
    let ti_id = Uuid::from_u128(1);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (task(ti_id), pods(), flags).prop_map(move |(task, pods, flags)| LaunchObserved {
        now: Timestamp::UNIX_EPOCH,
        ti_id,
        task,
        pods,
        launcher: Launcher::TaskAction,
        replay_done: flags.0,
        config: Disposal {
            delete_worker_pods: flags.1,
            delete_worker_pods_on_failure: flags.2,
        },
        archived: (1..=MAX_PODS)
            .filter(|_| flags.3)
            .map(|n| format!("uid-{n}"))
            .collect(),
    })
}

#[test]
fn the_decision_about_the_pods_of_a_try_keeps_the_laws() {
    assert_eq!(check_decider(&Pods, &observed(), 2_000), []);
}
