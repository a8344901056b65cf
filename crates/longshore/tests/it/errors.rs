//! What people see when something is wrong before a run starts.

use std::fs;

use serde_json::Value;

use crate::{longshore, outcome};

#[test]
fn a_missing_file_exits_3() {
    let (code, stdout, stderr) = outcome(longshore().args(["run", "no/such/dag.yaml"]));
    assert_eq!((code, stdout.as_str()), (3, ""));
    insta::assert_snapshot!(stderr);
}

#[test]
fn an_error_is_an_object_for_a_program() {
    let (code, stdout, stderr) =
        outcome(longshore().args(["run", "no/such/dag.yaml", "-o", "json"]));
    assert_eq!((code, stdout.as_str()), (3, ""));
    let error: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(error["kind"], "Error");
    assert_eq!(error["code"], "LS1001");
    assert_eq!(error["exitCode"], 3);
}

#[test]
fn a_file_that_is_no_text_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dag.yaml");
    fs::write(&path, b"dag_id: \xff\xfe").unwrap();
    let (code, _, stderr) = outcome(longshore().arg("run").arg(&path));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error[LS1002]: "), "{stderr}");
    assert!(
        stderr.contains("caused by: it is not UTF-8 at byte 8"),
        "{stderr}"
    );
}

#[test]
fn a_file_without_a_database_url_is_named_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("empty"), "\n").unwrap();
    let url = "postgres://ann:s3cret@db/runs";
    fs::write(path("two"), format!("{url}\n{url}\n")).unwrap();
    for (file, found) in [
        (path("missing"), "no such file"),
        (folder.path().to_owned(), "a directory"),
        (path("empty"), "an empty file"),
        (path("two"), "2 lines"),
    ] {
        let mut command = longshore();
        command
            .args(["standalone", "--port", "0", "--kube-port", "0"])
            .args(["--metrics-port", "0", "--data-dir"])
            .arg(path("data"))
            .arg("--database-url-file")
            .arg(&file)
            .env_remove("LONGSHORE_DATABASE_URL");
        let (code, _, stderr) = outcome(&mut command);
        assert_eq!(code, 1, "{stderr}");
        let expected = format!(
            "error[LS1708]: expected exactly one line with the URL of a Postgres database in {}, found {found}\n",
            file.display()
        );
        assert!(stderr.contains(&expected), "{stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
}

#[test]
fn a_context_that_is_nowhere_exits_3() {
    let mut command = longshore();
    command
        .args(["run", "examples/quickstart/dag.yaml", "--ephemeral"])
        .args(["--context", "kind"])
        .env_remove("KUBECONFIG");
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 3);
    let expected = "error[LS1101]: the Kubernetes cluster cannot be found";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[test]
fn a_folder_without_dag_files_exits_3() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = outcome(longshore().args(["dags", "lint"]).arg(folder.path()));
    assert_eq!(code, 3);
    assert!(
        stderr.starts_with("error[LS1003]: there is no DAG file in "),
        "{stderr}"
    );
}
