//! Errors as a person and as a program reads them. The chain of causes is printed once, here.

use std::{error::Error, fmt::Write};

use serde_json::{Value, json};

use crate::{
    dag_file::{self, Problem},
    error::CliError,
    output::{BAD, DIM},
    printable::lines,
};

/// For a person: the sentence with its code, the causes, what to do. Any of them may quote a file, a task or a server.
pub(crate) fn text(error: &CliError) -> String {
    let mut text = String::new();
    if let CliError::InvalidDag {
        problems,
        text: source,
        ..
    } = error
    {
        text.push_str(&dag_file::report(problems, source));
    }
    text.push_str(&headline(error.code(), &error.to_string()));
    for cause in causes(error) {
        let _ = write!(text, "\n  {DIM}caused by:{DIM:#} {}", lines(&cause));
    }
    let _ = write!(text, "\n{DIM}help:{DIM:#} {}", lines(&error.help()));
    text
}

/// `error[LS1701]: the data directory …`. Colours are the program's own: those of the message would hide others.
pub(crate) fn headline(code: &str, message: &str) -> String {
    format!("{BAD}error[{code}]{BAD:#}: {}", lines(message))
}

/// The error as JSON, for programs.
pub(crate) fn object(error: &CliError) -> Value {
    let problems: &[Problem] = if let CliError::InvalidDag { problems, .. } = error {
        problems
    } else {
        &[]
    };
    let mut object = json!({
        "kind": "Error",
        "code": error.code(),
        "message": error.to_string(),
        "causes": causes(error),
        "help": error.help(),
        "exitCode": error.exit().code(),
    });
    if !problems.is_empty() {
        object["problems"] = problems.iter().map(dag_file::object).collect();
    }
    object
}

fn causes(error: &CliError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}
