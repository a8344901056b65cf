//! The shell programs of the quickstart, by themselves: what a task gets, without what starts it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::repository;

/// The true numbers, computed from the raw file with another program.
pub(crate) const REPORT: &str = "\
species,count,mean_mass_g,median_mass_g,mean_flipper_mm
Gentoo,123,5076.0,5000,217.2
Chinstrap,68,3733.1,3700,195.8
Adelie,151,3700.7,3700,190.0
";

/// The directories that a task sees.
struct Sandbox {
    files: PathBuf,
    workspace: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        Self {
            files: repository().join("examples/quickstart"),
            workspace: TempDir::new().unwrap(),
        }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .arg(repository().join("examples/quickstart").join(program))
            .args(args)
            .env("LONGSHORE_FILES", &self.files)
            .env("LONGSHORE_WORKSPACE", self.workspace.path())
            .env("LONGSHORE_RETURN", self.result_path())
            .env("LONGSHORE_TRY_NUMBER", "1");
        command
    }

    fn result_path(&self) -> PathBuf {
        self.workspace.path().join("result.json")
    }

    fn result(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.result_path()).unwrap()).unwrap()
    }

    fn has(&self, file: &str) -> bool {
        self.workspace.path().join(file).exists()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.workspace.path().join(file)).unwrap()
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `{{ xcom.TASK.field }}` makes of a summary, as `dag.yaml` joins it.
fn joined(summary: &Value) -> String {
    ["count", "mean_mass_g", "median_mass_g", "mean_flipper_mm"]
        .map(|field| summary[field].to_string())
        .join(",")
}

#[test]
fn the_report_has_the_true_numbers() {
    let sandbox = Sandbox::new();
    succeed(&mut sandbox.command("clean.sh", &[]));
    assert_eq!(
        sandbox.result(),
        serde_json::json!({"rows": 344, "kept": 342, "dropped": 2})
    );
    let mut merge = sandbox.command("merge.sh", &[]);
    for species in ["adelie", "chinstrap", "gentoo"] {
        succeed(&mut sandbox.command("split.sh", &[species]));
        succeed(&mut sandbox.command("summarise.sh", &[species]));
        merge.env(species.to_uppercase(), joined(&sandbox.result()));
    }
    succeed(merge.env("TITLE", "Penguins"));
    assert_eq!(sandbox.read("report.csv"), REPORT);
    insta::assert_snapshot!(sandbox.read("report.md"));
}

#[test]
fn the_first_try_of_one_task_fails_and_the_second_does_not() {
    let sandbox = Sandbox::new();
    succeed(&mut sandbox.command("clean.sh", &[]));
    succeed(&mut sandbox.command("split.sh", &["gentoo"]));
    let mut summarise = sandbox.command("summarise.sh", &["gentoo"]);
    summarise.env("FAIL_FIRST_TRY", "yes");
    let first = summarise.output().unwrap();
    assert_eq!(first.status.code(), Some(75));
    assert!(
        stderr(&first).starts_with("summarise: no answer"),
        "{}",
        stderr(&first)
    );
    succeed(summarise.env("LONGSHORE_TRY_NUMBER", "2"));
    assert_eq!(sandbox.result()["count"], 123);
}

#[test]
fn broken_data_end_the_clean_task_with_a_message() {
    let raw =
        fs::read_to_string(repository().join("examples/quickstart/penguins-raw.csv")).unwrap();
    let short_row = raw.replacen("PAL0708,3,", "PAL0708,", 1);
    for (name, data, expected) in [
        (
            "column",
            raw.replace("Body Mass (g)", "Mass"),
            "has no column \"Body Mass (g)\"",
        ),
        (
            "mass",
            raw.replacen(",3800,", ",heavy,", 1),
            "line 3: \"Body Mass (g)\" is \"heavy\", expected a number or NA",
        ),
        ("fields", short_row, "line 4: has 16 fields, expected 17"),
        (
            "quote",
            raw.replacen("Egg Stage\"", "Egg Stage", 1),
            "line 2: a quoted field does not end",
        ),
        (
            "header",
            raw.lines().next().unwrap().to_owned(),
            "has no rows",
        ),
        ("empty", String::new(), "has no rows"),
    ] {
        let files = TempDir::new().unwrap();
        fs::write(files.path().join("penguins-raw.csv"), data).unwrap();
        let sandbox = Sandbox {
            files: files.path().to_owned(),
            ..Sandbox::new()
        };
        let output = sandbox.command("clean.sh", &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}");
        let message = format!("clean: penguins-raw.csv {expected}");
        assert!(
            stderr(&output).starts_with(&message),
            "{name}: {}",
            stderr(&output)
        );
        assert!(
            !sandbox.has("clean.csv"),
            "{name}: a broken table was left behind"
        );
    }
}

#[test]
fn windows_line_ends_are_read() {
    let raw =
        fs::read_to_string(repository().join("examples/quickstart/penguins-raw.csv")).unwrap();
    let files = TempDir::new().unwrap();
    fs::write(
        files.path().join("penguins-raw.csv"),
        raw.replace('\n', "\r\n"),
    )
    .unwrap();
    let sandbox = Sandbox {
        files: files.path().to_owned(),
        ..Sandbox::new()
    };
    succeed(&mut sandbox.command("clean.sh", &[]));
    assert_eq!(sandbox.result()["kept"], 342);
    assert!(!sandbox.read("clean.csv").contains('\r'));
}

#[test]
fn a_species_that_is_not_there_is_an_error() {
    let sandbox = Sandbox::new();
    succeed(&mut sandbox.command("clean.sh", &[]));
    let output = sandbox.command("split.sh", &["emperor"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!Path::new(&sandbox.workspace.path().join("emperor.csv")).exists());
}
