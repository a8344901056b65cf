//! Which pods are made and removed.

use jiff::SignedDuration;
use longshore_core::{ChildIdentity, Unknown, UnknownCause};
use longshore_store::RunKey;
use serde_json::json;

use super::*;
use crate::{launch::launched::view_of, pods::launched::LaunchedPod, test_rows::queued};

fn observed(state: TaskState, launch: u32, pods: Vec<LaunchedView>) -> Observed {
    Observed {
        now: Timestamp::UNIX_EPOCH,
        ti_id: Uuid::nil(),
        task: Seen::Present(TaskView {
            state: Some(state),
            ended_at: Some(Timestamp::UNIX_EPOCH),
            launch,
            pod_uid: None,
            pod: Some(Ok(json!({"kind": "Pod"}))),
            deadline: None,
            limit: None,
            lingers_until: None,
            log: LogPath::of(&queued(Uuid::nil(), &run(), "task")),
        }),
        pods: Seen::Present(pods),
        launcher: Launcher::Pod,
        replay_done: true,
        started_at: Timestamp::UNIX_EPOCH,
        config: Disposal::default(),
        asked: BTreeMap::new(),
        log_notes: Arc::default(),
        newest_surplus: None,
    }
}

fn run() -> RunKey {
    RunKey {
        dag_id: "dag".to_owned(),
        run_id: "run".to_owned(),
    }
}

fn pod(launch: u32, phase: LaunchedPhase) -> LaunchedView {
    LaunchedView {
        resource_version: Some("7".to_owned()),
        object: ObjectRef {
            resource: longshore_core::Resource::POD,
            namespace: "default".to_owned(),
            name: format!("pod-{launch}"),
            uid: Some(format!("uid-{launch}")),
        },
        launch,
        phase,
        is_deleting: false,
        node: String::new(),
        created_at: None,
        time: PodTime::default(),
    }
}

/// The same, with the log of the first pod kept.
fn archived(observed: Observed) -> Observed {
    let note = LogNote {
        is_kept: true,
        ..LogNote::default()
    };
    Observed {
        log_notes: Arc::new([("uid-1".to_owned(), note)].into()),
        ..observed
    }
}

fn deleting(mut pod: LaunchedView) -> LaunchedView {
    pod.is_deleting = true;
    pod
}

/// The plan in words. Deletes must carry the uid, the create the identity.
fn plan(observed: &Observed) -> String {
    let plan = decide_launch(observed);
    assert_eq!(plan, decide_launch(observed));
    let word = |action: LaunchAction| match action {
        Action::Create(create) => {
            assert_eq!(
                create.identity,
                ChildIdentity::annotation("task_instance_id", Uuid::nil().to_string())
            );
            "create".to_owned()
        }
        Action::Delete(delete) => {
            assert!(delete.target.uid.is_some());
            format!("delete {}", delete.target.name)
        }
        Action::Patch(patch) => format!("patch {} {}", patch.target.name, patch.patch["spec"]),
        Action::Ask(question) => format!("archive {}", question.object.name),
        Action::Call(LaunchEffect::ReportEnded) => "report that it has ended".to_owned(),
        Action::Call(LaunchEffect::ReportBuildFailure { launch, message }) => {
            format!("report that launch {launch} cannot be built: {message}")
        }
        Action::Persist(_)
        | Action::EnsureFinalizer { .. }
        | Action::Announce(_)
        | Action::Call(LaunchEffect::NoteLog { .. })
        | Action::Used(_)
        | Action::RemoveFinalizer { .. } => panic!("the pods controller does not do this"),
    };
    plan.actions
        .into_iter()
        .map(word)
        .collect::<Vec<_>>()
        .join(", ")
}

use LaunchedPhase::{Failed, Live, Stuck, Succeeded};

/// The time of a task begins with its container, and that of its pod before the images and init containers.
#[test]
fn a_pod_gets_its_time_limit_when_its_container_has_started() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let limited = |limit| {
        let mut pod = pod(1, Live);
        pod.time = PodTime {
            began_at: Some(at(10)),
            limit,
        };
        let mut observed = observed(TaskState::Running, 1, vec![pod]);
        if let Seen::Present(task) = &mut observed.task {
            // It started at 100 s, and may run for 2.5 s.
            task.limit = Some(at(102) + SignedDuration::from_millis(500));
        }
        observed
    };
    let patched = "patch pod-1 {\"activeDeadlineSeconds\":94}";
    for (limit, expected) in [
        (None, patched),
        (Some(95), patched),
        (Some(94), ""),
        (Some(9), ""),
    ] {
        assert_eq!(plan(&limited(limit)), expected, "{limit:?}");
    }
    let mut unlimited = limited(None);
    if let Seen::Present(task) = &mut unlimited.task {
        task.limit = None;
    }
    assert_eq!(plan(&unlimited), "");
}

/// A node that starts with the scheduler is about to try the pods that the last one could not start.
#[test]
fn a_pod_that_an_earlier_process_left_stuck_has_some_time_to_start() {
    let at = |second| Timestamp::from_second(second).unwrap();
    for (created, now, expected) in [
        (90, 109, ""),
        (90, 110, "delete pod-1"),
        (100, 101, "delete pod-1"),
    ] {
        let mut stuck = pod(1, Stuck);
        stuck.created_at = Some(at(created));
        let observed = Observed {
            now: at(now),
            started_at: at(100),
            ..observed(TaskState::Queued, 1, vec![stuck])
        };
        assert_eq!(plan(&observed), expected, "created at {created}, {now}");
        let next = decide_launch(&observed).next;
        let left = Next::After(Duration::from_secs(1));
        assert_eq!(next == left, expected.is_empty(), "{next:?}");
    }
}

/// The next launch waits for the end of the pod, as ever.
#[test]
fn a_pod_that_is_stuck_is_deleted_and_nothing_else_is_done_before_its_end() {
    for state in [TaskState::Queued, TaskState::Running] {
        let stuck = pod(1, Stuck);
        let wanted = observed(state, 1, vec![stuck.clone()]);
        assert_eq!(plan(&wanted), "delete pod-1", "{state:?}");
        let going = observed(state, 1, vec![deleting(stuck)]);
        assert_eq!(plan(&going), "", "{state:?}");
    }
    let relaunched = observed(TaskState::Queued, 2, vec![deleting(pod(1, Stuck))]);
    assert_eq!(plan(&relaunched), "");
}

#[test]
fn a_queued_try_without_a_pod_gets_one() {
    let queued = || observed(TaskState::Queued, 1, Vec::new());
    assert_eq!(plan(&queued()), "create");
    let absent = Observed {
        pods: Seen::Absent,
        ..queued()
    };
    assert_eq!(plan(&absent), "create");
    for state in [TaskState::Running, TaskState::Scheduled, TaskState::Success] {
        assert_eq!(plan(&observed(state, 1, Vec::new())), "", "{state:?}");
    }
}

#[test]
fn nothing_is_done_before_all_is_seen() {
    let behind = || Unknown::new(UnknownCause::Behind, "the watch is behind");
    let mut replaying = observed(TaskState::Queued, 1, Vec::new());
    replaying.replay_done = false;
    let mut no_pods = observed(TaskState::Queued, 1, Vec::new());
    no_pods.pods = Seen::Unknown(behind());
    let mut no_row = observed(TaskState::Queued, 1, vec![pod(1, Live)]);
    no_row.task = Seen::Unknown(behind());
    for observed in [replaying, no_pods, no_row] {
        assert_eq!(plan(&observed), "");
    }
}

#[test]
fn a_pod_that_was_seen_or_cannot_be_built_is_not_created() {
    let broken = Some(Err("no such field".to_owned()));
    for (pod_uid, pod, expected) in [
        (Some("u".to_owned()), Some(Ok(json!({}))), ""),
        (None, None, ""),
        (
            None,
            broken,
            "report that launch 1 cannot be built: no such field",
        ),
    ] {
        let mut observed = observed(TaskState::Queued, 1, Vec::new());
        if let Seen::Present(task) = &mut observed.task {
            (task.pod_uid, task.pod) = (pod_uid, pod);
        }
        assert_eq!(plan(&observed), expected);
    }
}

#[test]
fn a_pod_that_its_row_wants_stays() {
    for state in [TaskState::Queued, TaskState::Running] {
        for phase in [Live, Succeeded, Failed] {
            assert_eq!(plan(&observed(state, 2, vec![pod(2, phase)])), "");
        }
    }
}

#[test]
fn a_new_launch_waits_until_the_pods_of_older_ones_have_ended() {
    for (pods, expected) in [
        (vec![pod(1, Live)], "delete pod-1"),
        (vec![deleting(pod(1, Live))], ""),
        (vec![pod(1, Failed)], "delete pod-1, create"),
        (vec![deleting(pod(1, Failed))], "create"),
        (vec![pod(1, Succeeded)], "delete pod-1"),
        (vec![deleting(pod(1, Succeeded))], ""),
        (vec![pod(1, Failed), pod(2, Live)], "delete pod-1"),
        (vec![deleting(pod(2, Live))], ""),
    ] {
        assert_eq!(
            plan(&observed(TaskState::Queued, 2, pods.clone())),
            expected,
            "{pods:?}"
        );
    }
}

#[test]
fn pods_of_interrupted_launches_are_deleted() {
    for phase in [Live, Succeeded, Failed] {
        assert_eq!(
            plan(&observed(TaskState::Scheduled, 1, vec![pod(1, phase)])),
            "delete pod-1"
        );
    }
}

#[test]
fn a_failed_pod_is_kept_for_its_time_or_until_newer_ones_are_enough() {
    const DAY: i64 = 24 * 60 * 60;
    let at = |second| Timestamp::from_second(second).unwrap();
    let wait = |seconds: i64| Next::After(Duration::from_secs(seconds.unsigned_abs()));
    let surplus = |second, uid: &str| Some((Some(at(second)), uid.to_owned()));
    // The try ended at 0 s; the pod was created at -9 s.
    for (now, newest_surplus, expected, next) in [
        (0, None, "", wait(DAY)),
        (DAY - 1, None, "", wait(1)),
        (DAY, None, "delete pod-1", Next::AwaitChange),
        (-5, None, "", wait(DAY)),
        (1, surplus(-10, "uid-9"), "", wait(DAY - 1)),
        (1, surplus(-9, "uid-0"), "", wait(DAY - 1)),
        (1, surplus(-9, "uid-1"), "delete pod-1", Next::AwaitChange),
        (1, surplus(-8, "uid-0"), "delete pod-1", Next::AwaitChange),
    ] {
        let mut failed = pod(1, Failed);
        failed.created_at = Some(at(-9));
        let seen = Observed {
            now: at(now),
            newest_surplus,
            ..observed(TaskState::Failed, 1, vec![failed])
        };
        // Never before its log is kept.
        assert_eq!(plan(&seen), "archive pod-1");
        let kept = archived(seen);
        assert_eq!(plan(&kept), expected, "at {now}, {:?}", kept.newest_surplus);
        assert_eq!(decide_launch(&kept).next, next, "at {now}");
    }
}

#[test]
fn pods_that_have_ended_are_archived_and_then_disposed_of_by_policy() {
    let default = Disposal::default();
    let keep = Disposal {
        delete_worker_pods: false,
        delete_worker_pods_on_failure: true,
        ..default
    };
    let clean = Disposal {
        delete_worker_pods: true,
        delete_worker_pods_on_failure: true,
        ..default
    };
    for (config, phase, then) in [
        (default, Succeeded, "delete pod-1"),
        (default, Failed, ""),
        (keep, Succeeded, ""),
        (keep, Failed, ""),
        (clean, Failed, "delete pod-1"),
    ] {
        let state = if phase == Failed {
            TaskState::Failed
        } else {
            TaskState::Success
        };
        let seen = Observed {
            config,
            ..observed(state, 1, vec![pod(1, phase)])
        };
        assert_eq!(plan(&seen), "archive pod-1", "{config:?} {phase:?}");
        assert_eq!(plan(&archived(seen)), then, "{config:?} {phase:?}");
        let under_way = observed(state, 1, vec![deleting(pod(1, phase))]);
        assert_eq!(plan(&under_way), "");
    }
}

#[test]
fn pods_that_outlive_their_task_instance_are_deleted() {
    for state in [TaskState::Failed, TaskState::Skipped] {
        let seen = observed(state, 1, vec![pod(1, Live)]);
        assert_eq!(plan(&seen), "archive pod-1");
        assert_eq!(plan(&archived(seen)), "delete pod-1");
    }
    // Not this one: it has ended, and we see an older state of it.
    assert_eq!(
        plan(&observed(TaskState::Success, 1, vec![pod(1, Live)])),
        ""
    );
    let unknown_try = Observed {
        task: Seen::Absent,
        ..observed(TaskState::Queued, 1, vec![pod(1, Live), pod(2, Failed)])
    };
    assert_eq!(plan(&unknown_try), "delete pod-1, delete pod-2");
}

#[test]
fn a_row_older_than_the_pod_has_no_say() {
    for state in [TaskState::Queued, TaskState::Scheduled, TaskState::Failed] {
        assert_eq!(
            plan(&observed(state, 1, vec![pod(2, Live)])),
            "",
            "{state:?}"
        );
    }
}

#[test]
fn a_pod_is_viewed_by_its_launch_phase_and_deletion() {
    let object = |phase: &str, deletion: Option<&str>| -> LaunchedPod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "pod-2", "namespace": "default", "uid": "uid-2", "resourceVersion": "7",
                "deletionTimestamp": deletion,
                "annotations": {
                    "task_instance_id": Uuid::nil().to_string(), "longshore.dev/launch": "2",
                },
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    };
    for (text, phase) in [
        ("Pending", Live),
        ("Running", Live),
        ("Unknown", Live),
        ("Succeeded", Succeeded),
        ("Failed", Failed),
    ] {
        assert_eq!(view_of(&object(text, None)), Some(pod(2, phase)));
    }
    let under_way = object("Running", Some("2026-11-21T10:00:00Z"));
    assert_eq!(view_of(&under_way), Some(deleting(pod(2, Live))));
    assert_eq!(view_of(&LaunchedPod::default()), None);
}

#[test]
fn a_try_that_runs_for_too_long_is_stopped_where_nobody_else_does_that() {
    let second = |n| Timestamp::from_second(n).unwrap();
    for (state, deadline, expected, next) in [
        (TaskState::Running, None, "", Next::AwaitChange),
        (
            TaskState::Running,
            Some(second(7)),
            "",
            Next::After(Duration::from_secs(7)),
        ),
        (
            TaskState::Running,
            Some(second(0)),
            "archive pod-1",
            Next::AwaitChange,
        ),
        (TaskState::Queued, Some(second(0)), "", Next::AwaitChange),
    ] {
        let mut observed = observed(state, 1, vec![pod(1, Live)]);
        if let Seen::Present(task) = &mut observed.task {
            task.deadline = deadline;
            task.pod_uid = Some("uid-1".to_owned());
        }
        assert_eq!(plan(&observed), expected, "{state:?} {deadline:?}");
        assert_eq!(
            decide_launch(&observed).next,
            next,
            "{state:?} {deadline:?}"
        );
    }
}

/// No watch may have reported yet that it has ended in time.
#[test]
fn a_try_is_stopped_at_its_deadline_only_as_it_was_seen() {
    for (state, expected) in [
        (TaskState::Running, Some("7")),
        (TaskState::Failed, None),
        (TaskState::Scheduled, None),
    ] {
        let mut observed = archived(observed(state, 1, vec![pod(1, Live)]));
        if let Seen::Present(task) = &mut observed.task {
            task.deadline = Some(observed.now);
            task.pod_uid = Some("uid-1".to_owned());
        }
        let actions = decide_launch(&observed).actions;
        let [Action::Delete(delete)] = &actions[..] else {
            panic!("{state:?}: {actions:?}");
        };
        assert_eq!(delete.resource_version.as_deref(), expected, "{state:?}");
    }
}

#[test]
fn a_restarting_try_has_ended_once_none_of_its_pods_lives() {
    let report = "report that it has ended";
    for (pods, expected) in [
        (vec![], report.to_owned()),
        (vec![pod(1, Live)], "archive pod-1".to_owned()),
        (vec![deleting(pod(1, Live))], String::new()),
        (vec![deleting(pod(1, Failed))], report.to_owned()),
        (vec![pod(1, Failed)], format!("{report}, archive pod-1")),
        (vec![pod(1, Succeeded)], format!("{report}, archive pod-1")),
    ] {
        let mut observed = observed(TaskState::Restarting, 1, pods);
        assert_eq!(plan(&observed), expected);
        observed.replay_done = false;
        assert!(!plan(&observed).contains(report));
    }
}
