//! The house rules that no compiler checks. Each rule is a pure function from the sources to what breaks it.

use std::{fmt, process::ExitCode};

use anyhow::Result;

use crate::repository::{self, Source};

mod clients;
mod edges;
mod examples;
mod files;
mod floors;
mod literals;
mod observed;
mod orphans;
mod purity;
mod size;
mod styles;
mod words;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(source: &Source, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: source.path.clone(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Checks everything and prints what was found.
pub(crate) fn run() -> Result<ExitCode> {
    let sources = repository::sources()?;
    for note in size::notes(&sources) {
        println!("note: {note}");
    }
    let findings = check(&sources)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} files, {} findings", sources.len(), findings.len());
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn check(sources: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    findings.extend(literals::check(sources));
    findings.extend(purity::check(sources));
    findings.extend(observed::check(sources));
    findings.extend(orphans::check(sources));
    findings.extend(clients::check(sources));
    findings.extend(files::check(sources));
    findings.extend(floors::check(sources));
    findings.extend(examples::check(sources));
    findings.extend(size::check(sources));
    findings.extend(styles::check(sources));
    findings.extend(words::check(sources));
    findings.extend(edges::check(&edges::of_workspace()?));
    Ok(findings)
}

/// Sources for the rules' own tests.
#[cfg(test)]
fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    files
        .iter()
        .map(|(path, text)| Source {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect()
}

/// `path:line` of each finding.
#[cfg(test)]
fn places(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = check(&repository::sources().unwrap()).unwrap();
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
