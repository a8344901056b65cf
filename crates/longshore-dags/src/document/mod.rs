//! Container DAGs in YAML: from the text of a file to a validated [`Dag`].
//!
//! Every word that Airflow has for a thing is Airflow's. Reading never stops at the first mistake: all of them are
//! reported together, each with its place, the name of the thing and the remedy. Only a text that is no YAML at all
//! ends earlier.
//!
//! [`parse`] reads the text into a tree that knows its places (`node`), [`Document::validate`] reads the fields
//! (`dag`, `schedule`, `task`, `pod_override`), the files beside the DAG (`files`), and what only shows in the whole (`check`:
//! unknown tasks, cycles, templates).

mod check;
mod dag;
mod duration;
mod files;
mod node;
mod plugin;
mod pod_override;
mod pools;
mod problem;
mod reader;
mod schedule;
mod suggest;
mod task;
mod text;

use std::io;

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter, budget::BudgetBreach};

pub use pools::{POOL_FILES, has_pools, is_pool_file, parse_pools};
pub use problem::{Code, Problem, Problems};
pub use text::{MAX_DOCUMENT_BYTES, kubernetes_kind, read_file, read_text};

use crate::model::Dag;
use node::{Node, Span};
use reader::Reader;

/// A DAG file that is YAML. Whether it is a DAG says [`Document::validate`].
#[derive(Debug)]
pub struct Document {
    file: String,
    text: String,
    root: Node,
    problems: Vec<Problem>,
}

/// Reads the text of a DAG file. `file_name` is for messages.
///
/// # Errors
/// The text is no YAML, or goes beyond the limits: 3 MiB, 64 levels, 100,000 nodes through aliases.
pub fn parse(file_name: &str, text: &str) -> Result<Document, Problems> {
    let fail = |span, message, help: &str| {
        let mut reader = Reader::new(file_name, text, Vec::new());
        reader.report(Code::Syntax, span, message, help);
        Problems::of(reader.into_problems())
    };
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = text::too_long(text.len());
        let help = "move data into files of their own and list them in `files`";
        return Err(fail(start_of_text(), message, help));
    }
    let (root, duplicate) = node::read(text).map_err(|error| {
        let (message, help) = explained(&error);
        fail(place(&error, text), message, help)
    })?;
    Ok(Document {
        file: file_name.to_owned(),
        text: text.to_owned(),
        problems: duplicate_keys(file_name, text, &root, duplicate.as_ref()),
        root,
    })
}

impl Document {
    /// Turns the document into a DAG, with the contents of the files that it lists.
    ///
    /// `read_file` gets each path as it is written, relative and without `..`; it must refuse (an error) whatever lies
    /// outside the folder of the DAG file, by way of symbolic links too.
    ///
    /// # Errors
    /// Everything that is wrong with the file, by position.
    pub fn validate(
        self,
        read_file: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<Dag, Problems> {
        let mut reader = Reader::new(&self.file, &self.text, self.problems);
        let dag = dag::read(&mut reader, &self.root, read_file);
        let problems = reader.into_problems();
        match dag {
            Some(dag) if problems.is_empty() => Ok(dag),
            Some(_) | None => Err(Problems::of(problems)),
        }
    }
}

fn duplicate_keys(file: &str, text: &str, root: &Node, first: Option<&Error>) -> Vec<Problem> {
    let mut reader = Reader::new(file, text, Vec::new());
    let mut report = |name: &str, span: Span| {
        let message = format!("key `{}` occurs twice here", suggest::quoted(name));
        let help = "remove one of the two, or give it another name";
        reader.report(Code::DuplicateKey, span, message, help);
    };
    // Only the parser finds keys that are equal as numbers (`1` and `0x1`).
    if let Some(error @ Error::DuplicateMappingKey { key, .. }) = first {
        report(key.as_deref().unwrap_or_default(), place(error, text));
        for key in node::duplicates(root) {
            report(&key.text, key.span);
        }
    }
    let mut problems = reader.into_problems();
    problems.sort_by_key(|problem| problem.offset);
    problems.dedup_by_key(|problem| problem.offset);
    problems
}

fn start_of_text() -> Span {
    Span {
        offset: 0,
        len: 0,
        line: 1,
        column: 1,
    }
}

/// Where the parser met an error; the end of the text where it does not say.
fn place(error: &Error, text: &str) -> Span {
    let mut span = error.location().map_or_else(start_of_text, Span::from);
    span.offset = text.floor_char_boundary(span.offset);
    span.len = text.floor_char_boundary(span.offset.saturating_add(span.len)) - span.offset;
    span
}

/// What is wrong, and what to do about it.
fn explained(error: &Error) -> (String, &'static str) {
    let error = error.without_snippet();
    if let Error::Budget { breach, .. } = error {
        return if matches!(breach, BudgetBreach::Documents { .. }) {
            (
                "a DAG file has one YAML document, this one has several".to_owned(),
                "put each DAG into a file of its own, without `---` between them",
            )
        } else if matches!(breach, BudgetBreach::Depth { .. }) {
            (
                format!("a DAG file has at most {} levels", node::MAX_DEPTH),
                "a list or a mapping is nested in too many others: flatten it",
            )
        } else {
            (
                "the YAML is larger than a DAG can be".to_owned(),
                "move data into files of their own and list them in `files`",
            )
        };
    }
    let text = UserMessageFormatter.format_message(error);
    (
        format!("not readable as YAML: {}", node::shortened_to(&text, 300)),
        "correct the YAML here; a text with `: `, `#`, `{` or `*` in it needs quotes",
    )
}

#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod tests;
