//! Rules that are regular expressions.

use regex::{Regex, RegexBuilder};

/// The largest program of one expression, in bytes.
pub(super) const MAX_PROGRAM: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct RegexpRule(Regex);

impl RegexpRule {
    pub(super) fn compile(pattern: &str) -> Result<Self, String> {
        build(&from_python(pattern)).map(Self)
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

pub(super) fn build(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern).size_limit(MAX_PROGRAM).build();
    built.map_err(|error| {
        // The last line names the reason; those before it draw the pattern.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    })
}

/// The same expression in the syntax of the `regex` crate, where Python's differs: a `{` that begins no counter is a
/// letter, `\Z` is the end, and classes have no nested classes and no set operations.
fn from_python(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut class = Class::Outside;
    while let Some(char) = rest.chars().next() {
        let (taken, after) = match char {
            '\\' => rest.split_at(1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
            other => rest.split_at(other.len_utf8()),
        };
        match (taken, class) {
            ("\\Z", Class::Outside) => out.push_str("\\z"),
            ("{", Class::Outside) if !is_counter(after) => out.push_str("\\{"),
            ("[", Class::Outside) => {
                out.push('[');
                class = Class::Begun;
            }
            ("^", Class::Begun) => out.push('^'),
            ("]", Class::Begun) => {
                out.push_str("\\]");
                class = Class::Inside;
            }
            ("]", Class::Inside) => {
                out.push(']');
                class = Class::Outside;
            }
            ("[" | "&" | "~", Class::Begun | Class::Inside) => {
                out.push('\\');
                out.push_str(taken);
                class = Class::Inside;
            }
            (other, Class::Begun) => {
                out.push_str(other);
                class = Class::Inside;
            }
            (other, Class::Outside | Class::Inside) => out.push_str(other),
        }
        rest = after;
    }
    out
}

/// Where in an expression a letter stands.
#[derive(Clone, Copy)]
enum Class {
    Outside,
    /// Before the first member.
    Begun,
    Inside,
}

/// Whether what follows a `{` makes it a counter: `{2}`, `{2,}`, `{2,3}`, `{,3}`.
fn is_counter(after: &str) -> bool {
    let Some((inner, _)) = after.split_once('}') else {
        return false;
    };
    let (low, high) = inner.split_once(',').unwrap_or((inner, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !inner.is_empty() && is_number(low) && is_number(high)
}
