//! What cannot work is refused with a code, the name of the thing and a remedy, and leaves nothing half-written.

use std::{fs, path::Path, process::Command as Process};

use tempfile::TempDir;

use crate::{longshore, outcome};

const OK: &str = "dag_id: ok\nworkspace: true\ntasks:\n  one:\n    command: [\"true\"]\n";

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_bad_dag_file_is_named_with_the_remedy_and_nothing_is_started() {
    let huge = format!("# {}\n{OK}", "x".repeat(4_000_000));
    for (name, text, code, message, remedy) in [
        (
            "broken",
            &b"dag_id: x\ntasks: [\n"[..],
            "LS1301",
            "not readable as YAML",
            "correct the YAML here",
        ),
        (
            "unknown field",
            b"dag_id: x\ntasks:\n  one:\n    comand: [a]\n",
            "LS1302",
            "no field `comand`",
            "did you mean `command`?",
        ),
        (
            "cycle",
            b"dag_id: x\ntasks:\n  a: {command: [a], depends_on: [b]}\n  b: {command: [b], depends_on: [a]}\n",
            "LS1311",
            "a -> b -> a",
            "remove one of these",
        ),
        (
            "missing file",
            b"dag_id: x\nfiles: [gone.csv]\ntasks:\n  a: {command: [a]}\n",
            "LS1313",
            "file `gone.csv` does not exist",
            "relative to the folder",
        ),
        (
            "large file",
            b"dag_id: x\nfiles: [large.bin]\ntasks:\n  a: {command: [a]}\n",
            "LS1313",
            "larger than the 1048576 bytes",
            "where tasks can fetch them",
        ),
        (
            "zeros",
            &[0; 5_000],
            "LS1301",
            "not readable as YAML",
            "correct the YAML here",
        ),
        (
            "garbage",
            b"\x89PNG\r\n\x1a\n\xff\xfe",
            "LS1002",
            "not UTF-8 at byte 0",
            "text file in UTF-8",
        ),
        (
            "huge",
            huge.as_bytes(),
            "LS1002",
            "at most 3145728 bytes",
            "move data into files of their own",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
        fs::write(&dag, text).unwrap();
        fs::write(folder.path().join("large.bin"), vec![0; 1_100_000]).unwrap();
        let mut command = longshore();
        command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
        let (exit, stdout, stderr) = outcome(&mut command);
        assert_eq!((exit, stdout.as_str()), (1, ""), "{name}: {stderr}");
        for expected in [code, message, remedy, dag.to_str().unwrap()] {
            assert!(stderr.contains(expected), "{name}: {expected}\n{stderr}");
        }
        assert!(!data.exists(), "{name}: a data directory was made");
    }
}

#[test]
fn a_pipe_is_no_dag_file() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("dag.yaml");
    let made = Process::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (code, _, stderr) = outcome(longshore().arg("run").arg(&pipe));
    assert_eq!(code, 1);
    assert!(stderr.contains("it is no regular file"), "{stderr}");
}

/// Makes a data directory unusable in one way.
type Damage = fn(&Path);

#[test]
fn a_data_directory_that_cannot_be_used_is_named_with_the_reason() {
    let cases: [(&str, Damage, &str, &str); 5] = [
        (
            "a file",
            |data| {
                fs::remove_dir_all(data).unwrap();
                fs::write(data, "").unwrap();
            },
            "error[LS1701]: the data directory ",
            "File exists",
        ),
        (
            "damaged database",
            |data| fs::write(data.join("longshore.db"), [b'x'; 8_192]).unwrap(),
            "error[LS1704]: ",
            "longshore.db is damaged: ",
        ),
        (
            "database is a folder",
            |data| {
                fs::remove_file(data.join("longshore.db")).unwrap();
                fs::create_dir(data.join("longshore.db")).unwrap();
            },
            "error[LS1704]: ",
            "must be a file",
        ),
        (
            "broken image map",
            |data| fs::write(data.join("images.yaml"), "garbage").unwrap(),
            "error[LS1902]: the process node cannot start",
            "images.yaml is not valid",
        ),
        (
            "broken storage file",
            |data| fs::write(data.join("storage.yaml"), "type: redis").unwrap(),
            "error[LS1902]: the storage of tasks cannot start",
            "storage.yaml is not valid",
        ),
    ];
    for (name, damage, message, cause) in cases {
        let folder = TempDir::new().unwrap();
        let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
        fs::write(&dag, OK).unwrap();
        let mut command = longshore();
        command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
        assert_eq!(outcome(&mut command).0, 0, "{name}: the first run");
        damage(&data);
        let (exit, _, stderr) = outcome(&mut command);
        assert_eq!(exit, 1, "{name}: {stderr}");
        for expected in [message, cause, "help: "] {
            assert!(stderr.contains(expected), "{name}: {expected}\n{stderr}");
        }
    }
}

#[test]
fn a_run_is_not_gone_on_with_under_another_version_of_its_file() {
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, OK).unwrap();
    let mut command = longshore();
    command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
    let (_, first, _) = outcome(command.args(["-o", "name"]));
    let run_id = first.trim().strip_prefix("run/").unwrap();
    fs::write(&dag, OK.replace("true\"]", "false\"]")).unwrap();
    command.args(["--resume", run_id]);
    let (exit, _, stderr) = outcome(&mut command);
    assert_eq!(exit, 1, "{stderr}");
    assert!(
        stderr.starts_with(&format!("error[LS1384]: run {run_id} was started with")),
        "{stderr}"
    );
    assert!(stderr.contains("help: undo the change"), "{stderr}");
}
