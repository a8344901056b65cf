//! `longshore dags lint PATH...`.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use clap::Args;
use longshore_dags::folder;
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
    for found in &files {
        let path = &found.path;
        let file = match found.read() {
            Ok(file) => file,
            Err(error) => {
                if is_text {
                    output::error(&error);
                }
                problems.push(unreadable(path, &error));
                continue;
            }
        };
        if let Err(mistakes) = file.lint() {
            // In a folder of examples or manifests there may be others than DAG files.
            if let Some(kind) = file.kubernetes_kind().filter(|_| found.folder.is_some()) {
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
                output::note(dag_file::report(&mistakes, &file.text).trim_end());
            }
            problems.extend(mistakes.iter().map(dag_file::object));
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

/// A file to check.
struct Found<'a> {
    path: PathBuf,
    /// The folder that it was found in; `None` for one that the user has named.
    folder: Option<&'a Path>,
}

impl Found<'_> {
    /// Reads it as a service does, which follows no link out of its folder.
    fn read(&self) -> Result<DagFile, CliError> {
        if let Some(folder) = self.folder {
            let real = folder::real_path(folder, &self.path);
            real.map_err(|source| CliError::in_file(self.path.clone(), source))?;
        }
        DagFile::read(&self.path)
    }
}

/// The path itself, or what a service finds in this folder, in the order of the names.
fn dag_files(path: &Path) -> Result<Vec<Found<'_>>, CliError> {
    if !path.is_dir() {
        return Ok(vec![Found {
            path: path.to_owned(),
            folder: None,
        }]);
    }
    let files = folder::dag_files(path);
    let files = files.map_err(|source| CliError::in_file(path.to_owned(), source))?;
    if files.is_empty() {
        return Err(CliError::NoDagFiles {
            path: path.to_owned(),
        });
    }
    let found = |file| Found {
        path: file,
        folder: Some(path),
    };
    Ok(files.into_iter().map(found).collect())
}
