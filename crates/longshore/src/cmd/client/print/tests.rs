//! Objects as text for people.

use std::fmt::Write;

use longshore_console::objects::{DagTask, Failure, Try};
use serde_json::json;

use super::*;

fn at(text: &str) -> Option<Timestamp> {
    Some(format!("2026-11-21T{text}Z").parse().unwrap())
}

fn now() -> Timestamp {
    at("10:10:00").unwrap()
}

fn a_run() -> Run {
    Run {
        dag_id: "etl".to_owned(),
        run_id: "manual__1".to_owned(),
        run_type: "manual".to_owned(),
        state: "failed".to_owned(),
        reason: Some("timed_out".to_owned()),
        blocked: None,
        not_before: None,
        logical_date: at("10:00:00"),
        queued_at: at("10:00:00.25"),
        started_at: at("10:00:01"),
        ended_at: at("10:05:04"),
        params: json!({"day": "2026-11-21"}),
    }
}

fn a_failure() -> Failure {
    Failure {
        message: "container base ended with exit code 1\nand \u{1b}[2Jmore".to_owned(),
        exit_code: Some(1),
        ..Failure::default()
    }
}

fn some_tasks() -> Vec<Task> {
    let task = Task {
        dag_id: "etl".to_owned(),
        run_id: "manual__1".to_owned(),
        task_id: "extract".to_owned(),
        map_index: -1,
        state: Some("failed".to_owned()),
        try_number: 2,
        max_tries: 2,
        pool: "default_pool".to_owned(),
        blocked: None,
        queued_at: at("10:00:01"),
        started_at: at("10:00:02"),
        ended_at: at("10:00:02.5"),
        pod: Some("etl-extract-x1".to_owned()),
        failure: Some(a_failure()),
        earlier_tries: vec![Try {
            try_number: 1,
            state: Some("failed".to_owned()),
            started_at: at("10:00:01"),
            ended_at: at("10:00:01.5"),
            pod: Some("etl-extract-x0".to_owned()),
            failure: Some(a_failure()),
        }],
        next_try_at: None,
        result: None,
        result_note: None,
    };
    let part = Task {
        task_id: "part".to_owned(),
        map_index: 3,
        state: Some("running".to_owned()),
        try_number: 1,
        max_tries: 1,
        ended_at: None,
        failure: None,
        earlier_tries: Vec::new(),
        ..task.clone()
    };
    let load = Task {
        task_id: "load".to_owned(),
        map_index: -1,
        state: None,
        try_number: 0,
        started_at: None,
        pod: None,
        ..part.clone()
    };
    vec![task, part, load]
}

fn some_dags() -> Vec<Dag> {
    let etl = Dag {
        dag_id: "etl".to_owned(),
        description: Some("Penguins, counted".to_owned()),
        schedule: Some("0 * * * *".to_owned()),
        is_paused: false,
        tags: vec!["birds".to_owned(), "daily".to_owned()],
        max_active_runs: 16,
        params: [("day".to_owned(), json!("today"))].into(),
        file: Some("dags/etl.yaml".to_owned()),
        error: None,
        next_run_at: at("11:00:00"),
        last_run: Some(a_run()),
        task_count: 2,
        tasks: Some(vec![
            DagTask {
                task_id: "extract".to_owned(),
                upstream: Vec::new(),
                retries: 1,
                trigger_rule: "all_success".to_owned(),
            },
            DagTask {
                task_id: "load".to_owned(),
                upstream: vec!["extract".to_owned(), "part".to_owned()],
                retries: 0,
                trigger_rule: "all_done".to_owned(),
            },
        ]),
    };
    let by_hand = Dag {
        dag_id: "by-hand".to_owned(),
        is_paused: true,
        ..Dag::default()
    };
    vec![by_hand, etl]
}

/// A task that waits for its retry has still the number of the try that has failed.
#[test]
fn a_task_that_waits_for_its_retry_says_when_and_lists_each_try_once() {
    let failed = some_tasks().remove(0);
    let waiting = Task {
        state: Some("up_for_retry".to_owned()),
        try_number: 1,
        next_try_at: at("10:05:00"),
        ..failed
    };
    let printed = task(&waiting, now());
    let is_of_try = |line: &&str| line.trim_start().starts_with("1 ");
    assert_eq!(printed.lines().filter(is_of_try).count(), 1, "{printed}");
    let next = printed.lines().find(|line| line.starts_with("Next try:"));
    assert!(
        next.is_some_and(|line| line.contains("10:05:00")),
        "{printed}"
    );
}

#[test]
fn a_queued_run_says_what_it_waits_for_and_until_when() {
    let queued = Run {
        state: "queued".to_owned(),
        reason: None,
        blocked: Some("it begins at its logical date".to_owned()),
        not_before: at("11:00:00"),
        started_at: None,
        ended_at: None,
        ..a_run()
    };
    let queued = [queued];
    let listed = runs(&queued, now(), Detail::Short).render();
    assert!(
        listed.contains("queued until 2026-11-21T11:00:00Z"),
        "{listed}"
    );
    let wide = runs(&queued, now(), Detail::Full).render();
    assert!(wide.contains("it begins at its logical date"), "{wide}");
    let shown = run(&queued[0], now());
    let waits = shown.lines().find(|line| line.starts_with("Waits:"));
    assert!(
        waits.is_some_and(|line| line.ends_with("its logical date")),
        "{shown}"
    );
}

#[test]
fn a_run_that_was_interrupted_does_not_seem_to_begin_soon() {
    let run = Run {
        state: "queued".to_owned(),
        reason: Some("interrupted".to_owned()),
        ..a_run()
    };
    let shown = super::run(&run, now());
    let listed = runs(&[run], now(), Detail::Short).render();
    for text in [listed, shown] {
        assert!(text.contains("interrupted"), "{text}");
        assert!(!text.contains("queued"), "{text}");
    }
}

#[test]
fn lists_are_tables_and_objects_are_fields() {
    let mut printed = String::new();
    for detail in [Detail::Short, Detail::Full] {
        for table in [
            dags(&some_dags(), now(), detail),
            runs(&[a_run()], now(), detail),
            tasks(&some_tasks(), now(), detail),
        ] {
            writeln!(printed, "{}", table.render()).unwrap();
        }
    }
    writeln!(printed, "{}", dag(&some_dags()[1])).unwrap();
    writeln!(printed, "{}", run(&a_run(), now())).unwrap();
    writeln!(printed, "{}", task(&some_tasks()[0], now())).unwrap();
    let bare = tasks(&some_tasks(), now(), Detail::Short).without_headers();
    writeln!(printed, "{}", bare.render()).unwrap();
    insta::assert_snapshot!(printed);
}

#[test]
fn a_result_that_was_not_taken_says_why() {
    let noted = Task {
        result_note: Some("the result is not JSON:\nline 1".to_owned()),
        ..some_tasks().remove(0)
    };
    let printed = task(&noted, now());
    assert!(
        printed.contains("none was taken: the result is not JSON: line 1\n"),
        "{printed}"
    );
}

#[test]
fn names_read_back_on_the_command_line() {
    let tasks = some_tasks();
    let names: Vec<String> = tasks.iter().map(full_task_name).collect();
    assert_eq!(
        names,
        [
            "etl/manual__1/extract",
            "etl/manual__1/part[3]",
            "etl/manual__1/load"
        ]
    );
    for name in names {
        assert!(name.parse::<TaskName>().is_ok());
    }
}
