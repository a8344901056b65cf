//! The commands that ask a service, against one on loopback.

use std::{
    io::{BufRead, BufReader},
    process::{Command as Process, Stdio},
    sync::Arc,
};

use longshore_console::{Access, Hosts, client::ClientFile, router, serve::serve};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

use crate::{longshore, outcome};

#[path = "../../../longshore-console/tests/it/fake.rs"]
#[expect(dead_code, reason = "logs that grow are for the tests of the console")]
mod fake;
use fake::Fake;

/// A service with its data directory, until it is dropped.
struct Service {
    fake: Arc<Fake>,
    server: String,
    data_dir: TempDir,
    _runtime: Runtime,
}

impl Service {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let data_dir = tempfile::tempdir().unwrap();
        let file = ClientFile::renew(data_dir.path(), &server).unwrap();
        let fake: Arc<Fake> = Arc::default();
        let stopping = CancellationToken::new();
        let access = Access {
            token: file.token,
            hosts: Hosts::Known(Vec::new()),
        };
        runtime.spawn(serve(
            listener,
            router(fake.clone(), access, stopping.clone()),
            stopping,
        ));
        Self {
            fake,
            server,
            data_dir,
            _runtime: runtime,
        }
    }

    fn command(&self, line: &str) -> assert_cmd::Command {
        let mut command = longshore();
        command
            .args(line.split(' '))
            .env("LONGSHORE_DATA_DIR", self.data_dir.path());
        command
    }

    fn outcome(&self, line: &str) -> (i32, String, String) {
        outcome(&mut self.command(line))
    }

    fn process(&self, line: &str) -> Process {
        let mut process = Process::new(env!("CARGO_BIN_EXE_longshore"));
        process
            .args(line.split(' '))
            .env_remove("LONGSHORE_SERVER")
            .env("LONGSHORE_DATA_DIR", self.data_dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        process
    }
}

/// A command line, its exit code, and a part of what it prints.
const ANSWERS: &[(&str, i32, &str)] = &[
    ("dags list -o name", 0, "etl\nhourly\n"),
    ("dags show etl -o name", 0, "etl\n"),
    ("dags show nope", 3, "error[LS1390]: there is no DAG nope"),
    ("dags show elt", 3, "help: did you mean etl?"),
    (
        "dags pause etl nope",
        3,
        "error[LS1390]: there is no DAG nope",
    ),
    ("dags show etl -o yaml", 0, "isPaused: false\n"),
    ("dags pause etl hourly -o name", 0, "etl\nhourly\n"),
    (
        "dags list --no-headers",
        0,
        "etl     -  yes  -  -\nhourly  -  yes  -  -\n",
    ),
    ("dags unpause etl", 0, "etl  -         no      -         -"),
    (
        "dags trigger etl --run-id new --param day=1",
        0,
        "run etl/new queued\n",
    ),
    (
        "dags trigger etl --run-id new",
        1,
        "error[LS1394]: the run etl/new exists already",
    ),
    (
        "dags trigger etl --param dya=1",
        2,
        "error[LS1382]: the DAG etl has no parameter dya",
    ),
    ("runs list -o name", 0, "etl/new\netl/r3\netl/r2\netl/r1\n"),
    ("runs list etl --state failed -o name", 0, "etl/r2\n"),
    (
        "runs list --limit 0",
        2,
        "invalid value '0' for '--limit <N>'",
    ),
    (
        "runs list --limit 2",
        0,
        "there are more: add --continue etl/r3",
    ),
    (
        "runs list --limit 2 --continue etl/r3 -o name",
        0,
        "etl/r2\netl/r1\n",
    ),
    (
        "runs list --state borken",
        2,
        "error[LS1024]: expected one of queued, running, success, failed",
    ),
    ("runs get etl -o name", 0, "etl/new\n"),
    ("runs get etl/latest", 0, "State:         queued"),
    (
        "runs get etl/r9",
        3,
        "error[LS1391]: there is no run r9 of the DAG etl",
    ),
    (
        "runs get hourly",
        3,
        "error[LS1391]: there is no run of the DAG hourly",
    ),
    (
        "runs cancel etl/r3",
        2,
        "error[LS1026]: nobody confirmed: cancel run etl/r3",
    ),
    (
        "runs cancel etl/r3 --yes",
        0,
        "run etl/r3 is being cancelled\n",
    ),
    (
        "runs cancel etl/r1 --yes",
        1,
        "error[LS1395]: run etl/r1 is success",
    ),
    (
        "runs retry etl/r2",
        3,
        "error[LS1005]: retrying a run is not possible yet",
    ),
    ("runs watch etl/r1", 0, "run etl/r1 success\n"),
    ("runs watch etl/r2", 4, "error[LS1380]: run etl/r2 failed"),
    (
        "runs watch etl/r3 --timeout 1s",
        5,
        "error[LS1381]: run etl/r3 did not end in time",
    ),
    (
        "tasks list etl/r2 -o name",
        0,
        "etl/r2/extract\netl/r2/load\n",
    ),
    (
        "tasks list etl/r2 --state waiting -o name",
        0,
        "etl/r2/load\n",
    ),
    (
        "tasks get etl/r2/extract",
        0,
        "container base ended with exit code 1",
    ),
    (
        "tasks get etl/r2/nope",
        3,
        "error[LS1392]: there is no task nope in the run etl/r2",
    ),
    ("tasks get etl/r2", 2, "expected DAG/RUN/TASK"),
    (
        "tasks clear etl/r2/extract -d -y -o name",
        0,
        "etl/r2/extract\netl/r2/extract\n",
    ),
    ("logs etl/r2/extract", 0, "one\ntwo\u{1b}[2J\n"),
    ("logs etl/r2/extract --tail 1", 0, "two\u{1b}[2J\n"),
    (
        "logs etl/r2/extract --attempt 9",
        3,
        "error[LS1393]: there is no log of etl/r2/extract",
    ),
    ("logs etl/r2/extract --attempt 0", 2, "--attempt"),
];

#[test]
fn every_command_has_its_answer_and_its_exit_code() {
    let service = Service::start();
    for (line, code, expected) in ANSWERS {
        let (found, stdout, stderr) = service.outcome(line);
        assert_eq!(found, *code, "{line}\n{stdout}{stderr}");
        let is_there = stdout.contains(expected) || stderr.contains(expected);
        assert!(is_there, "{line}\n{stdout}{stderr}");
    }
}

#[test]
fn a_run_that_is_watched_says_what_failed_with_the_log_and_what_to_do() {
    let service = Service::start();
    let (code, stdout, stderr) = service.outcome("runs watch etl/r2");
    assert_eq!((code, stdout.as_str()), (4, "run etl/r2 failed\n"));
    let flags = format!("--data-dir {}", service.data_dir.path().display());
    let expected = format!(
        "error[LS1202]: task extract failed in try 2: for an unknown reason\n  \
         log: longshore logs etl/r2/extract {flags}\n  | one\n  | two\n\
         error[LS1380]: run etl/r2 failed\n\
         help: correct the cause, then run again what is left: longshore runs retry etl/r2 {flags}\n"
    );
    assert!(stderr.ends_with(&expected), "{stderr}");
}

#[test]
fn every_table_has_its_json_and_yaml() {
    let service = Service::start();
    for (line, kind) in [
        ("dags list", "list"),
        ("dags show etl", "object"),
        ("runs list", "list"),
        ("runs get etl/r1", "object"),
        ("tasks list etl/r2", "list"),
        ("tasks get etl/r2/extract", "object"),
    ] {
        let (code, stdout, _) = service.outcome(&format!("{line} -o json"));
        let value: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{line}: {stdout}"));
        assert_eq!(code, 0, "{line}");
        assert_eq!(value["kind"] == "List", kind == "list", "{line}");
        assert_eq!(value["items"].is_array(), kind == "list", "{line}");
        let (_, stdout, _) = service.outcome(&format!("{line} -o wide"));
        assert!(!stdout.is_empty(), "{line}");
    }
    let (_, stdout, _) = service.outcome("tasks get etl/r2/extract -o yaml");
    assert!(stdout.contains("taskId: extract\n"), "{stdout}");
}

#[test]
fn the_service_is_found_by_flag_then_environment_then_file() {
    let service = Service::start();
    let nowhere = "http://127.0.0.1:9";
    let ask = |flag: Option<&str>, env: Option<&str>, data_dir: &str| {
        let mut command = longshore();
        command.args(["dags", "list", "--data-dir", data_dir]);
        if let Some(flag) = flag {
            command.args(["--server", flag]);
        }
        if let Some(env) = env {
            command.env("LONGSHORE_SERVER", env);
        }
        let (code, _, stderr) = outcome(&mut command);
        (code, stderr)
    };
    let known = service.data_dir.path().to_str().unwrap();
    assert_eq!(ask(Some(&service.server), Some(nowhere), known).0, 0);
    let (code, stderr) = ask(None, Some(nowhere), known);
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("error[LS1022]: the service at http://127.0.0.1:9 does not answer"),
        "{stderr}"
    );

    let empty = tempfile::tempdir().unwrap();
    let unknown = empty.path().to_str().unwrap();
    let (code, stderr) = ask(None, None, unknown);
    assert_eq!(code, 3);
    assert!(stderr.starts_with("error[LS1020]: "), "{stderr}");
    let (code, stderr) = ask(Some(&service.server), None, unknown);
    assert_eq!(
        code, 6,
        "no token for a service that the file does not name"
    );
    assert!(stderr.starts_with("error[LS1801]: "), "{stderr}");
    let (code, stderr) = ask(Some("ftp://x"), None, unknown);
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error[LS1025]: "), "{stderr}");
}

#[test]
fn ctrl_c_detaches_and_says_how_to_come_back() {
    let service = Service::start();
    let mut watch = service.process("runs watch etl/r3").spawn().unwrap();
    let mut stderr = BufReader::new(watch.stderr.take().unwrap());
    let mut line = String::new();
    // Its first line says that it follows.
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("run/r3 new -> running"), "{line}");
    let killed = Process::new("kill")
        .args(["-INT", &watch.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    while stderr.read_line(&mut rest).unwrap() > 0 {}
    assert_eq!(watch.wait().unwrap().code(), Some(130));
    assert!(
        rest.contains("watch it again: longshore runs watch etl/r3 --data-dir "),
        "{rest}"
    );
    assert!(
        rest.contains("cancel it:      longshore runs cancel etl/r3 --data-dir "),
        "{rest}"
    );
    assert_eq!(
        service.outcome("runs get etl/r3 -o name").0,
        0,
        "the run goes on"
    );
}

#[test]
fn watching_tells_every_change_as_an_object_and_the_run_last() {
    let service = Service::start();
    let mut watch = service
        .process("runs watch etl/r3 -o json")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (first["kind"].as_str(), first["to"].as_str()),
        (Some("RunChange"), Some("running"))
    );
    service.fake.set_state("r3", "success");
    let rest: Vec<Value> = lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    let last = &rest[rest.len() - 1];
    assert_eq!(
        (last["runId"].as_str(), last["state"].as_str()),
        (Some("r3"), Some("success"))
    );
    let change = &rest[rest.len() - 2];
    assert_eq!(
        (change["from"].as_str(), change["to"].as_str()),
        (Some("running"), Some("success"))
    );
}

#[test]
fn a_log_is_followed_until_somebody_leaves() {
    let service = Service::start();
    let mut logs = service.process("logs etl/r2/extract -f").spawn().unwrap();
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(lines.next().unwrap().unwrap(), "two\u{1b}[2J");
    assert!(logs.try_wait().unwrap().is_none(), "the try goes on");
    let killed = Process::new("kill")
        .args(["-INT", &logs.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(logs.wait().unwrap().code(), Some(130));
}
