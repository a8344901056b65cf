//! The command as people run it.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod acceptance;
mod actions;
mod airflow_files;
mod availability;
mod bad_input;
mod canary;
mod cli;
mod cluster;
mod cluster_kill;
mod controller;
mod drain;
mod errors;
mod flink;
mod flyte_sdk;
mod foreign_clients;
mod full_disk;
mod kubectl;
mod lint;
mod lost_database;
mod metrics_reference;
mod other_cluster;
mod pod_network;
mod pools;
#[path = "../../../longshore-store/tests/it/server.rs"]
mod postgres;
mod quickstart_programs;
mod rbac;
mod readme;
mod real_node;
mod run;
mod service;
mod service_process;
mod standalone;
mod stopping;
mod task_actions;

use assert_cmd::Command;

/// The command, with nothing of this machine's environment that could change what it does.
fn longshore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    for name in [
        "LONGSHORE_OUTPUT",
        "LONGSHORE_COLOR",
        "LONGSHORE_DATA_DIR",
        "LONGSHORE_SERVER",
        "LONGSHORE_TOKEN",
        "LONGSHORE_LOG",
        "LONGSHORE_DAGS_FOLDER",
        "LONGSHORE_DATABASE_URL",
        "RUST_BACKTRACE",
    ] {
        command.env_remove(name);
    }
    command
        .env("HOME", "/nonexistent")
        .current_dir(repository());
    command
}

/// The root of the repository.
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Exit code, stdout, stderr.
fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}
