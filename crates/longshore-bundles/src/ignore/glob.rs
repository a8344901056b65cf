//! Rules in the syntax of `.gitignore`, as Airflow reads them with pathspec.
//!
//! Unlike in git, a rule without a `/` in the middle is matched with the name of a file alone, and a rule with one with
//! the path from the folder of the ignore file.

use std::fmt::Write;

use regex::Regex;

use super::{Entry, regexp};

#[derive(Clone, Debug)]
pub(super) struct GlobRule {
    regex: Regex,
    /// What a match decides: `!` takes a file back.
    is_ignored: bool,
    /// The folder that the path is relative to; without one, the name is matched.
    anchor: Option<String>,
    is_for_folders_only: bool,
}

impl GlobRule {
    /// The rule of a line, if it can match anything.
    pub(super) fn compile(line: &str, folder: &str) -> Result<Option<Self>, String> {
        let is_anchored = line.starts_with('/') || line.trim_end_matches('/').contains('/');
        let bare = line.trim_start_matches('!').trim_end();
        let is_for_folders_only = bare.ends_with('/');
        // An escaped space at the end belongs to the pattern.
        let pattern = if line.ends_with("\\ ") {
            line
        } else {
            line.trim_end()
        };
        if pattern.is_empty() || line.trim() == "/" {
            return Ok(None);
        }
        let (pattern, is_ignored) = match pattern.strip_prefix('!') {
            Some(pattern) => (pattern, false),
            None => (pattern, true),
        };
        let Some(text) = translate(pattern)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            regex: regexp::build(&text)?,
            is_ignored,
            anchor: is_anchored.then(|| folder.to_owned()),
            is_for_folders_only,
        }))
    }

    /// What this rule says of a path: ignored, taken back, or nothing.
    pub(super) fn verdict(&self, path: &str, entry: Entry) -> Option<bool> {
        if self.is_for_folders_only && entry == Entry::File {
            return None;
        }
        let subject = match &self.anchor {
            Some(folder) => below(path, folder),
            None => path.rsplit_once('/').map_or(path, |(_, name)| name),
        };
        let is_match = match entry {
            Entry::Folder => self.regex.is_match(&format!("{subject}/")),
            Entry::File => self.regex.is_match(subject),
        };
        is_match.then_some(self.is_ignored)
    }
}

fn below<'a>(path: &'a str, folder: &str) -> &'a str {
    let rest = path.strip_prefix(folder).unwrap_or(path);
    rest.strip_prefix('/').unwrap_or(rest)
}

/// One part of a pattern between slashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    /// `**`: any number of folders.
    AnyFolders,
    Glob(&'a str),
}

/// The regular expression of a pattern; none for one that matches nothing because a bracket is open.
fn translate(pattern: &str) -> Result<Option<String>, String> {
    let parts = parts(pattern)?;
    let all = match parts.as_slice() {
        [Part::AnyFolders] if pattern.ends_with('/') => Some("/"),
        [Part::AnyFolders] | [Part::AnyFolders, Part::Glob("*")] => Some("."),
        [Part::AnyFolders, Part::Glob("*"), Part::AnyFolders] => Some("/"),
        _ => None,
    };
    if let Some(all) = all {
        return Ok(Some(all.to_owned()));
    }
    let mut out = String::from("^");
    let last = parts.len() - 1;
    let mut needs_slash = false;
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::AnyFolders if index == 0 => out.push_str("(?:.+/)?"),
            Part::AnyFolders if index == last => out.push('/'),
            Part::AnyFolders => {
                out.push_str("(?:/.+)?");
                needs_slash = true;
            }
            Part::Glob(glob) => {
                if needs_slash {
                    out.push('/');
                }
                match *glob {
                    "*" => out.push_str("[^/]+"),
                    glob => match segment(glob)? {
                        Some(segment) => out.push_str(&segment),
                        None => return Ok(None),
                    },
                }
                if index == last {
                    out.push_str("(?:/|$)");
                }
                needs_slash = true;
            }
        }
    }
    Ok(Some(out))
}

/// The parts of a pattern, with `**` where it is meant but not written.
fn parts(pattern: &str) -> Result<Vec<Part<'_>>, String> {
    let mut texts: Vec<&str> = pattern.split('/').collect();
    let is_name_only = matches!(texts.as_slice(), [_] | [_, ""]);
    let mut parts = Vec::new();
    if texts.first() == Some(&"") {
        texts.remove(0);
    } else if is_name_only && texts.first() != Some(&"**") {
        parts.push(Part::AnyFolders);
    }
    let last = texts.len().saturating_sub(1);
    for (index, text) in texts.iter().enumerate() {
        let part = match *text {
            "**" => Part::AnyFolders,
            // All that is in a folder.
            "" if index == last => Part::AnyFolders,
            glob => Part::Glob(glob),
        };
        if part != Part::AnyFolders || parts.last() != Some(&Part::AnyFolders) {
            parts.push(part);
        }
    }
    if parts.is_empty() {
        return Err("expected a pattern behind the `!`".to_owned());
    }
    Ok(parts)
}

/// The regular expression of one part; none if a bracket is never closed.
fn segment(glob: &str) -> Result<Option<String>, String> {
    let chars: Vec<char> = glob.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(char) = chars.get(at) {
        at += 1;
        match char {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '\\' => {
                let escaped = chars.get(at);
                let escaped = escaped.ok_or("expected a character behind the `\\`")?;
                out.push_str(&regex::escape(&escaped.to_string()));
                at += 1;
            }
            '[' => {
                let Some(class) = Class::find(&chars, at) else {
                    return Ok(None);
                };
                class.write(&chars, &mut out)?;
                at = class.end + 1;
            }
            other => out.push_str(&regex::escape(&other.to_string())),
        }
    }
    Ok(Some(out))
}

/// A bracket expression.
struct Class {
    is_negated: bool,
    /// Its first member.
    begin: usize,
    /// Its closing bracket.
    end: usize,
}

impl Class {
    /// The expression whose opening bracket is before `at`; none if it is never closed.
    fn find(chars: &[char], at: usize) -> Option<Self> {
        let is_negated = matches!(chars.get(at), Some('!' | '^'));
        let begin = at + usize::from(is_negated);
        // A closing bracket that comes first is a member.
        let from = begin + usize::from(chars.get(begin) == Some(&']'));
        let length = chars.get(from..)?.iter().position(|char| *char == ']')?;
        Some(Self {
            is_negated,
            begin,
            end: from + length,
        })
    }

    fn write(&self, chars: &[char], out: &mut String) -> Result<(), String> {
        out.push_str(if self.is_negated { "[^" } else { "[" });
        let mut at = self.begin;
        while at < self.end {
            let first = chars[at];
            let is_range = at + 2 < self.end && chars[at + 1] == '-';
            let last = if is_range { chars[at + 2] } else { first };
            if last < first {
                return Err(format!(
                    "expected a range from low to high, found `{first}-{last}`"
                ));
            }
            let written = write!(
                out,
                "\\x{{{:x}}}-\\x{{{:x}}}",
                u32::from(first),
                u32::from(last)
            );
            written.map_err(|error| error.to_string())?;
            at += if is_range { 3 } else { 1 };
        }
        out.push(']');
        Ok(())
    }
}
