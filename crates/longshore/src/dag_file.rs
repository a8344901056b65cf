//! DAG files: reading, checking, and showing what is wrong with them.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use longshore_dags::{document, folder::read_beside, model::Dag};
use serde_json::{Value, json};

pub(crate) use longshore_dags::document::Problem;

use crate::{
    error::CliError,
    output,
    printable::{lines, one_line},
};

/// A DAG file and its text.
#[derive(Debug)]
pub(crate) struct DagFile {
    /// The path as the user gave it.
    pub(crate) name: String,
    /// The text of the file.
    pub(crate) text: String,
    folder: PathBuf,
}

impl DagFile {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let text = if path == Path::new(STDIN) {
            document::read_text(io::stdin().lock())
        } else {
            document::read_file(path)
        };
        let text = text.map_err(|source| CliError::in_file(path.to_owned(), source))?;
        Ok(Self {
            name: path.display().to_string(),
            text,
            folder: match path.parent() {
                Some(folder) if folder != Path::new("") => folder.to_owned(),
                Some(_) | None => PathBuf::from("."),
            },
        })
    }

    /// Checks it, and the files beside it that it names.
    pub(crate) fn check(&self) -> Result<Dag, Vec<Problem>> {
        document::parse(&self.name, &self.text)
            .and_then(|document| document.validate(&mut |name| read_beside(&self.folder, name)))
            .map_err(|problems| problems.into_iter().collect())
    }

    /// Checks it as what it is in a DAG folder: pools, or a DAG.
    pub(crate) fn lint(&self) -> Result<(), Vec<Problem>> {
        if document::has_pools(Path::new(&self.name), &self.text) {
            let pools = document::parse_pools(&self.name, &self.text);
            return pools
                .map(drop)
                .map_err(|problems| problems.into_iter().collect());
        }
        self.check().map(drop)
    }

    /// The slots of the pools that its folder names, as in a DAG folder: the first file of pools counts.
    pub(crate) fn pools(&self) -> Result<BTreeMap<String, i64>, CliError> {
        for name in document::POOL_FILES {
            let path = self.folder.join(name);
            let text = match document::read_file(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(CliError::in_file(path, source)),
            };
            if !document::has_pools(&path, &text) {
                continue;
            }
            let file = path.display().to_string();
            let pools = document::parse_pools(&file, &text);
            return pools.map_err(|problems| CliError::InvalidDag {
                file,
                problems: problems.into_iter().collect(),
                text,
            });
        }
        Ok(BTreeMap::new())
    }

    /// The kind of the Kubernetes object that it is; `None` for anything else.
    pub(crate) fn kubernetes_kind(&self) -> Option<String> {
        document::kubernetes_kind(&self.text)
    }

    /// Checks it; problems are an error.
    pub(crate) fn into_dag(self) -> Result<Dag, CliError> {
        self.check().map_err(|problems| CliError::InvalidDag {
            file: self.name.clone(),
            problems,
            text: self.text.clone(),
        })
    }
}

/// The path that stands for standard input.
const STDIN: &str = "-";

/// All problems of a file, as a person reads them: with the lines in question on a terminal, one line each elsewhere.
pub(crate) fn report(problems: &[Problem], text: &str) -> String {
    let render = if output::stderr_is_terminal() {
        with_source
    } else {
        in_one_line
    };
    problems
        .iter()
        .map(|problem| render(problem, text))
        .collect()
}

/// `dag.yaml:3:5: LS1302: unknown field "comand" (help: did you mean "command"?)`
fn in_one_line(problem: &Problem, _text: &str) -> String {
    let Problem {
        code,
        file,
        line,
        column,
        message,
        help,
        ..
    } = problem;
    let report = format!("{file}:{line}:{column}: {code}: {message} (help: {help})");
    // What the file quotes has any characters.
    one_line(&report) + "\n"
}

/// The problem with the line that it is in.
fn with_source(problem: &Problem, text: &str) -> String {
    let span = problem.offset..problem.offset + problem.len;
    if text.get(span.clone()).is_none() {
        return in_one_line(problem, text);
    }
    // The renderer cleans the source, but not all that is written around it.
    let (file, message) = (one_line(&problem.file), lines(&problem.message));
    let help = lines(&problem.help);
    let snippet = Snippet::source(text)
        .path(&file)
        .annotation(AnnotationKind::Primary.span(span));
    let report = Level::ERROR
        .primary_title(&message)
        .id(problem.code.as_str())
        .element(snippet)
        .element(Level::HELP.message(&help));
    let renderer = if output::stderr_has_colors() {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let (width, _) = output::stderr_size();
    renderer.term_width(width).render(&[report]) + "\n\n"
}

/// A problem as a program reads it.
pub(crate) fn object(problem: &Problem) -> Value {
    json!({
        "code": problem.code.as_str(),
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "help": problem.help,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::os::unix::fs::symlink;

    use longshore_dags::document::Code;

    use super::*;

    #[test]
    fn a_person_sees_the_line_of_a_problem_even_at_the_end_of_the_file() {
        let text = "name: a\nschedule: 61 * * * *\n";
        let found = DagFile {
            name: "dag.yaml".to_owned(),
            text: text.to_owned(),
            folder: PathBuf::from("."),
        };
        let mut problem = found.check().unwrap_err().remove(0);
        problem.help = "write `61` as a minute".to_owned();
        for (offset, len) in [(text.find("61").unwrap(), 2), (text.len(), 0)] {
            (problem.offset, problem.len) = (offset, len);
            let report = with_source(&problem, text);
            for part in [problem.code.as_str(), "dag.yaml:", "write `61` as a minute"] {
                assert!(report.contains(part), "{report}");
            }
        }
        problem.offset = text.len() + 1;
        assert_eq!(with_source(&problem, text), in_one_line(&problem, text));
    }

    #[test]
    fn what_a_file_says_is_no_command_to_the_terminal_that_shows_its_problems() {
        let text = "name: a\nschedule: \u{1b}[2J\n";
        let escapes = "p\u{1b}[31mZZ\u{1b}]52;c;aGk=\u{7}\u{202e}";
        let problem = Problem {
            code: Code::InvalidValue,
            file: format!("{escapes}.yaml"),
            line: 2,
            column: 11,
            offset: text.find('\u{1b}').unwrap(),
            len: 1,
            message: format!("`schedule` is {escapes}"),
            help: format!("not {escapes}"),
        };
        for report in [with_source(&problem, text), in_one_line(&problem, text)] {
            let own = anstream::adapter::strip_str(&report).to_string();
            for part in ["pZZ.yaml", "`schedule` is pZZ", "not pZZ"] {
                assert!(own.contains(part), "{report:?}");
            }
            for foreign in ["[31mZZ", "\u{1b}[2J", "\u{1b}]", "\u{7}", "\u{202e}"] {
                assert!(!report.contains(foreign), "{report:?}");
            }
        }
    }

    #[test]
    fn files_beside_a_dag_do_not_lead_out_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let dags = folder.path().join("dags");
        fs::create_dir(&dags).unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        fs::write(dags.join("data.csv"), "a,b").unwrap();
        symlink("../secret", dags.join("link.csv")).unwrap();
        symlink("data.csv", dags.join("inside.csv")).unwrap();
        assert_eq!(read_beside(&dags, "data.csv").unwrap(), b"a,b");
        assert_eq!(read_beside(&dags, "inside.csv").unwrap(), b"a,b");
        for name in ["link.csv", "../secret"] {
            let refused = read_beside(&dags, name).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert_eq!(
            read_beside(&dags, "missing").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
