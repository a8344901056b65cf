//! Problems in DAG files, as people and programs see them.

use std::fs;

use serde_json::Value;

use crate::{longshore, outcome};

const BROKEN: &str = "\
dag_id: broken
tasks:
  extract:
    comand: [sh, -c, 'echo 1']
  load:
    command: sh -c 'echo 2'
    depends_on: [extrakt]
";

fn broken_dag() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.yaml"), BROKEN).unwrap();
    folder
}

#[test]
fn lint_prints_every_problem_with_its_place_and_exits_1() {
    let folder = broken_dag();
    let command = &mut longshore();
    let (code, stdout, stderr) =
        outcome(
            command
                .current_dir(folder.path())
                .args(["dags", "lint", "broken.yaml"]),
        );
    assert_eq!(code, 1);
    insta::assert_snapshot!(format!("{stderr}--\n{stdout}"));
}

#[test]
fn lint_is_a_list_for_a_program() {
    let folder = broken_dag();
    let command = &mut longshore();
    let (code, stdout, stderr) = outcome(
        command
            .current_dir(folder.path())
            .args(["dags", "lint", ".", "-o", "json"]),
    );
    assert_eq!((code, stderr.as_str()), (1, ""));
    let list: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(list["kind"], "List");
    let item = &list["items"][0];
    assert_eq!(item["file"], "./broken.yaml");
    for field in ["code", "line", "column", "message", "help"] {
        assert!(!item[field].is_null(), "{field}");
    }
}

#[test]
fn a_file_that_cannot_be_read_keeps_no_other_one_from_being_checked() {
    let folder = broken_dag();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", b"\xff\xfe");
    write("huge.yaml", "#".repeat(4_000_000).as_bytes());
    write("two.yaml", b"dag_id: a\ntasks: {}\n---\ndag_id: b\n");
    let lint = |more: &[&str]| {
        let mut command = longshore();
        command.current_dir(folder.path());
        outcome(command.args(["dags", "lint", "."]).args(more))
    };
    let (code, stdout, stderr) = lint(&[]);
    assert_eq!(
        (code, stdout.as_str()),
        (1, "4 files, 7 problems\n"),
        "{stderr}"
    );
    for expected in [
        "error[LS1002]: ./a.yaml cannot be read",
        "broken.yaml:4:5: LS1302",
        "a DAG file has at most 3145728 bytes, this one has 4000000\nhelp: move data into files of their own",
        "two.yaml:3:1: LS1301: a DAG file has one YAML document, this one has several (help: put each DAG",
    ] {
        assert!(stderr.contains(expected), "{expected}\n{stderr}");
    }
    let (code, stdout, stderr) = lint(&["-o", "json"]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    let list: Value = serde_json::from_str(&stdout).unwrap();
    let item = &list["items"][0];
    assert_eq!(
        (&item["code"], &item["file"]),
        (&"LS1002".into(), &"./a.yaml".into())
    );
    assert_eq!(
        item["message"],
        "./a.yaml cannot be read: it is not UTF-8 at byte 0"
    );
    assert_eq!(list["items"].as_array().unwrap().len(), 7);
}

#[test]
fn a_run_of_a_file_with_problems_starts_nothing() {
    let folder = broken_dag();
    let data = folder.path().join("data");
    let command = &mut longshore();
    command
        .args(["run", "broken.yaml", "--data-dir"])
        .arg(&data);
    let (code, stdout, stderr) = outcome(command.current_dir(folder.path()));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.contains("error[LS1300]: broken.yaml has 4 problems"),
        "{stderr}"
    );
    assert!(!data.exists());
}

#[test]
fn objects_for_kubectl_are_no_broken_dags() {
    let (code, stdout, stderr) = outcome(longshore().args(["dags", "lint", "examples"]));
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (
            0,
            "2 files, 0 problems\n",
            "skipped examples/flink/counter.yaml: it is a FlinkDeployment for kubectl, no DAG\n\
             skipped examples/taskaction.yaml: it is a TaskAction for kubectl, no DAG\n"
        )
    );
    // A file that is named is meant to be a DAG.
    let (code, _, stderr) = outcome(longshore().args(["dags", "lint", "examples/taskaction.yaml"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("LS1302"), "{stderr}");
}

#[test]
fn pools_in_a_folder_of_dags_are_checked_as_pools() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("dag.yaml", "dag_id: a\ntasks: {t: {command: [x]}}\n");
    write("pools.yaml", "db: {slots: 4}\n");
    let lint = |path: &str| {
        let mut command = longshore();
        command.current_dir(folder.path());
        outcome(command.args(["dags", "lint", path]))
    };
    let fine = (0, "2 files, 0 problems\n".to_owned(), String::new());
    assert_eq!(lint("."), fine);
    write("pools.json", r#"{"db": {"slots": "four"}}"#);
    for (path, counted) in [
        (".", "3 files, 1 problem\n"),
        ("pools.json", "1 file, 1 problem\n"),
    ] {
        let (code, stdout, stderr) = lint(path);
        assert_eq!((code, stdout.as_str()), (1, counted));
        let expected = "pools.json:1:18: LS1303: `slots` of pool `db` must be a whole number";
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_dag_is_read_from_standard_input() {
    let dag = "dag_id: piped\ntasks:\n  one: {command: [\"true\"]}\n";
    let mut command = longshore();
    command.args(["dags", "lint", "-"]).write_stdin(BROKEN);
    let (code, _, stderr) = outcome(&mut command);
    assert_eq!(code, 1);
    assert!(stderr.contains("-:4:5: LS1302"), "{stderr}");
    let mut command = longshore();
    command.args(["run", "-", "--ephemeral"]).write_stdin(dag);
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("piped  run "), "{stdout}");
}

#[test]
fn the_quickstart_has_no_problems() {
    let (code, stdout, stderr) = outcome(longshore().args(["dags", "lint", "examples/quickstart"]));
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "1 file, 0 problems\n", "")
    );
}

#[test]
fn a_misspelt_parameter_is_refused_before_anything_starts() {
    let args = [
        "run",
        "examples/quickstart/dag.yaml",
        "--ephemeral",
        "--param",
        "titel=x",
    ];
    let (code, _, stderr) = outcome(longshore().args(args));
    assert_eq!(code, 2);
    insta::assert_snapshot!(stderr);
}

/// The same files as in a service: no folder behind a link, and no file behind a link that leads out of the folder.
#[test]
fn a_folder_with_links_is_checked_as_a_service_reads_it() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("dags");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), "dag_id: a\ntasks: {t: {image: i}}\n").unwrap();
    for name in ["again", "once-more"] {
        symlink(".", folder.join(name)).unwrap();
    }
    let lint = || outcome(longshore().args(["dags", "lint"]).arg(&folder));
    let (code, stdout, stderr) = lint();
    assert_eq!(
        (code, stdout.as_str()),
        (0, "1 file, 0 problems\n"),
        "{stderr}"
    );
    fs::write(place.path().join("secret"), "hunter2").unwrap();
    symlink("../secret", folder.join("x.yaml")).unwrap();
    let (code, stdout, stderr) = lint();
    assert_eq!(
        (code, stdout.as_str()),
        (1, "2 files, 1 problem\n"),
        "{stderr}"
    );
    assert!(stderr.contains("leads out of the DAG folder"), "{stderr}");
    assert!(!stderr.contains("hunter2"), "{stderr}");
}
