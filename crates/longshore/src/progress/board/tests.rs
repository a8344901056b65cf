use super::*;
use crate::progress::fixtures::{Adjectives, at, run_change, run_key, task_change};

const SCREEN: Size = Size {
    width: 72,
    height: 24,
    has_colors: false,
};

fn board(tasks: &[&str]) -> Board {
    let task = |id: &&str| BoardTask {
        id: (*id).to_owned(),
        ..BoardTask::default()
    };
    Board::new(run_key(), tasks.iter().map(task).collect(), at(0))
}

fn many(n: usize) -> Board {
    let tasks: Vec<String> = (0..n).map(|i| format!("task_{i:04}")).collect();
    board(&tasks.iter().map(String::as_str).collect::<Vec<_>>())
}

fn started(task_id: &str, milliseconds: i64) -> StateChange {
    task_change(
        milliseconds,
        task_id,
        Some(TaskState::Queued),
        Some(TaskState::Running),
    )
}

fn ended(task_id: &str, milliseconds: i64) -> StateChange {
    task_change(
        milliseconds,
        task_id,
        Some(TaskState::Running),
        Some(TaskState::Success),
    )
}

#[test]
fn a_small_run_shows_every_task() {
    use TaskState::{Failed, Queued, Running, UpForRetry, UpstreamFailed};

    let mut board = board(&[
        "extract",
        "transform",
        "load",
        "check",
        "report",
        "clean_up",
    ]);
    board.apply(&run_change(
        0,
        Some(RunState::Queued),
        RunState::Running,
        None,
    ));
    for change in [
        started("extract", 1_000),
        ended("extract", 4_200),
        started("transform", 4_500),
        task_change(5_000, "load", None, Some(Queued)),
        task_change(6_000, "check", Some(Running), Some(UpForRetry)).because_it_failed(),
        started("report", 6_000).in_try(2),
        task_change(7_500, "report", Some(Running), Some(Failed))
            .in_try(2)
            .because_it_failed(),
        task_change(7_500, "clean_up", None, Some(UpstreamFailed)),
    ] {
        board.apply(&change);
    }
    insta::assert_snapshot!(board.render(at(9_000), SCREEN).join("\n"));
}

#[test]
fn a_run_of_two_thousand_tasks_fits_the_screen() {
    let mut board = many(2_000);
    for i in 0..60 {
        board.apply(&started(&format!("task_{i:04}"), 0));
    }
    for i in 0..20 {
        board.apply(&ended(&format!("task_{i:04}"), 500));
    }
    let lines = board.render(at(1_000), SCREEN);
    assert!(lines.len() < SCREEN.height, "{} lines", lines.len());
    insta::assert_snapshot!(lines.join("\n"));

    let tall = Size {
        height: 500,
        ..SCREEN
    };
    assert!(board.render(at(1_000), tall).len() <= MAX_TASK_LINES + OTHER_LINES);
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let mut board = board(&["a_task_with_a_name_that_is_longer_than_any_screen_of_this_test"]);
    let running = started(
        "a_task_with_a_name_that_is_longer_than_any_screen_of_this_test",
        0,
    );
    board.apply(&running.in_try(3).because_it_failed());
    for width in [30, 40, 72] {
        for line in board.render(at(1_000), Size { width, ..SCREEN }) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn counts_follow_the_tasks_whatever_the_change_says_came_before() {
    let mut board = many(3);
    for _ in 0..2 {
        board.apply(&started("task_0001", 0));
    }
    board.apply(&started("made_while_running", 0));
    board.apply(&ended("task_0001", 0));
    assert_eq!(
        board.footer(SCREEN),
        "1 running, 2 waiting, 1 success of 4 tasks"
    );
}

#[test]
fn colours_are_added_to_words_that_are_there_anyway() {
    let mut board = board(&["extract"]);
    board.apply(&started("extract", 0));
    let plain = board.render(at(0), SCREEN);
    let colored = board.render(
        at(0),
        Size {
            has_colors: true,
            ..SCREEN
        },
    );
    assert!(colored[1].contains('\u{1b}'));
    let stripped: Vec<String> = colored
        .iter()
        .map(|line| anstream::adapter::strip_str(line).to_string())
        .collect();
    assert_eq!(stripped, plain);
}

#[test]
fn a_change_costs_the_same_in_a_run_of_any_size() {
    // 200,000 changes to 20,000 tasks and a redraw after every hundredth: seconds if anything were linear.
    let mut board = many(20_000);
    for i in 0..200_000_usize {
        let name = format!("task_{:04}", i % 20_000);
        let change = if i % 2 == 0 {
            started(&name, 0)
        } else {
            ended(&name, 0)
        };
        board.apply(&change);
        board.apply(&ended(&name, 0));
        if i % 100 == 0 {
            assert!(board.render(at(0), SCREEN).len() < SCREEN.height);
        }
    }
}

#[test]
fn dependencies_tries_and_messages_are_shown_and_forty_columns_suffice() {
    use TaskState::{Running, UpForRetry};

    let task = |id: &str, upstream: &[&str]| BoardTask {
        id: id.to_owned(),
        upstream: upstream.iter().map(|id| (*id).to_owned()).collect(),
        max_tries: 3,
    };
    let tasks = vec![
        task("split", &[]),
        task("adelie", &["split"]),
        task("merge_all_of_them", &["split", "adelie"]),
    ];
    let mut board = Board::new(run_key(), tasks, at(0));
    board.apply(&started("split", 0));
    board.apply(&ended("split", 1_500));
    board.apply(&started("adelie", 1_600));
    let render = |board: &Board, width| {
        let size = Size { width, ..SCREEN };
        board.render(at(3_000), size).join("\n")
    };
    insta::assert_snapshot!(render(&board, 72));
    insta::assert_snapshot!(render(&board, 40));
    let retry = task_change(2_000, "adelie", Some(Running), Some(UpForRetry));
    board.apply(&retry.because_it_failed());
    insta::assert_snapshot!(render(&board, 72));
    insta::assert_snapshot!(render(&board, 40));
    for line in render(&board, 40).lines() {
        assert!(line.chars().count() <= 40, "{line}");
    }
}

#[test]
fn a_queued_task_shows_what_keeps_its_pod_from_its_start() {
    use TaskState::{Queued, Scheduled};

    let mut board = board(&["extract"]);
    let pending = |message: Option<&str>| StateChange {
        at: at(2_000),
        run: run_key(),
        change: Change::Pending {
            task_id: "extract".to_owned(),
            map_index: -1,
            message: message.map(str::to_owned),
        },
    };
    let line = |board: &Board| board.render(at(3_000), SCREEN).remove(1);
    let why = "Unschedulable: 0/1 nodes";
    // What is late, after the task has started, is not shown.
    board.apply(&pending(Some(why)));
    assert!(!line(&board).contains(why));
    board.apply(&task_change(
        1_000,
        "extract",
        Some(Scheduled),
        Some(Queued),
    ));
    board.apply(&pending(Some(why)));
    assert!(line(&board).ends_with(why), "{}", line(&board));
    // The next launch.
    board.apply(&task_change(2_500, "extract", Some(Queued), Some(Queued)));
    assert!(line(&board).ends_with(why), "{}", line(&board));
    board.apply(&pending(None));
    assert!(!line(&board).contains(why));
    board.apply(&pending(Some(why)));
    board.apply(&started("extract", 2_800));
    assert!(!line(&board).contains(why), "{}", line(&board));
}

#[test]
fn what_a_task_says_of_its_end_moves_no_cursor_and_keeps_its_colours_to_itself() {
    use TaskState::{Failed, Running};

    let mut board = board(&["extract"]);
    let said = "a\u{1b}[2J\u{1b}[31mb\rc\u{1b}]0;title\u{7}d\u{202e}";
    board.apply(&task_change(0, "extract", Some(Running), Some(Failed)).because(said));
    let colored = Size {
        has_colors: true,
        ..SCREEN
    };
    let line = board.render(at(1_000), colored).remove(1);
    assert!(line.ends_with("  ab cd"), "{line:?}");
    // Colour of the state, and its end.
    assert!(!line.contains("[31mb") && !line.contains("[2J"), "{line:?}");
    assert!(!line.contains(['\r', '\u{7}', '\u{202e}']), "{line:?}");
}
