//! A run that is stopped or killed leaves no process behind, and goes on where it was: what the tasks themselves wrote
//! counts.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    process::Command as Process,
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    longshore, outcome,
    run::{Background, result},
};

/// The second task does not want to end, until it is started again.
const STUBBORN: &str = r#"
dag_id: stubborn
workspace: true
tasks:
  first:
    command: [sh, -c, 'echo "first $LONGSHORE_TRY_NUMBER" >> "$LONGSHORE_WORKSPACE/ran"']
  second:
    depends_on: [first]
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; echo "second $LONGSHORE_TRY_NUMBER" >> ran; [ ! -e again ] || exit 0; : > again; trap "" TERM; while :; do sleep 0.1; done']
  third:
    depends_on: [second]
    command: [sh, -c, 'echo "third $LONGSHORE_TRY_NUMBER" >> "$LONGSHORE_WORKSPACE/ran"']
"#;

/// Processes that have this directory on their command line: shims, and what was forked from them.
fn n_processes(data: &Path) -> usize {
    let name = data.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            let args = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_number = |c: char| c.is_ascii_digit();
            entry.file_name().to_str().unwrap().chars().all(is_number)
                && String::from_utf8_lossy(&args).contains(name)
        })
        .count()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("not in time: {what}");
}

fn file_called(name: &str, folder: &Path) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let here = entries.iter().find(|path| path.ends_with(name)).cloned();
    here.or_else(|| {
        let folders = entries
            .iter()
            .filter(|path| path.is_dir() && !path.is_symlink());
        folders.into_iter().find_map(|path| file_called(name, path))
    })
}

/// Starts the run, and waits until its second task is at it.
fn start(folder: &Path) -> (Background, PathBuf, PathBuf) {
    let (dag, data) = (folder.join("dag.yaml"), folder.join("data"));
    fs::write(&dag, STUBBORN).unwrap();
    let mut run = Background::start(&dag, &data, &[]);
    run.wait_until_it_runs("second");
    until("the second task is at it", || {
        file_called("again", &data).is_some()
    });
    (run, dag, data)
}

/// Goes on with the run, and checks that nothing ran twice that need not, and that no try was consumed.
fn goes_on(dag: &Path, data: &Path, run_id: &str) {
    let mut command = longshore();
    command
        .arg("run")
        .arg(dag)
        .args(["--resume", run_id, "-o", "json", "--data-dir"]);
    let (code, stdout, stderr) = outcome(command.arg(data));
    assert_eq!(code, 0, "{stderr}");
    let (_, result) = result(&stdout);
    for task in result["tasks"].as_array().unwrap() {
        assert_eq!(task["tryNumber"], 1, "{task}");
    }
    let ran = Path::new(result["workspace"].as_str().unwrap()).join("ran");
    assert_eq!(
        fs::read_to_string(ran).unwrap(),
        "first 1\nsecond 1\nsecond 1\nthird 1\n"
    );
}

#[test]
fn a_second_signal_exits_at_once_prints_how_to_go_on_and_leaves_no_process() {
    for signal in ["INT", "TERM"] {
        let folder = TempDir::new().unwrap();
        let (mut run, dag, data) = start(folder.path());
        run.signal(signal);
        // Two that come together count once: the second one follows when the first one shows.
        run.wait_until(|change| change["taskId"] == "second" && change["to"] == "scheduled");
        run.signal(signal);
        let (code, rest) = run.end();
        assert_eq!(code, 130, "{signal}: {rest}");
        let last: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        assert_eq!(last["kind"], "RunAbandoned", "{signal}");
        let resume = last["resume"].as_str().unwrap();
        assert!(resume.starts_with("longshore run "), "{resume}");
        until("no process is left", || n_processes(&data) == 0);
        goes_on(&dag, &data, last["runId"].as_str().unwrap());
    }
}

#[test]
fn a_killed_command_goes_on_at_once_without_meeting_its_own_tasks() {
    let folder = TempDir::new().unwrap();
    let (mut run, dag, data) = start(folder.path());
    run.signal("KILL");
    run.child.wait().unwrap();
    // At once: the stubborn task may still run.
    goes_on(&dag, &data, &run_id(&data));
    assert_eq!(n_processes(&data), 0);
}

/// The only run of the stubborn DAG.
fn run_id(data: &Path) -> String {
    fs::read_dir(data.join("logs/dag_id=stubborn"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .find_map(|name| name.strip_prefix("run_id=").map(str::to_owned))
        .unwrap()
}

#[test]
fn a_later_command_runs_its_own_dag_and_says_that_a_killed_run_waits() {
    let folder = TempDir::new().unwrap();
    let (mut run, dag, data) = start(folder.path());
    run.signal("KILL");
    run.child.wait().unwrap();
    let run_id = run_id(&data);
    let other = folder.path().join("other.yaml");
    fs::write(&other, "dag_id: other\ntasks: {a: {command: ['true']}}").unwrap();
    for is_first in [true, false] {
        let mut command = longshore();
        command.arg("run").arg(&other).arg("--data-dir").arg(&data);
        let (code, _, stderr) = outcome(&mut command);
        assert_eq!(code, 0, "{stderr}");
        let names_it = stderr.contains(&format!("--resume {run_id}"));
        assert_eq!(names_it, is_first, "{stderr}");
        let ran = fs::read_to_string(file_called("ran", &data).unwrap()).unwrap();
        assert_eq!(ran, "first 1\nsecond 1\n");
    }
    goes_on(&dag, &data, &run_id);
}

/// The first task ends while the command is halted; the second one only after a signal to end.
const UNHEARD: &str = r#"
dag_id: stubborn
workspace: true
tasks:
  first:
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; echo at it; echo first >> ran; : > again; until [ -e go ]; do sleep 0.1; done']
  asked:
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; echo at it; echo asked >> ran; [ ! -e twice ] || exit 0; : > twice; trap "exit 0" TERM; while :; do sleep 0.1; done']
"#;

/// How many records in the folder tell an end with exit code 0.
fn n_successes(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |path: PathBuf| {
        if path.ends_with("record.json") {
            let record = fs::read_to_string(path).unwrap_or_default();
            usize::from(record.contains(r#""exit":{"code":0,"#))
        } else if path.is_dir() && !path.is_symlink() {
            n_successes(&path)
        } else {
            0
        }
    };
    entries.map(|entry| count(entry.path())).sum()
}

/// Its record has the exit code 0, of which no process but its shim has heard.
#[test]
fn a_task_that_had_succeeded_when_the_command_was_killed_does_not_run_again() {
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, UNHEARD).unwrap();
    let mut run = Background::start(&dag, &data, &[]);
    let run_id = RefCell::new(String::new());
    run.wait_until(|change| {
        *run_id.borrow_mut() = change["runId"].as_str().unwrap().to_owned();
        change["taskId"] == "first" && change["to"] == "running"
    });
    for name in ["again", "twice"] {
        until("both tasks are at it", || {
            file_called(name, &data).is_some()
        });
    }
    run.signal("STOP");
    let workspace = file_called("again", &data).unwrap();
    fs::write(workspace.with_file_name("go"), "").unwrap();
    let pods = data.join("node/pods");
    until("the end is on disk", || n_successes(&pods) == 1);
    run.signal("KILL");
    run.child.wait().unwrap();
    until("the other one has done what it was asked", || {
        n_successes(&pods) == 2
    });
    let mut command = longshore();
    command.arg("run").arg(&dag);
    command.args(["--resume", &run_id.into_inner(), "-o", "json", "--data-dir"]);
    let (code, stdout, stderr) = outcome(command.arg(&data));
    assert_eq!(code, 0, "{stderr}");
    let (_, result) = result(&stdout);
    for task in result["tasks"].as_array().unwrap() {
        assert_eq!(task["tryNumber"], 1, "{task}");
        let log = Path::new(task["log"].as_str().unwrap());
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains("at it"), "its log is kept: {task}");
    }
    let ran = fs::read_to_string(workspace.with_file_name("ran")).unwrap();
    let n_starts = |task: &str| ran.lines().filter(|line| *line == task).count();
    assert_eq!((n_starts("first"), n_starts("asked")), (1, 2), "{ran}");
}

#[test]
fn a_killed_command_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let (mut run, _, data) = start(folder.path());
    run.signal("KILL");
    run.child.wait().unwrap();
    until("no process is left", || n_processes(&data) == 0);
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_run() {
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, STUBBORN.replace("trap", "exit 0; trap")).unwrap();
    let script = format!(
        "{{ \"$0\" run {} --data-dir {} -o json; echo $? > {}/code; }} | head -n 1",
        dag.display(),
        data.display(),
        folder.path().display()
    );
    let output = Process::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_longshore")])
        .output()
        .unwrap();
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["runId"].is_string(), "{line}");
    let code = fs::read_to_string(folder.path().join("code")).unwrap();
    assert_eq!(
        code.trim(),
        "0",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
