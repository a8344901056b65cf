//! Whole runs: the quickstart, broken data, Ctrl-C and going on, two processes on one data directory.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{longshore, outcome, quickstart_programs::REPORT, repository};

/// The last line of `-o json`, and the state changes before it.
pub(crate) fn result(stdout: &str) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let result = lines.pop().unwrap();
    assert_eq!(result["kind"], "RunResult", "{result}");
    (lines, result)
}

/// A copy of the quickstart whose data can be changed.
fn quickstart_copy() -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(repository().join("examples/quickstart")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn the_quickstart_makes_its_report_and_retries_one_task() {
    let data = TempDir::new().unwrap();
    let mut command = longshore();
    command.args([
        "run",
        "examples/quickstart/dag.yaml",
        "-o",
        "json",
        "--data-dir",
    ]);
    let (code, stdout, stderr) = outcome(command.arg(data.path()));
    assert_eq!(code, 0, "{stderr}\n{stdout}");
    let (changes, result) = result(&stdout);
    assert_eq!(result["state"], "success");
    let workspace = PathBuf::from(result["workspace"].as_str().unwrap());
    assert_eq!(
        fs::read_to_string(workspace.join("report.csv")).unwrap(),
        REPORT
    );

    let retried: Vec<&Value> = changes
        .iter()
        .filter(|change| change["to"] == "up_for_retry")
        .collect();
    assert_eq!(retried.len(), 1, "{stdout}");
    assert_eq!(retried[0]["taskId"], "summarise_gentoo");
    for task in result["tasks"].as_array().unwrap() {
        let n_tries = if task["taskId"] == "summarise_gentoo" {
            2
        } else {
            1
        };
        assert_eq!(task["tryNumber"], n_tries, "{task}");
        assert!(Path::new(task["log"].as_str().unwrap()).exists(), "{task}");
    }
}

/// Both controllers in one command: the scheduler makes a TaskAction, the executor its pod.
#[test]
fn a_task_with_a_plugin_runs_beside_an_ordinary_one() {
    let data = TempDir::new().unwrap();
    let mut command = longshore();
    command.args([
        "run",
        "examples/plugin/dag.yaml",
        "--param",
        "model=large",
        "-o",
        "json",
        "--data-dir",
    ]);
    let (code, stdout, stderr) = outcome(command.arg(data.path()));
    assert_eq!(code, 0, "{stderr}\n{stdout}");
    let (changes, result) = result(&stdout);
    assert_eq!(result["state"], "success");
    let log = |task: usize| fs::read_to_string(result["tasks"][task]["log"].as_str().unwrap());
    assert_eq!(log(0).unwrap(), "prepared for large\n");
    assert_eq!(log(1).unwrap(), "trained the large model in try 1\n");
    let ran: Vec<&Value> = changes
        .iter()
        .filter(|change| change["taskId"] == "train")
        .map(|change| &change["to"])
        .collect();
    assert_eq!(ran.last().unwrap(), &"success", "{stdout}");
    let name = result["tasks"][1]["pod"].as_str().unwrap();
    assert_eq!(name.len(), "r-a".len() + 2 * 19, "{name}");
}

/// A failed attempt is a failed try: the DAG's own retry follows, and then the end.
#[test]
fn a_task_with_a_plugin_that_fails_is_retried_and_fails_the_run() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("dag.yaml");
    let dag = "dag_id: failing\ntasks:\n  a:\n    plugin: pod\n    retries: 1\n    retry_delay: 0s\n    \
               command: [sh, -c, 'echo try $LONGSHORE_TRY_NUMBER; exit 3']\n";
    fs::write(&file, dag).unwrap();
    let mut command = longshore();
    command.arg("run").arg(&file).arg("-o").arg("json");
    let (code, stdout, stderr) = outcome(command.arg("--data-dir").arg(data.path().join("data")));
    assert_eq!(code, 4, "{stderr}\n{stdout}");
    let (_, result) = result(&stdout);
    let task = &result["tasks"][0];
    assert_eq!(task["tryNumber"], 2, "{task}");
    let log = fs::read_to_string(task["log"].as_str().unwrap()).unwrap();
    assert_eq!(log, "try 2\n");
}

#[test]
fn without_a_terminal_each_change_is_a_line() {
    let data = TempDir::new().unwrap();
    let mut command = longshore();
    command.args([
        "run",
        "examples/quickstart/dag.yaml",
        "--param",
        "title=Birds",
        "--data-dir",
    ]);
    let (code, stdout, stderr) = outcome(command.arg(data.path()));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains(" task/clean queued -> running (pod quickstart-clean-"),
        "{stderr}"
    );
    assert!(stderr.contains(" running -> success"), "{stderr}");
    let workspace = stdout
        .lines()
        .find_map(|line| line.strip_prefix("outputs  "))
        .unwrap();
    let report = fs::read_to_string(Path::new(workspace).join("report.md")).unwrap();
    assert!(report.starts_with("# Birds\n"), "{report}");
}

#[test]
fn broken_data_exit_4_and_name_the_task_the_reason_and_the_log() {
    let quickstart = quickstart_copy();
    let raw = quickstart.path().join("penguins-raw.csv");
    let text = fs::read_to_string(&raw)
        .unwrap()
        .replace("Body Mass (g)", "Mass");
    fs::write(&raw, text).unwrap();
    let data = TempDir::new().unwrap();
    let mut command = longshore();
    command
        .arg("run")
        .arg(quickstart.path().join("dag.yaml"))
        .arg("--data-dir")
        .arg(data.path());
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 4, "{stderr}");
    assert!(
        stderr.contains("error[LS1201]: task clean failed in try 1: "),
        "{stderr}"
    );
    assert!(stderr.contains("exit code 1"), "{stderr}");
    assert!(
        stderr.contains("has no column \"Body Mass (g)\""),
        "{stderr}"
    );
    assert!(
        stderr.contains("error[LS1380]: run quickstart/"),
        "{stderr}"
    );
    let log = stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix("log: "))
        .unwrap();
    assert!(Path::new(log).exists(), "{log}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let folder = TempDir::new().unwrap();
    let dag = folder.path().join("dag.yaml");
    fs::write(
        &dag,
        "dag_id: typo\ntasks:\n  one:\n    command: [no-such-program]\n",
    )
    .unwrap();
    let (code, _, stderr) = outcome(longshore().arg("run").arg(&dag).arg("--ephemeral"));
    assert_eq!(code, 4, "{stderr}");
    assert!(
        stderr.contains("error[LS1203]: task one failed in try 1: "),
        "{stderr}"
    );
    assert!(stderr.contains("no-such-program"), "{stderr}");
}

#[test]
fn what_a_task_says_of_its_end_is_no_command_to_the_terminal() {
    let folder = TempDir::new().unwrap();
    let dag = folder.path().join("dag.yaml");
    let script = r"printf 'sea\033[31mgull\033]52;c;aGk=\007\r' > /dev/termination-log; exit 3";
    fs::write(
        &dag,
        format!("dag_id: escapes\ntasks:\n  one:\n    command: [sh, -c, {script:?}]\n"),
    )
    .unwrap();
    let mut command = longshore();
    // As on a terminal: without colours, the stream for stderr would hide escapes.
    command.args(["run", "--color", "always"]);
    let (code, _, stderr) = outcome(command.arg(&dag).arg("--ephemeral"));
    assert_eq!(code, 4, "{stderr}");
    let said = stderr.matches("seagull").count();
    assert!(said >= 2, "a line of progress and the error: {stderr:?}");
    assert!(stderr.contains("\u{1b}["), "no colours: {stderr:?}");
    assert!(!stderr.contains("\u{1b}]"), "{stderr:?}");
    assert!(!stderr.contains(['\u{7}', '\r']), "{stderr:?}");
}

/// The README promises this to users who look for such a file.
#[test]
fn what_a_task_writes_outside_its_workspace_is_gone_with_its_pod() {
    let folder = TempDir::new().unwrap();
    let dag = folder.path().join("dag.yaml");
    // Every pod has this directory, whatever the test's own is for temporary files.
    let path = Path::new("/tmp").join(format!("longshore-{}", uuid::Uuid::new_v4()));
    let file = path.display();
    let text = format!(
        "dag_id: outside
workspace: true
tasks:
  write: {{command: [sh, -c, 'echo x > {file} && cp {file} $LONGSHORE_WORKSPACE/kept']}}
  look: {{depends_on: [write], command: [sh, -c, '! [ -e {file} ] && [ -e $LONGSHORE_WORKSPACE/kept ]']}}
"
    );
    fs::write(&dag, text).unwrap();
    let (code, _, stderr) = outcome(longshore().arg("run").arg(&dag).arg("--ephemeral"));
    assert_eq!(code, 0, "{stderr}");
    assert!(!path.exists(), "{file}");
}

/// A DAG whose first task waits for a file in the workspace, so that a test decides when it ends. (A task has a `/tmp`
/// of its own.)
const WAITING: &str = r#"
dag_id: waiting
workspace: true
tasks:
  wait:
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; : > started; while [ ! -e go ]; do sleep 0.1; done']
  after:
    depends_on: [wait]
    command: ["true"]
"#;

fn waiting_dag(folder: &Path) -> PathBuf {
    let dag = folder.join("dag.yaml");
    fs::write(&dag, WAITING).unwrap();
    dag
}

/// Lets the first task of [`WAITING`] end, once it has started.
fn let_go(data: &Path) {
    let deadline = std::time::Duration::from_secs(30);
    for _ in 0..deadline.as_millis() / 20 {
        if let Some(workspace) = folder_with_started(data) {
            fs::write(workspace.join("go"), "").unwrap();
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the first task did not start within {deadline:?}");
}

fn folder_with_started(folder: &Path) -> Option<PathBuf> {
    if folder.join("started").is_file() {
        return Some(folder.to_owned());
    }
    let folders = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        (path.is_dir() && !path.is_symlink()).then_some(path)
    });
    folders
        .into_iter()
        .find_map(|path| folder_with_started(&path))
}

/// A run that goes on in the background, followed by its state changes.
pub(crate) struct Background {
    pub(crate) child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Background {
    pub(crate) fn start(dag: &Path, data: &Path, args: &[&str]) -> Self {
        let mut child = Process::new(env!("CARGO_BIN_EXE_longshore"))
            .arg("run")
            .arg(dag)
            .args(["-o", "json", "--data-dir"])
            .arg(data)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    pub(crate) fn wait_until_it_runs(&mut self, task_id: &str) {
        self.wait_until(|change| change["taskId"] == task_id && change["to"] == "running");
    }

    /// Waits for a state change.
    pub(crate) fn wait_until(&mut self, is_it: impl Fn(&Value) -> bool) {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if is_it(&serde_json::from_str(&line).unwrap()) {
                return;
            }
            line.clear();
        }
        panic!("the run ended before");
    }

    fn interrupt(&self) {
        self.signal("INT");
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Process::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Exit code and the rest of stdout.
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().unwrap(), rest)
    }
}

#[test]
fn ctrl_c_exits_130_and_the_printed_command_goes_on() {
    let folder = TempDir::new().unwrap();
    let dag = waiting_dag(folder.path());
    let data = folder.path().join("data");
    let mut background = Background::start(&dag, &data, &[]);
    background.wait_until_it_runs("wait");
    background.interrupt();
    let (code, rest) = background.end();
    let (_, stopped) = result(&rest);
    assert_eq!(code, 130, "{stopped}");

    let_go(&data);
    let resume = stopped["resume"].as_str().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_longshore")).parent().unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", program.display());
    let output = Process::new("sh")
        .args(["-c", &format!("{resume} -o json")])
        .env("PATH", path)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (_, resumed) = result(&stdout);
    assert_eq!(resumed["runId"], stopped["runId"]);
    assert_eq!(resumed["state"], "success");
    for task in resumed["tasks"].as_array().unwrap() {
        assert_eq!(task["tryNumber"], 1, "being stopped costs no try: {task}");
    }
}

#[test]
fn a_run_that_takes_too_long_exits_5() {
    let folder = TempDir::new().unwrap();
    let dag = waiting_dag(folder.path());
    let mut command = longshore();
    command
        .arg("run")
        .arg(dag)
        .args(["--timeout", "1s", "--data-dir"]);
    let (code, _, stderr) = outcome(command.arg(folder.path().join("data")));
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("error[LS1381]: run waiting/"), "{stderr}");
    assert!(
        stderr.contains("help: go on with: longshore run "),
        "{stderr}"
    );
}

#[test]
fn a_second_process_on_the_same_data_directory_is_refused() {
    let folder = TempDir::new().unwrap();
    let dag = waiting_dag(folder.path());
    let data = folder.path().join("data");
    let mut background = Background::start(&dag, &data, &[]);
    background.wait_until_it_runs("wait");
    let pid = background.child.id();
    let (code, _, stderr) = outcome(
        longshore()
            .arg("run")
            .arg(&dag)
            .arg("--data-dir")
            .arg(&data),
    );
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("error[LS1702]: the data directory "),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("is in use by the process {pid}\n")),
        "{stderr}"
    );
    let_go(&data);
    assert_eq!(background.end().0, 0);
}

#[test]
fn a_run_that_does_not_exist_cannot_be_gone_on_with() {
    let data = TempDir::new().unwrap();
    // The command notes that it closes a directory that others can read.
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = longshore();
    command.args([
        "run",
        "examples/quickstart/dag.yaml",
        "--resume",
        "manual__x",
        "--data-dir",
    ]);
    let (code, _, stderr) = outcome(command.arg(data.path()));
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.starts_with("error[LS1383]: there is no run manual__x "),
        "{stderr}"
    );
}

/// A stack that no system has room for: then it makes no thread, as where a limit is reached.
#[test]
fn a_command_that_may_have_no_thread_says_so() {
    let folder = TempDir::new().unwrap();
    let dag = waiting_dag(folder.path());
    let mut command = longshore();
    command.arg("run").arg(&dag).arg("--data-dir");
    command.arg(folder.path().join("data"));
    command.env("RUST_MIN_STACK", (1_u64 << 46).to_string());
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("error[LS1905]: "), "{stderr}");
    assert!(stderr.contains("help: end other programs"), "{stderr}");
}
