//! Reads values out of the tree, and collects what is wrong with them instead of stopping at it.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    duration,
    node::{Key, Kind, Node, Span},
    problem::{Code, Problem},
    suggest,
};

/// A text with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Located {
    pub(super) text: String,
    pub(super) span: Span,
}

/// Reads values and collects problems. Every reading method returns `None` after it has reported why.
///
/// `what` names the value in messages: "`retries` of task `extract`".
#[derive(Debug)]
pub(super) struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    problems: Vec<Problem>,
}

/// A mapping whose keys are known words.
#[derive(Debug)]
pub(super) struct Object<'n> {
    /// What it is, for messages: "task `extract`".
    pub(super) place: String,
    entries: &'n [(Key, Node)],
}

impl<'n> Object<'n> {
    pub(super) fn new(place: String, entries: &'n [(Key, Node)]) -> Self {
        Self { place, entries }
    }

    /// All fields, in the order of the text.
    pub(super) fn entries(&self) -> &'n [(Key, Node)] {
        self.entries
    }

    /// The value of a field. One without a value is as good as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let mut entries = self.entries.iter().rev();
        entries
            .find(|(key, _)| key.text == name)
            .map(|(_, node)| node)
            .filter(|node| !node.is_null())
    }

    /// Reads a field where it is there, by one of the reader's methods.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str, &'n Node) -> Option<T>,
    ) -> Option<T> {
        let node = self.get(name)?;
        read(&format!("`{name}` of {}", self.place), node)
    }
}

impl<'t> Reader<'t> {
    pub(super) fn new(file: &'t str, text: &'t str, problems: Vec<Problem>) -> Self {
        Self {
            file,
            text,
            problems,
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn report(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.push(Problem {
            code,
            file: self.file.to_owned(),
            line: span.line,
            column: span.column,
            offset: span.offset,
            len: span.len,
            message: message.into(),
            help: help.into(),
        });
    }

    fn wrong_type(&mut self, what: &str, node: &Node, expected: &str, help: &str) {
        let message = format!("{what} must be {expected}, but is {}", node.describe());
        self.report(Code::WrongType, node.span, message, help);
    }

    /// A mapping with these fields and no others. `place` names it for messages, `extra` says what the reader could
    /// mean by particular unknown words.
    pub(super) fn object<'n>(
        &mut self,
        place: String,
        node: &'n Node,
        known: &[&str],
        extra: &[(&str, &str)],
    ) -> Option<Object<'n>> {
        let entries = self.entries(&place, node)?;
        for (key, _) in entries {
            let name = key.text.as_str();
            if known.contains(&name) {
                continue;
            }
            let help = match extra.iter().find(|(word, _)| *word == name) {
                Some((_, help)) => (*help).to_owned(),
                None => suggest::help(name, known, "fields"),
            };
            let message = format!("{place} has no field `{}`", suggest::quoted(name));
            self.report(Code::UnknownField, key.span, message, help);
        }
        Some(Object::new(place, entries))
    }

    /// Whether the whole text is a mapping. One that is none is no file of ours, perhaps one that was put there by mistake:
    /// nothing of it is shown.
    pub(super) fn is_mapping(&mut self, what: &str, root: &Node) -> bool {
        let found = match &root.kind {
            Kind::Map(_) => return true,
            Kind::Null => "nothing",
            Kind::Bool(_) => "`true` or `false`",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
        };
        let message = format!("{what} must be a mapping, but is {found}");
        let help = "write it as `key: value` lines";
        self.report(Code::WrongType, root.span, message, help);
        false
    }

    /// A mapping with any keys.
    pub(super) fn entries<'n>(&mut self, what: &str, node: &'n Node) -> Option<&'n [(Key, Node)]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::List(_) => {
                self.wrong_type(what, node, "a mapping", "write it as `key: value` lines");
                None
            }
        }
    }

    pub(super) fn list<'n>(
        &mut self,
        what: &str,
        node: &'n Node,
        help: &str,
    ) -> Option<&'n [Node]> {
        match &node.kind {
            Kind::List(items) => Some(items),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::Map(_) => {
                self.wrong_type(what, node, "a list", help);
                None
            }
        }
    }

    pub(super) fn text(&mut self, what: &str, node: &Node) -> Option<String> {
        self.located(what, node).map(|located| located.text)
    }

    pub(super) fn located(&mut self, what: &str, node: &Node) -> Option<Located> {
        match &node.kind {
            Kind::Text(text) => Some(Located {
                text: text.clone(),
                span: node.span,
            }),
            Kind::Bool(_) | Kind::Number(_) => {
                let help = format!("put it in quotes: `\"{}\"`", self.as_written(node));
                self.wrong_type(what, node, "a text", &help);
                None
            }
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                self.wrong_type(what, node, "a text", "write one text");
                None
            }
        }
    }

    /// A text, or a number or a boolean as it is written in the file: `1.10` stays `1.10`.
    pub(super) fn scalar(&mut self, what: &str, node: &Node) -> Option<Located> {
        let text = match &node.kind {
            Kind::Text(text) => text.clone(),
            Kind::Bool(_) | Kind::Number(_) => self.as_written(node),
            Kind::Null => {
                let help = "write `\"\"` for an empty text";
                self.wrong_type(what, node, "a text or a number", help);
                return None;
            }
            Kind::List(_) | Kind::Map(_) => {
                self.wrong_type(what, node, "a text or a number", "write one value");
                return None;
            }
        };
        Some(Located {
            text,
            span: node.span,
        })
    }

    /// A plain number or boolean, as its letters are in the file.
    fn as_written(&self, node: &Node) -> String {
        let end = node.span.offset.saturating_add(node.span.len);
        let written = self
            .text
            .get(node.span.offset..end)
            .unwrap_or_default()
            .trim();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
        if !written.is_empty() && written.chars().all(is_plain) {
            written.to_owned()
        } else {
            node.to_json().to_string()
        }
    }

    /// A list of texts, numbers and booleans, each as it is written.
    pub(super) fn scalars(&mut self, what: &str, node: &Node, help: &str) -> Option<Vec<Located>> {
        let items = self.list(what, node, help)?;
        let what = format!("each item in {what}");
        let read: Vec<_> = items.iter().map(|item| self.scalar(&what, item)).collect();
        read.into_iter().collect()
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, what: &str, node: &Node, help: &str) -> Option<Vec<Located>> {
        let items = self.list(what, node, help)?;
        let what = format!("each item in {what}");
        let read: Vec<_> = items.iter().map(|item| self.located(&what, item)).collect();
        read.into_iter().collect()
    }

    pub(super) fn boolean(&mut self, what: &str, node: &Node) -> Option<bool> {
        if let Kind::Bool(value) = node.kind {
            return Some(value);
        }
        self.wrong_type(
            what,
            node,
            "`true` or `false`",
            "write `true` or `false`, without quotes",
        );
        None
    }

    /// A whole number within a range that fits the target.
    pub(super) fn whole<T: TryFrom<i64>>(
        &mut self,
        what: &str,
        node: &Node,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let Kind::Number(number) = &node.kind else {
            self.wrong_type(
                what,
                node,
                "a whole number",
                "write a number without quotes",
            );
            return None;
        };
        let whole = number.as_i64().filter(|whole| range.contains(whole));
        if let Some(value) = whole.and_then(|whole| T::try_from(whole).ok()) {
            return Some(value);
        }
        if number.is_f64() {
            self.wrong_type(
                what,
                node,
                "a whole number",
                "write a number without fraction",
            );
        } else {
            let (least, most) = (range.start(), range.end());
            let message = format!("{what} must be at least {least}, but is {number}");
            if number.as_i64().is_some_and(|whole| whole < *least) {
                let help = format!("write a number from {least} on");
                self.report(Code::OutOfRange, node.span, message, help);
            } else {
                let message = format!("{what} must be at most {most}, but is {number}");
                let help = format!("write a number up to {most}");
                self.report(Code::OutOfRange, node.span, message, help);
            }
        }
        None
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        what: &str,
        node: &Node,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(what, node)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("{what} cannot be `{}`", suggest::quoted(&text));
        self.report(
            Code::UnknownWord,
            node.span,
            message,
            suggest::help(&text, &known, "words"),
        );
        None
    }

    /// A duration: a number of seconds, `30s`, `5m`, `1h30m`, or ISO 8601.
    pub(super) fn duration(&mut self, what: &str, node: &Node) -> Option<Duration> {
        let parsed = match &node.kind {
            Kind::Number(number) => duration::from_seconds(number),
            Kind::Text(text) => duration::from_text(text),
            Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => {
                self.wrong_type(what, node, "a duration", duration::HELP);
                return None;
            }
        };
        match parsed {
            Ok(duration) => Some(duration),
            Err(why) => {
                let message = format!("{what} {why}, but is {}", node.describe());
                self.report(Code::InvalidDuration, node.span, message, duration::HELP);
                None
            }
        }
    }

    /// A duration longer than nothing.
    pub(super) fn timeout(&mut self, what: &str, node: &Node) -> Option<Duration> {
        let duration = self.duration(what, node)?;
        if duration.is_zero() {
            let message = format!("{what} must be longer than zero");
            let help = "remove it for no limit";
            self.report(Code::OutOfRange, node.span, message, help);
            return None;
        }
        Some(duration)
    }

    /// The place of the n-th occurrence (from 0) of a part of the text within a span.
    pub(super) fn find_in(&self, within: Span, part: &str, n: usize) -> Option<Span> {
        let end = within.offset.checked_add(within.len)?;
        let written = self.text.get(within.offset..end)?;
        let (at, _) = written.match_indices(part).nth(n)?;
        let before = &written[..at];
        let n_lines = before.matches('\n').count();
        let column = match before.rfind('\n') {
            None => within.column + before.chars().count(),
            Some(newline) => before[newline + 1..].chars().count() + 1,
        };
        Some(Span {
            offset: within.offset + at,
            len: part.len(),
            line: within.line + n_lines,
            column,
        })
    }
}
