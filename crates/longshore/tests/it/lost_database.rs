//! A database that was emptied, or lost, beside the cluster that has the pods of its runs.

use std::fs;

use tempfile::TempDir;

use crate::{longshore, outcome, service_process::Service};

#[test]
fn a_database_that_has_lost_its_runs_is_refused_and_not_touched() {
    let dags = TempDir::new().unwrap();
    let mut service = Service::start(dags.path(), &[]);
    service.kill();
    let data = service.data();
    let database = data.join("longshore.db");
    let refusal = || {
        let mut command = longshore();
        command
            .args(["standalone", "--port", "0", "--kube-port", "0"])
            .args(["--metrics-port", "0", "--data-dir"])
            .arg(data);
        let (code, stdout, stderr) = outcome(&mut command);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert!(stderr.contains("error[LS1709]"), "{stderr}");
        assert!(
            stderr.contains("longshore.db has lost its runs"),
            "{stderr}"
        );
        assert!(stderr.contains("databases.json"), "{stderr}");
        stderr
    };
    for beside in ["longshore.db-wal", "longshore.db-shm"] {
        let _ = fs::remove_file(data.join(beside));
    }
    fs::write(&database, "").unwrap();
    let stderr = refusal();
    assert!(stderr.contains("found a file of 0 bytes"), "{stderr}");
    assert_eq!(fs::metadata(&database).unwrap().len(), 0);
    fs::remove_file(&database).unwrap();
    let stderr = refusal();
    assert!(stderr.contains("found no such file"), "{stderr}");
    assert!(!database.exists());
    // Who removes the ids knows what that means.
    fs::remove_file(data.join("databases.json")).unwrap();
    service.restart();
    assert_eq!(service.stop().0, Some(0));
}
