use longshore_plugins::ErrorKind;
use longshore_test::EPOCH;

use super::*;

fn entered(infos: &[PhaseInfo]) -> TaskActionStatus {
    let mut status = TaskActionStatus::default();
    for (at, info) in (0_i64..).zip(infos) {
        let now = EPOCH + jiff::SignedDuration::from_secs(at);
        enter(&mut status, info, now);
    }
    status
}

fn conditions(status: &TaskActionStatus) -> Vec<String> {
    let conditions = status.conditions.iter();
    conditions
        .map(|it| format!("{}={} {} {:?}", it.kind, it.status, it.reason, it.message))
        .collect()
}

fn history(status: &TaskActionStatus) -> Vec<String> {
    let entries = status.phase_history.iter();
    entries
        .map(|it| format!("{} {:?}", it.phase, it.message))
        .collect()
}

#[expect(clippy::too_many_lines, reason = "a table: a row for each phase")]
#[test]
fn every_phase_has_its_conditions_and_its_entry() {
    let failure = |phase| PhaseInfo {
        phase,
        ..PhaseInfo::retryable(ErrorKind::User, "OOMKilled", "too much")
    };
    let waiting = (
        vec![r#"Progressing=True Queued "why""#],
        vec![r#"Queued "why""#],
    );
    let table = [
        (PhaseInfo::of(Phase::Undefined, "why"), (vec![], vec![])),
        (PhaseInfo::of(Phase::NotReady, "why"), waiting.clone()),
        (PhaseInfo::of(Phase::Queued, "why"), waiting.clone()),
        (
            PhaseInfo::of(Phase::WaitingForResources, "why"),
            waiting.clone(),
        ),
        (PhaseInfo::of(Phase::WaitingForCache, "why"), waiting),
        (
            PhaseInfo::of(Phase::Initializing, "why"),
            (
                vec![r#"Progressing=True Initializing "why""#],
                vec![r#"Initializing "why""#],
            ),
        ),
        (
            PhaseInfo::of(Phase::Running, ""),
            (
                vec![r#"Progressing=True Executing """#],
                vec![r#"Executing """#],
            ),
        ),
        (
            PhaseInfo::of(Phase::Success, ""),
            (
                vec![
                    r#"Progressing=False Completed "TaskAction has completed""#,
                    r#"Succeeded=True Completed "TaskAction completed successfully""#,
                ],
                vec![r#"Completed "TaskAction completed successfully""#],
            ),
        ),
        (
            failure(Phase::RetryableFailure),
            (
                vec![r#"Progressing=True RetryableFailure "too much""#],
                vec![r#"RetryableFailure "too much""#],
            ),
        ),
        (
            failure(Phase::PermanentFailure),
            (
                vec![
                    r#"Progressing=False PermanentFailure "too much""#,
                    r#"Failed=True PermanentFailure "too much""#,
                ],
                vec![r#"PermanentFailure "too much""#],
            ),
        ),
        (
            PhaseInfo::of(Phase::Aborted, ""),
            (
                vec![
                    r#"Progressing=False Aborted "TaskAction was aborted""#,
                    r#"Failed=True Aborted "TaskAction was aborted""#,
                ],
                vec![r#"Aborted "TaskAction was aborted""#],
            ),
        ),
    ];
    for (info, (expected_conditions, expected_history)) in table {
        let status = entered(std::slice::from_ref(&info));
        assert_eq!(conditions(&status), expected_conditions, "{info:?}");
        assert_eq!(history(&status), expected_history, "{info:?}");
        let code = status.error_state.map(|error| error.code);
        assert_eq!(code.as_deref(), info.error.as_ref().map(|_| "OOMKilled"));
    }
}

#[test]
fn the_time_of_a_condition_is_that_of_its_status() {
    let infos = [
        PhaseInfo::of(Phase::Queued, "first"),
        PhaseInfo::of(Phase::Queued, "second"),
        PhaseInfo::of(Phase::Running, ""),
        PhaseInfo::of(Phase::Success, ""),
    ];
    let times = |n: usize| {
        let status = entered(&infos[..n]);
        let progressing = status.condition(CONDITION_PROGRESSING).unwrap();
        progressing
            .last_transition_time
            .duration_since(EPOCH)
            .as_secs()
    };
    assert_eq!([1, 2, 3, 4].map(times), [0, 0, 0, 3]);
    let status = entered(&infos);
    assert_eq!(
        history(&status),
        [
            r#"Queued "first""#,
            r#"Executing """#,
            r#"Completed "TaskAction completed successfully""#
        ]
    );
    assert_eq!(completed_time(&status, EPOCH), "2026-01-01.00-00");
}

#[test]
fn what_others_write_stays() {
    let seen =
        json!({"signalledBy": "me", "later": 1, "attempts": 3, "pluginPhase": "PhaseRunning"});
    let status = TaskActionStatus {
        attempts: 4,
        ..TaskActionStatus::default()
    };
    assert_eq!(
        to_wire(&seen, &status).unwrap(),
        json!({"signalledBy": "me", "later": 1, "attempts": 4})
    );
}

#[test]
fn only_what_is_said_is_news() {
    let old = TaskActionStatus::default();
    let same = TaskActionStatus {
        state_json: "{}".to_owned(),
        ..old.clone()
    };
    assert!(!is_news(&old, &same));
    let failed = TaskActionStatus {
        system_failures: 1,
        ..old.clone()
    };
    assert!(is_news(&old, &failed));
}

#[test]
fn a_long_history_says_how_much_of_it_is_left_out() {
    let mut status = TaskActionStatus::default();
    for n in 0..=MAX_HISTORY + 5 {
        remember(&mut status, &format!("P{n}"), "said", EPOCH);
    }
    let history = history(&status);
    assert_eq!(history.len(), MAX_HISTORY);
    let expected = [
        r#"P0 "said""#,
        r#"P7 "6 phases before this one are left out""#,
        r#"P8 "said""#,
    ];
    assert_eq!(history[..3], expected);
    assert_eq!(history[MAX_HISTORY - 1], r#"P105 "said""#);
}
