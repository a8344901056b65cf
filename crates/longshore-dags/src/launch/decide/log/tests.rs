//! What is asked about logs, and what is done with the answers.

use std::sync::Arc;

use longshore_core::{NoAnswer, Resource, Seen};
use longshore_store::{RunKey, TaskState};
use uuid::Uuid;

use super::*;
use crate::{
    launch::decide::{Disposal, PodTime, decide_launch},
    model::Launcher,
    test_rows::queued,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn pod(phase: LaunchedPhase) -> LaunchedView {
    LaunchedView {
        resource_version: Some("7".to_owned()),
        object: ObjectRef {
            resource: Resource::POD,
            namespace: "default".to_owned(),
            name: "pod-1".to_owned(),
            uid: Some("uid-1".to_owned()),
        },
        launch: 1,
        phase,
        is_deleting: false,
        node: "10.0.0.1".to_owned(),
        created_at: None,
        time: PodTime::default(),
    }
}

fn ago(seconds: i64) -> Timestamp {
    NOW - jiff::SignedDuration::from_secs(seconds)
}

/// A try that succeeded, whose pod goes once its log is kept.
fn observed(asked: Option<Asked<LogAnswer>>, note: LogNote) -> Observed {
    let run = RunKey {
        dag_id: "dag".to_owned(),
        run_id: "run".to_owned(),
    };
    let row = queued(Uuid::nil(), &run, "task");
    let uid = || "uid-1".to_owned();
    Observed {
        now: NOW,
        ti_id: Uuid::nil(),
        task: Seen::Present(TaskView {
            state: Some(TaskState::Success),
            ended_at: Some(NOW),
            launch: 1,
            pod_uid: Some(uid()),
            pod: None,
            deadline: None,
            limit: None,
            lingers_until: None,
            log: LogPath::of(&row),
        }),
        launcher: Launcher::Pod,
        pods: Seen::Present(vec![pod(LaunchedPhase::Succeeded)]),
        replay_done: true,
        started_at: Timestamp::UNIX_EPOCH,
        config: Disposal::default(),
        asked: asked.map(|asked| (uid(), asked)).into_iter().collect(),
        log_notes: Arc::new([(uid(), note)].into()),
        newest_surplus: None,
    }
}

fn answered(at: Timestamp, answer: LogAnswer) -> Option<Asked<LogAnswer>> {
    Some(Asked::Answered { at, answer })
}

fn note(is_kept: bool, unreadable_since: Option<Timestamp>, problem: Option<&str>) -> LogNote {
    LogNote {
        is_kept,
        unreadable_since,
        problem: problem.map(str::to_owned),
    }
}

/// The plan in words.
fn plan(observed: &Observed) -> String {
    let plan = decide_launch(observed);
    let words = plan.actions.iter().map(|action| match action {
        Action::Ask(question) => match &question.on_error {
            OnError::AskAgain => "ask".to_owned(),
            OnError::EndWith(_) => "ask for what can be read".to_owned(),
        },
        Action::Used(id) => format!("used {}", id.about),
        Action::Delete(_) => "delete".to_owned(),
        Action::Call(LaunchEffect::NoteLog { note, .. }) => {
            let problem = note.problem.as_deref().unwrap_or("well");
            format!("note kept={} {problem}", note.is_kept)
        }
        Action::Call(_)
        | Action::Create(_)
        | Action::Persist(_)
        | Action::EnsureFinalizer { .. }
        | Action::Patch(_)
        | Action::Announce(_)
        | Action::RemoveFinalizer { .. } => panic!("not about a log: {action:?}"),
    });
    let mut words: Vec<String> = words.collect();
    if let Next::After(wait) = plan.next {
        words.push(format!("again after {} ms", wait.as_millis()));
    }
    words.join(", ")
}

#[test]
fn a_pod_goes_once_the_answer_about_its_log_is_noted_and_used_up() {
    let none = LogNote::default;
    let under_way = Some(Asked::UnderWay { since: NOW });
    assert_eq!(plan(&observed(None, none())), "ask");
    assert_eq!(plan(&observed(Some(Asked::NotAsked), none())), "ask");
    assert_eq!(plan(&observed(under_way, none())), "");
    for answer in [LogAnswer::Stored, LogAnswer::NoLog] {
        let observed = observed(answered(NOW, answer), none());
        assert_eq!(plan(&observed), "note kept=true well, used uid-1, delete");
    }
    let in_part = answered(NOW, LogAnswer::StoredInPart("broken".to_owned()));
    assert_eq!(
        plan(&observed(in_part, none())),
        "note kept=true broken, used uid-1, delete"
    );
    let kept = note(true, None, None);
    assert_eq!(plan(&observed(None, kept.clone())), "delete");
    let not_used = answered(NOW, LogAnswer::Stored);
    assert_eq!(plan(&observed(not_used, kept)), "used uid-1, delete");
}

#[test]
fn a_failure_of_the_archive_is_noted_once_and_the_log_is_asked_for_again() {
    let failed = |message: &str| {
        Some(Asked::Failed {
            at: NOW,
            why: NoAnswer::Unreachable,
            message: message.to_owned(),
        })
    };
    let before = |problem| note(false, None, problem);
    for (message, problem, expected) in [
        ("full", None, "note kept=false full, ask"),
        ("full", Some("full"), "ask"),
        ("slow", Some("full"), "note kept=false slow, ask"),
    ] {
        assert_eq!(plan(&observed(failed(message), before(problem))), expected);
    }
    // The limit is for reading only.
    let unreadable = note(false, Some(ago(599)), Some("full"));
    assert_eq!(plan(&observed(failed("full"), unreadable)), "ask");
}

#[test]
fn a_log_that_cannot_be_read_is_asked_for_with_doubling_pauses() {
    let gone = || LogAnswer::Unreadable("gone".to_owned());
    let unreadable = |since| note(false, Some(since), Some("gone"));
    assert_eq!(
        plan(&observed(answered(NOW, gone()), LogNote::default())),
        "note kept=false gone, again after 100 ms"
    );
    for (since, at, expected) in [
        (ago(1), ago(1), "ask"),
        (ago(8), NOW, "again after 8000 ms"),
        (ago(10), ago(2), "again after 6000 ms"),
        (ago(18), ago(9), "ask"),
        (ago(500), NOW, "again after 30000 ms"),
        (ago(570), ago(30), "ask"),
        (ago(600), ago(30), "ask for what can be read"),
    ] {
        let observed = observed(answered(at, gone()), unreadable(since));
        assert_eq!(plan(&observed), expected, "since {since}, answered at {at}");
    }
}

#[test]
fn questions_about_pods_that_are_gone_are_cancelled() {
    let mut observed = observed(None, LogNote::default());
    let under_way = || Asked::UnderWay { since: NOW };
    observed.asked.insert("uid-0".to_owned(), under_way());
    observed.asked.insert("uid-1".to_owned(), under_way());
    assert_eq!(plan(&observed), "used uid-0");
    observed.pods = Seen::Absent;
    assert_eq!(plan(&observed), "used uid-0, used uid-1");
}

#[test]
fn a_question_names_the_node_and_the_incarnation_of_the_object() {
    let plan = decide_launch(&observed(None, LogNote::default()));
    let [Action::Ask(question)] = plan.actions.as_slice() else {
        panic!("one question: {plan:?}")
    };
    assert_eq!(question.id(), QuestionId::new(LOG, "uid-1"));
    assert_eq!(question.host(), "10.0.0.1");
    assert_eq!(
        question.path.as_str(),
        "dag_id=dag/run_id=run/task_id=task/attempt=1.log"
    );
}

#[test]
fn a_log_is_given_up_sooner_where_a_pod_waits_to_be_stopped() {
    let some_ago = |seconds: i64| Some(ago(seconds));
    for (since, phase, is_given_up) in [
        (None, LaunchedPhase::Live, false),
        (some_ago(29), LaunchedPhase::Live, false),
        (some_ago(30), LaunchedPhase::Live, true),
        (some_ago(599), LaunchedPhase::Succeeded, false),
        (some_ago(600), LaunchedPhase::Succeeded, true),
        (some_ago(600), LaunchedPhase::Failed, true),
        (some_ago(-5), LaunchedPhase::Live, false),
    ] {
        let on_error = OnError::at(NOW, since, &pod(phase).object, phase);
        assert_eq!(
            on_error != OnError::AskAgain,
            is_given_up,
            "{since:?} {phase:?}"
        );
    }
}
