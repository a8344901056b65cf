//! Pools as people make them: by command beside a service, and in a file beside a DAG.

use std::{fs, path::Path};

use crate::{
    longshore, outcome,
    service_process::{Service, until},
    standalone::folder_with,
};

const POOLED: &str = "
dag_id: pooled
tasks:
  a: {command: [echo, done], pool: db}
";

/// A command line, its exit code, and a part of what it prints. One after the other, on one service.
const ANSWERS: &[(&str, i32, &str)] = &[
    ("pools list -o name", 0, "pool/default_pool\n"),
    ("pools set db 2", 0, "pool db has 2 slots\n"),
    ("runs watch pooled/r1", 0, "run pooled/r1 success"),
    ("pools list", 0, "default_pool  128    command"),
    ("pools set default_pool 500", 0, "has 500 slots\n"),
    ("pools list -o json", 0, "\"slots\":500"),
    ("pools delete db", 0, "pool db is deleted\n"),
    ("pools delete db", 3, "error[LS1397]"),
    ("pools delete default_pool", 2, "error[LS1396]"),
];

#[test]
fn a_pool_is_made_by_command_while_its_task_waits_and_says_so() {
    let dags = folder_with(&[("pooled.yaml", POOLED)]);
    let service = Service::start(dags.path(), &[]);
    let (code, _, stderr) = service.outcome("dags trigger pooled --run-id r1");
    assert_eq!(code, 0, "{stderr}");
    until("the task says what it waits for", || {
        let (_, stdout, _) = service.outcome("tasks get pooled/r1/a");
        stdout.contains("pool `db` does not exist")
    });
    for (line, code, expected) in ANSWERS {
        let (found, stdout, stderr) = service.outcome(line);
        assert_eq!(found, *code, "{line}\n{stdout}{stderr}");
        let is_there = stdout.contains(expected) || stderr.contains(expected);
        assert!(is_there, "{line}\n{stdout}{stderr}");
    }
}

fn run(folder: &Path, more: &[&str]) -> (i32, String, String) {
    let mut command = longshore();
    command.arg("run").arg(folder.join("pooled.yaml"));
    command.arg("--data-dir").arg(folder.join("data"));
    outcome(command.args(more))
}

#[test]
fn a_run_takes_the_pools_beside_its_dag_and_waits_for_none_that_nobody_makes() {
    let folder = folder_with(&[("pooled.yaml", POOLED)]);
    let (code, stdout, stderr) = run(folder.path(), &[]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let expected = "error[LS1385]: task a would wait for ever: it takes 1 of the slots of pool db, which does not exist";
    assert!(stderr.contains(expected), "{stderr}");
    assert!(stderr.contains("`db: {slots: 1}`"), "{stderr}");

    let pools = folder.path().join("pools.yaml");
    fs::write(&pools, "db: {slots: 1}\n").unwrap();
    let (code, stdout, stderr) = run(folder.path(), &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");

    fs::write(&pools, "db: {slots: one}\n").unwrap();
    let (code, _, stderr) = run(folder.path(), &[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("`slots` of pool `db` must be a whole number"),
        "{stderr}"
    );
}
