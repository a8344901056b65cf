use std::fs;

use super::*;

fn open(directory: &Path) -> EventLog {
    EventLog::open(directory, LogLimits::default()).unwrap()
}

fn actions(directory: &Path, wanted: &Wanted<'_>) -> Vec<String> {
    let events = EventLog::read(directory, wanted).unwrap();
    events.into_iter().map(|event| event.action).collect()
}

const ALL: Wanted<'_> = Wanted {
    run: "",
    action: "",
};

fn of_run(run: &str, action: &str) -> ActionEvent {
    ActionEvent {
        run: run.to_owned(),
        ..event(action)
    }
}

#[tokio::test]
async fn what_is_recorded_is_read_by_run_and_by_action() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    log.record(&[of_run("r1", "a"), of_run("r1", "b")])
        .await
        .unwrap();
    log.record(&[of_run("r2", "a")]).await.unwrap();
    for (run, action, expected) in [
        ("", "", vec!["a", "b", "a"]),
        ("r1", "", vec!["a", "b"]),
        ("r1", "b", vec!["b"]),
        ("", "a", vec!["a", "a"]),
        ("r", "", vec![]),
    ] {
        let wanted = Wanted { run, action };
        assert_eq!(actions(directory.path(), &wanted), expected, "{wanted:?}");
    }
    let events = EventLog::read(directory.path(), &ALL).unwrap();
    insta::assert_json_snapshot!("logged_event", events[0]);
}

#[tokio::test]
async fn an_event_that_came_again_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let later = ActionEvent {
        reported_at: Timestamp::from_second(1_900_000_000).unwrap(),
        ..event("a")
    };
    let next = ActionEvent {
        version: 4,
        ..event("a")
    };
    log.record(&[event("a"), later, next]).await.unwrap();
    let events = EventLog::read(directory.path(), &ALL).unwrap();
    let versions: Vec<u32> = events.iter().map(|event| event.version).collect();
    assert_eq!(versions, [3, 4]);
    assert_eq!(events[0].reported_at, event("a").reported_at);
}

#[tokio::test]
async fn a_line_that_was_not_finished_is_cut_off_wherever_the_machine_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events-0000000001.jsonl");
    open(directory.path())
        .record(&[event("a"), event("b")])
        .await
        .unwrap();
    let whole = fs::read(&file).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in [
        0,
        1,
        first - 1,
        first,
        first + 1,
        whole.len() - 1,
        whole.len(),
    ] {
        fs::write(&file, &whole[..length]).unwrap();
        let n_whole = usize::from(length >= first) + usize::from(length == whole.len());
        open(directory.path()).record(&[event("c")]).await.unwrap();
        let mut expected = vec!["a", "b"][..n_whole].to_vec();
        expected.push("c");
        assert_eq!(actions(directory.path(), &ALL), expected, "{length} bytes");
    }
}

#[tokio::test]
async fn the_oldest_go_when_there_are_too_many() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        max_file: 1000,
        max_files: 3,
    };
    let names = names(40);
    for half in names.chunks(20) {
        // As after a restart.
        let log = EventLog::open(directory.path(), limits).unwrap();
        for name in half {
            log.record(&[event(name)]).await.unwrap();
        }
    }
    let files: Vec<u64> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(files.len(), 3);
    assert!(files.iter().all(|length| *length <= 1000), "{files:?}");
    let left = actions(directory.path(), &ALL);
    assert!(left.len() >= 4, "{left:?}");
    assert_eq!(left, names[names.len() - left.len()..]);
}

#[tokio::test]
async fn other_files_and_damaged_lines_are_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("events-x.jsonl"), "x").unwrap();
    fs::write(
        directory.path().join("events-0000000007.jsonl"),
        b"{}\n\xff\n",
    )
    .unwrap();
    open(directory.path()).record(&[event("a")]).await.unwrap();
    assert_eq!(actions(directory.path(), &ALL), ["a"]);
    let none = directory.path().join("none");
    let error = EventLog::read(&none, &ALL).unwrap_err();
    assert!(error.to_string().ends_with("none cannot be read"));
}

#[tokio::test]
async fn many_at_once_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(open(directory.path()));
    let (events, work) = BatchedEvents::new(log, BatchLimits::of_a_file());
    tokio::spawn(work);
    let told = publish(&events, names(500)).await;
    assert!(told.iter().all(Result::is_ok));
    assert_eq!(actions(directory.path(), &ALL).len(), 500);
}
