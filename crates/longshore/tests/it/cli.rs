//! Help, version, completion, usage.

use serde_json::Value;

use crate::{longshore, outcome, repository};

const COMMANDS: &[&[&str]] = &[
    &[],
    &["run"],
    &["standalone"],
    &["controller"],
    &["controller", "rbac"],
    &["controller", "crd"],
    &["uninstall"],
    &["dags"],
    &["dags", "lint"],
    &["dags", "list"],
    &["dags", "show"],
    &["dags", "trigger"],
    &["dags", "pause"],
    &["dags", "unpause"],
    &["runs"],
    &["runs", "list"],
    &["runs", "get"],
    &["runs", "watch"],
    &["runs", "cancel"],
    &["runs", "retry"],
    &["tasks"],
    &["tasks", "list"],
    &["tasks", "get"],
    &["tasks", "clear"],
    &["actions"],
    &["actions", "list"],
    &["actions", "get"],
    &["actions", "watch"],
    &["actions", "abort"],
    &["actions", "run"],
    &["pods"],
    &["pods", "list"],
    &["pods", "get"],
    &["pods", "explain"],
    &["logs"],
    &["explain"],
    &["completion"],
    &["version"],
];

#[test]
fn help_fits_the_first_screen_and_has_an_example_and_the_exit_codes() {
    for command in COMMANDS {
        for flag in ["-h", "--help"] {
            let (code, stdout, stderr) = outcome(longshore().args(*command).arg(flag));
            assert_eq!((code, stderr.as_str()), (0, ""), "{command:?}");
            let n_lines = stdout.lines().count();
            assert!(
                n_lines < 25,
                "{command:?} {flag}: {n_lines} lines\n{stdout}"
            );
            assert!(
                stdout.contains("Exit codes: 0 success"),
                "{command:?}\n{stdout}"
            );
            assert!(stdout.contains("Example:\n  "), "{command:?}\n{stdout}");
        }
    }
}

#[test]
fn help_of_the_whole_command() {
    let (_, stdout, _) = outcome(longshore().arg("--help"));
    insta::assert_snapshot!(stdout);
}

#[test]
fn help_of_run() {
    let (_, stdout, _) = outcome(longshore().args(["run", "--help"]));
    insta::assert_snapshot!(stdout);
}

#[test]
fn a_wrong_command_line_exits_2_and_says_so_on_stderr() {
    for args in [
        &["rum"][..],
        &["run"],
        &["run", "dag.yaml", "--parallelism", "0"],
        &["run", "dag.yaml", "--param", "x"],
        &["run", "dag.yaml", "--timeout", "soon"],
        &["run", "dag.yaml", "--ephemeral", "--resume", "r"],
        &["version", "-o", "xml"],
    ] {
        let (code, stdout, stderr) = outcome(longshore().args(args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}");
        assert!(stderr.starts_with("error: "), "{args:?}\n{stderr}");
    }
}

#[test]
fn a_wrong_command_line_is_an_object_for_a_program() {
    for args in [
        &["rum", "-o", "json"][..],
        &["run", "--output=json"],
        &["runs", "list", "--limit", "0", "-ojson"],
    ] {
        let (code, stdout, stderr) = outcome(longshore().args(args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}");
        let error: Value = serde_json::from_str(&stderr).unwrap();
        assert_eq!(error["code"], "LS1009", "{args:?}: {stderr}");
        assert_eq!(error["exitCode"], 2);
        let help = error["help"].as_str().unwrap();
        assert!(help.contains("try '--help'"), "{args:?}: {stderr}");
    }
    let (_, _, stderr) = outcome(longshore().args(["rum", "-o", "json"]));
    let error: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(error["message"], "unrecognized subcommand 'rum'");
    let help = error["help"].as_str().unwrap();
    assert!(
        help.starts_with("tip: some similar subcommands exist: 'runs', 'run'; Usage: "),
        "{help}"
    );
}

#[test]
fn flags_that_change_nothing_for_the_roles_are_named() {
    let rbac = |arguments: &[&str]| {
        let (code, stdout, stderr) =
            outcome(longshore().args(["controller", "rbac"]).args(arguments));
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        (stdout, stderr)
    };
    for (plain, flags) in [
        (&["--enable", "webhook"][..], &["--webhook-on-loopback"][..]),
        (
            &["--enable", "podops", "--without-policies"][..],
            &["--webhook-on-loopback"][..],
        ),
        (
            &["--enable", "dags"][..],
            &["--secrets-namespace", "flyte"][..],
        ),
    ] {
        let (manifest, _) = rbac(plain);
        let (same, stderr) = rbac(&[plain, flags].concat());
        assert_eq!(same, manifest, "{plain:?}");
        let note = format!("{} changes nothing ", flags[0]);
        assert!(stderr.contains(&note), "{plain:?}: {stderr}");
    }
    for used in [
        &["--enable", "podops", "--webhook-on-loopback"][..],
        &["--enable", "webhook", "--secrets-namespace", "flyte"],
    ] {
        let (_, stderr) = rbac(used);
        assert!(!stderr.contains("changes nothing"), "{used:?}: {stderr}");
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--webhook-address", "127.0.0.1:1", "--hold-deletes", "5s"];
    let (_, _, stderr) = outcome(
        longshore()
            .args(["controller", "--enable", "dags"])
            .args(arguments)
            .arg("--kubeconfig")
            .arg(folder.path().join("none"))
            .arg("--data-dir")
            .arg(folder.path()),
    );
    for flag in ["--webhook-address", "--hold-deletes"] {
        let note = format!("{flag} changes nothing without podops");
        assert!(stderr.contains(&note), "{stderr}");
    }
}

#[test]
fn version_has_every_format() {
    let version = env!("CARGO_PKG_VERSION");
    let (code, stdout, _) = outcome(longshore().arg("version"));
    assert_eq!(code, 0);
    assert!(stdout.starts_with(&format!("longshore {version} (Kubernetes API 1.34, ")));

    let (_, stdout, _) = outcome(longshore().args(["version", "-o", "json"]));
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(object["version"], version);

    let (_, stdout, _) = outcome(longshore().args(["version", "-o", "yaml"]));
    assert!(
        stdout.contains(&format!("version: \"{version}\"")),
        "{stdout}"
    );

    let (_, stdout, _) = outcome(longshore().args(["-o", "name", "version"]));
    assert_eq!(stdout.trim(), version);
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_default() {
    let is_json = |output: &str| serde_json::from_str::<Value>(output).is_ok();
    let (_, stdout, _) = outcome(longshore().arg("version").env("LONGSHORE_OUTPUT", "json"));
    assert!(is_json(&stdout), "{stdout}");
    let (_, stdout, _) = outcome(
        longshore()
            .args(["version", "-o", "table"])
            .env("LONGSHORE_OUTPUT", "json"),
    );
    assert!(!is_json(&stdout), "{stdout}");
}

#[test]
fn completion_knows_the_commands_of_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, stdout, stderr) = outcome(longshore().args(["completion", shell]));
        assert_eq!((code, stderr.as_str()), (0, ""), "{shell}");
        assert!(
            stdout.contains("explain") && stdout.contains("resume"),
            "{shell}"
        );
    }
}

#[test]
fn explain_prints_the_page_of_a_code() {
    let (code, stdout, _) = outcome(longshore().args(["explain", "ls1702"]));
    assert_eq!(code, 0);
    assert!(stdout.starts_with("# LS1702: the data directory is in use\n"));

    let (_, stdout, _) = outcome(longshore().args(["explain", "ls1702", "-o", "json"]));
    let page: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(page["code"], "LS1702");
    assert_eq!(page["title"], "the data directory is in use");
    for part in ["whatHappened", "whatToDo"] {
        let text = page[part].as_str().unwrap();
        assert!(text.len() > 20 && !text.contains("##"), "{text}");
    }

    let (code, stdout, stderr) = outcome(longshore().args(["explain", "LS1799"]));
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(
        stderr.contains("error[LS1006]: there is no error code LS1799"),
        "{stderr}"
    );
}

/// `/dev/full` refuses each write, as a full disk does.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    for args in [
        &["version"][..],
        &["--version"],
        &["--help"],
        &["runs", "--help"],
        &["explain", "LS1001"],
        &["explain", "LS1001", "-o", "json"],
        &["completion", "bash"],
        &["dags", "lint", "examples/quickstart/dag.yaml"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"))
            .args(args)
            .current_dir(repository())
            .stdout(full.unwrap())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("LS1010"), "{args:?}: {stderr}");
        assert!(stderr.contains("No space left"), "{args:?}: {stderr}");
    }
}
