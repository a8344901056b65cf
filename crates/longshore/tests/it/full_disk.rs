//! A disk that a task fills: the command comes to an end, and says what is wrong where it could not do its own work.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process,
    time::Duration,
};

use longshore_test::on_a_small_disk;

use crate::{
    longshore, outcome,
    service_process::{Service, until},
};

/// Fills the disk, and is content.
const FILLING: &str = "dag_id: fill\nworkspace: true\ntasks:\n  one:\n    command: [sh, -c, 'cat /dev/zero > \
                       $LONGSHORE_WORKSPACE/big; sleep 0.1; exit 0']\n";
/// Leaves no room for those that follow.
const FOLLOWED: &str =
    "  two:\n    command: [\"true\"]\n  three:\n    command: [\"true\"]\n    depends_on: [one]\n";
/// Longer than any of these runs takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn run_on(name: &str, n_kib: u32, dag: &str) {
    on_a_small_disk(name, n_kib, |disk| {
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        fs::write(&file, dag).unwrap();
        let mut command = longshore();
        command.arg("run").arg(file.path()).arg("--data-dir");
        command.arg(disk.join("data")).timeout(PATIENCE);
        let (exit, stdout, stderr) = outcome(&mut command);
        let has_room = fs::write(disk.join("more"), [0; 65_536]).is_ok();
        assert!(!has_room, "the task fills nothing: {stderr}");
        let says_so = stderr.contains("LS1703") || stderr.contains("No space left on device");
        assert!(
            exit == 0 || (exit == 1 && says_so),
            "{n_kib} KiB: exit {exit}\n{stdout}\n{stderr}"
        );
    });
}

#[test]
fn a_task_that_fills_the_disk_does_not_hang_the_run() {
    let name = "full_disk::a_task_that_fills_the_disk_does_not_hang_the_run";
    run_on(name, 2000, FILLING);
}

#[test]
fn tasks_that_find_no_room_do_not_hang_the_run() {
    let name = "full_disk::tasks_that_find_no_room_do_not_hang_the_run";
    run_on(name, 2200, &format!("{FILLING}{FOLLOWED}"));
}

#[test]
fn a_service_that_can_record_nothing_more_ends_and_says_why() {
    let name = "full_disk::a_service_that_can_record_nothing_more_ends_and_says_why";
    on_a_small_disk(name, 6_000, |disk| {
        let dags = tempfile::tempdir().unwrap();
        let text = "dag_id: noop\ntasks:\n  one:\n    command: [\"true\"]\n";
        fs::write(dags.path().join("noop.yaml"), text).unwrap();
        let mut service = Service::start_in(&disk.join("data"), dags.path());
        let mut filler = fs::File::create(disk.join("filler")).unwrap();
        while filler.write_all(&[0; 4_096]).is_ok() {}
        until("the service to end", || {
            service.outcome("dags trigger noop --quiet");
            service.has_ended()
        });
        let (code, stderr) = service.end();
        let says_so = stderr.contains("LS1703") || stderr.contains("No space left on device");
        assert!(code == Some(1) && says_so, "{code:?}: {stderr}");
    });
}

/// A file is where the logs go, so that none can be stored: as on a disk without room for them.
#[test]
fn a_run_whose_logs_find_no_room_says_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(
        &dag,
        "dag_id: noisy\ntasks:\n  one:\n    command: [echo, one]\n",
    )
    .unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("logs"), "in the way").unwrap();
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
    let mut run = command.stderr(process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let said = lines.find(|line| line.starts_with("waiting at most 90 s "));
    run.kill().unwrap();
    run.wait().unwrap();
    let said = said.expect("a word before the end");
    let logs = data.join("logs").display().to_string();
    assert!(said.contains(&logs) && said.ends_with(": one"), "{said}");
}
