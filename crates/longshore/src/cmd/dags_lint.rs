//! `longshore dags lint PATH...`.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use longshore_dags::document::is_pool_file;
use serde_json::{Value, json};

use crate::{
    cli::{Format, Globals, help_end},
    dag_file::{self, DagFile},
    error::{CliError, counted},
    exit::Exit,
    output,
};

/// Check DAG files without running them
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore dags lint dags/ examples/quickstart/dag.yaml"))]
pub(crate) struct LintArgs {
    /// DAG files, folders with DAG files (.yaml, .yml), or - for stdin
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Checks the files.
pub(crate) fn lint(args: &LintArgs, globals: &Globals) -> Result<Exit, CliError> {
    let mut files = Vec::new();
    for path in &args.paths {
        files.extend(dag_files(path)?);
    }
    let mut n_files = files.len();

    let is_text = !is_structured(globals.output);
    let mut problems: Vec<Value> = Vec::new();
    for path in &files {
        let file = match DagFile::read(path) {
            Ok(file) => file,
            Err(error) => {
                if is_text {
                    output::error(&error);
                }
                problems.push(unreadable(path, &error));
                continue;
            }
        };
        if let Err(found) = file.lint() {
            // In a folder of examples or manifests there may be others than DAG files.
            if let Some(kind) = file
                .kubernetes_kind()
                .filter(|_| !args.paths.contains(path))
            {
                n_files -= 1;
                if is_text && !globals.quiet {
                    let path = path.display();
                    output::note(&format!(
                        "skipped {path}: it is a {kind} for kubectl, no DAG"
                    ));
                }
                continue;
            }
            if is_text {
                output::note(dag_file::report(&found, &file.text).trim_end());
            }
            problems.extend(found.iter().map(dag_file::object));
        }
    }

    let list = || json!({"apiVersion": "v1", "kind": "List", "items": problems});
    match globals.output {
        Format::Json => output::json(&list()),
        Format::Yaml => output::yaml(&list()),
        Format::Name => {}
        Format::Table | Format::Wide if globals.quiet => {}
        Format::Table | Format::Wide => output::line(&format!(
            "{}, {}",
            counted(n_files, "file"),
            counted(problems.len(), "problem")
        )),
    }
    Ok(if problems.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// A file that cannot be read, as a problem of the list.
fn unreadable(path: &Path, error: &CliError) -> Value {
    let why = error.source().map(|why| format!(": {why}"));
    json!({
        "code": error.code(),
        "file": path,
        "message": format!("{error}{}", why.unwrap_or_default()),
        "help": error.help(),
    })
}

fn is_structured(format: Format) -> bool {
    matches!(format, Format::Json | Format::Yaml)
}

/// The path itself, or the DAG files and those of pools below it in the order of their names.
fn dag_files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |source| CliError::in_file(folder.clone(), source);
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let is_dag = path
                .extension()
                .is_some_and(|end| end == "yaml" || end == "yml");
            if path.is_dir() {
                folders.push(path);
            } else if is_dag || is_pool_file(&path) {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        return Err(CliError::NoDagFiles {
            path: path.to_owned(),
        });
    }
    files.sort();
    Ok(files)
}
