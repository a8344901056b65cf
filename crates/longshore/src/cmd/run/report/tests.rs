use std::{fs, path::PathBuf};

use super::*;
use crate::cmd::run::{
    fixtures::{end, task},
    resume::quoted,
};

fn in_data() -> DataDirArgs {
    DataDirArgs {
        data_dir: Some(PathBuf::from("/my data")),
        ephemeral: false,
    }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn a_run_that_succeeded_says_where_its_outputs_are() {
    let tasks = ["extract", "transform_everything", "load"];
    let tasks = tasks.map(|id| task(id, Some(TaskState::Success))).into();
    let end = end(RunState::Success, tasks);
    let report = Report {
        end: &end,
        outcome: Outcome::Ended,
        file: Path::new("dag.yaml"),
        data_dir: &in_data(),
        cluster: &ClusterArgs::default(),
    };
    assert_eq!(report.exit(), Exit::Success);
    assert_eq!(report.trouble(), None);
    insta::assert_snapshot!(report.text(Detail::Short));
    insta::assert_json_snapshot!(report.object());
}

#[test]
fn a_run_that_failed_says_which_task_why_and_where_its_log_is() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("0.log");
    fs::write(
        &log,
        "2026-11-21T10:00:00.1Z stderr F clean: no column \"Mass\"\n",
    )
    .unwrap();
    let mut failed = task("extract", Some(TaskState::Failed));
    failed.log = Some(log.clone());
    let tasks = vec![failed, task("load", Some(TaskState::UpstreamFailed))];
    let end = end(RunState::Failed, tasks);
    let report = Report {
        end: &end,
        outcome: Outcome::Ended,
        file: Path::new("my dags/dag.yaml"),
        data_dir: &in_data(),
        cluster: &ClusterArgs::default(),
    };
    assert_eq!(report.exit(), Exit::RunFailed);
    let trouble = plain(&report.trouble().unwrap());
    insta::assert_snapshot!(trouble.replace(log.to_str().unwrap(), "[log]"));
}

#[test]
fn a_run_that_was_stopped_says_how_to_go_on() {
    let end = end(
        RunState::Running,
        vec![task("extract", Some(TaskState::Queued))],
    );
    let report = |outcome, data_dir| {
        let file = Path::new("my dags/dag.yaml");
        let report = Report {
            end: &end,
            outcome,
            file,
            data_dir,
            cluster: &ClusterArgs::default(),
        };
        if outcome != Outcome::Ended {
            let text = plain(&report.text(Detail::Short));
            assert!(text.contains("  interrupted  1 task: 1 queued"), "{text}");
        }
        (report.exit(), plain(&report.trouble().unwrap()))
    };
    let kept = in_data();
    let ephemeral = DataDirArgs {
        data_dir: None,
        ephemeral: true,
    };
    let command = "longshore run 'my dags/dag.yaml' --resume manual__1 --data-dir '/my data'";
    assert_eq!(
        report(Outcome::Interrupted, &kept),
        (
            Exit::Interrupted,
            format!("stopped; nothing is lost\nhelp: go on with: {command}")
        )
    );
    assert_eq!(
        report(Outcome::TimedOut, &kept),
        (
            Exit::TimedOut,
            format!(
                "error[LS1381]: run etl/manual__1 did not end in time\nhelp: go on with: {command}"
            )
        )
    );
    let (exit, text) = report(Outcome::Interrupted, &ephemeral);
    assert_eq!(exit, Exit::Interrupted);
    assert!(text.ends_with("start again without it"), "{text}");
}

#[test]
fn many_failed_tasks_are_counted() {
    let tasks = (0..200)
        .map(|i| task(&format!("task_{i}"), Some(TaskState::Failed)))
        .collect();
    let end = end(RunState::Failed, tasks);
    let report = Report {
        end: &end,
        outcome: Outcome::Ended,
        file: Path::new("dag.yaml"),
        data_dir: &in_data(),
        cluster: &ClusterArgs::default(),
    };
    let trouble = report.trouble().unwrap();
    assert!(trouble.lines().count() < 20, "{trouble}");
    assert!(trouble.contains("… and 190 more failed tasks"));
    assert!(report.text(Detail::Short).lines().count() < 10);
}

#[test]
fn what_became_of_a_pod_has_a_code() {
    for (reason, exit_code, code) in [
        (Some("StartError"), Some(128), "LS1203"),
        (Some("Error"), Some(127), "LS1203"),
        (Some("OOMKilled"), Some(137), "LS1204"),
        (Some("DeadlineExceeded"), None, "LS1205"),
        (Some("LaunchBuildFailed"), None, "LS1206"),
        (Some("Error"), Some(1), "LS1201"),
        (Some("PodDeleted"), None, "LS1202"),
    ] {
        let failure = Failure {
            message: String::new(),
            reason: reason.map(str::to_owned),
            exit_code,
            container: None,
        };
        assert_eq!(failure_code(&failure), code, "{reason:?} {exit_code:?}");
    }
}

#[test]
fn paths_are_quoted_for_the_shell() {
    for (path, expected) in [
        ("a/b-1.yaml", "a/b-1.yaml"),
        ("my dag.yaml", "'my dag.yaml'"),
        ("it's", r"'it'\''s'"),
        ("", "''"),
        ("$HOME", "'$HOME'"),
    ] {
        assert_eq!(quoted(Path::new(path)), expected);
    }
}
