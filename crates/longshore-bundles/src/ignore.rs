//! `.airflowignore`: which files of a bundle are no part of it. Pure.
//!
//! Both syntaxes follow Airflow 3.3 (`file_discovery.py`): rules of a folder hold for all folders below; in the glob
//! syntax the last rule that matches decides, and a folder that is ignored is not entered, so nothing below it can be
//! taken back; a regular expression is searched in the path from the root, whichever folder it stands in.
//! Where Airflow refuses a whole folder because of one line, the line is left out and reported.

mod glob;
mod regexp;

use std::{fmt, str::FromStr};

use thiserror::Error;

use glob::GlobRule;
use regexp::RegexpRule;

/// The name of the files with rules.
pub const IGNORE_FILE: &str = ".airflowignore";

/// `[core] dag_ignore_file_syntax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoreSyntax {
    /// As in `.gitignore`.
    #[default]
    Glob,
    /// Regular expressions, without look-around and back references: their time is linear in the path.
    Regexp,
}

/// A syntax that does not exist.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("expected `glob` or `regexp` as the syntax of .airflowignore, found {0:?}")]
pub struct UnknownSyntax(String);

impl FromStr for IgnoreSyntax {
    type Err = UnknownSyntax;

    fn from_str(text: &str) -> Result<Self, UnknownSyntax> {
        match text {
            "" | "glob" => Ok(Self::Glob),
            "regexp" => Ok(Self::Regexp),
            other => Err(UnknownSyntax(other.to_owned())),
        }
    }
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLine {
    /// From 1.
    pub line: usize,
    /// What stands there, without its comment.
    pub text: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} `{}`: {}", self.line, self.text, self.why)
    }
}

/// The rules that hold in one folder: those of the folders above it, and then its own.
#[derive(Clone, Debug)]
pub struct Rules(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Glob(Vec<GlobRule>),
    Regexp(Vec<RegexpRule>),
}

impl Rules {
    /// No rules, as above the root.
    #[must_use]
    pub fn none(syntax: IgnoreSyntax) -> Self {
        Self(match syntax {
            IgnoreSyntax::Glob => Kind::Glob(Vec::new()),
            IgnoreSyntax::Regexp => Kind::Regexp(Vec::new()),
        })
    }

    /// These rules and those of an ignore file in `folder` (relative to the root, empty for the root itself), and the
    /// lines that are left out.
    #[must_use]
    pub fn with(&self, folder: &str, text: &str) -> (Self, Vec<InvalidLine>) {
        let mut rules = self.clone();
        let mut invalid = Vec::new();
        for (index, line) in lines(text).enumerate() {
            let pattern = without_comment(line);
            if pattern.is_empty() {
                continue;
            }
            let added = match &mut rules.0 {
                Kind::Glob(rules) => {
                    GlobRule::compile(pattern, folder).map(|rule| rules.extend(rule))
                }
                Kind::Regexp(rules) => RegexpRule::compile(pattern).map(|rule| rules.push(rule)),
            };
            if let Err(why) = added {
                invalid.push(InvalidLine {
                    line: index + 1,
                    text: pattern.to_owned(),
                    why,
                });
            }
        }
        (rules, invalid)
    }

    /// Whether a file or folder below the folder of these rules is ignored. The path is relative to the root.
    #[must_use]
    pub fn ignores(&self, path: &str, entry: Entry) -> bool {
        match &self.0 {
            Kind::Glob(rules) => rules.iter().fold(false, |is_ignored, rule| {
                rule.verdict(path, entry).unwrap_or(is_ignored)
            }),
            Kind::Regexp(rules) => rules.iter().any(|rule| rule.matches(path)),
        }
    }
}

/// What a path leads to, symbolic links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder,
    /// Anything else.
    File,
}

/// Lines as Python reads them from a text file: all three line ends are one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.split('\r')
    })
}

/// A comment begins at any `#`; the white space before it belongs to it. There is no escape.
fn without_comment(line: &str) -> &str {
    match line.split_once('#') {
        Some((before, _)) => before.trim_end(),
        None => line,
    }
}

#[cfg(test)]
mod tests;
