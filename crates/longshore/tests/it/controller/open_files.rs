//! The limit of open files: of the program that is started with 1024, the soft limit of most shells, and of its pods.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::replica::Plan;
use crate::{
    cluster::TestCluster,
    service_process::{Service, until},
};

/// What the tests start programs with.
const SOFT: &str = "1024";

const DAG: &str = r#"
dag_id: limit
workspace: true
tasks:
  read:
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; ulimit -S -n > limits; ulimit -H -n >> limits; mv limits done']
"#;

/// The soft and the hard limit of a process.
fn limits_of(process: u32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut words = line.unwrap().split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

fn written(data: &Path) -> Option<PathBuf> {
    let volumes = fs::read_dir(data.join("node/volumes/longshore")).ok()?;
    let mut files = volumes.flatten().map(|volume| volume.path().join("done"));
    files.find(|file| file.exists())
}

#[test]
fn standalone_may_open_more_files_than_its_shell_and_its_pods_as_many() {
    let dags = TempDir::new().unwrap();
    fs::write(dags.path().join("limit.yaml"), DAG).unwrap();
    let service = Service::start(dags.path(), &[]);
    let (soft, hard) = limits_of(service.id());
    assert_eq!(soft, hard);
    let (code, _, stderr) = service.outcome("dags trigger limit --run-id r1");
    assert_eq!(code, 0, "{stderr}");
    until("the task runs", || written(service.data()).is_some());
    let of_pod = fs::read_to_string(written(service.data()).unwrap()).unwrap();
    assert_eq!(of_pod.split_whitespace().collect::<Vec<_>>(), [SOFT, &hard]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_may_open_more_files_than_its_shell() {
    let cluster = TestCluster::embedded().await;
    let mut plan = Plan::of(&cluster, "tasks");
    let shell = cluster.folder.path().join("limited");
    let program = plan.program.display();
    fs::write(
        &shell,
        format!("#!/bin/sh\nulimit -S -n {SOFT}\nexec {program} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&shell, Permissions::from_mode(0o700)).unwrap();
    plan.program = shell;
    let mut replica = plan.start("limited");
    let (soft, hard) = limits_of(replica.id());
    assert_eq!(soft, hard);
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}
