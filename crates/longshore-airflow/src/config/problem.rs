//! What is wrong with a configuration, and what happens instead.

use std::fmt;

use super::{Name, Origin};

/// Something in a configuration that does not do what it says. None of them stops the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    /// The section is known, the key is not.
    #[error("{origin}: Longshore knows no key {name}, so it has no effect{}", hint(.suggestion))]
    UnknownKey {
        /// Where it stands.
        origin: Origin,
        /// The key.
        name: Name,
        /// The key that is nearest by its letters.
        suggestion: Option<String>,
    },
    /// Longshore reads no key of the section.
    #[error("{origin}: Longshore reads nothing of section [{section}], so it has no effect{}", hint(.suggestion))]
    UnknownSection {
        /// Where its first key stands.
        origin: Origin,
        /// The section.
        section: String,
        /// The section that is nearest by its letters.
        suggestion: Option<String>,
    },
    /// The key has no effect.
    #[error("{origin}: {name} has no effect; {instead}")]
    NoEffect {
        /// Where it stands.
        origin: Origin,
        /// The key.
        name: Name,
        /// What happens instead.
        instead: &'static str,
    },
    /// The value of a key that is no secret cannot be fetched.
    #[error(
        "{origin}: {name} cannot be fetched by a command or from a secrets backend, because it is no secret; set the key itself"
    )]
    NotFetched {
        /// Where it stands.
        origin: Origin,
        /// The key.
        name: Name,
    },
    /// A setting of one team.
    #[error("{origin}: a setting of team `{team}` has no effect; all DAGs share one configuration")]
    Team {
        /// Where it stands.
        origin: Origin,
        /// The team.
        team: String,
    },
    /// A name that sets nothing.
    #[error("{origin}: expected AIRFLOW__SECTION__KEY, so it has no effect")]
    Unnamed {
        /// Where it stands.
        origin: Origin,
    },
    /// A line that is neither a section nor a setting.
    #[error("{origin}: expected [section] or key = value, found `{text}`; the line is skipped")]
    Unreadable {
        /// Where it stands.
        origin: Origin,
        /// The line.
        text: String,
    },
    /// A value that refers to another key.
    #[error(
        "{origin}: {name} refers to another key by `%(…)s`, which Longshore does not replace; write the value out, and `%%` for a percent sign"
    )]
    Reference {
        /// Where it stands.
        origin: Origin,
        /// The key.
        name: Name,
    },
}

/// A value that stops the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {name} must be {expected}, but is `{found}`")]
pub struct InvalidValue {
    /// Where it stands.
    pub origin: Origin,
    /// The key.
    pub name: Name,
    /// What it must be.
    pub expected: &'static str,
    /// What it is.
    pub found: String,
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}] {}", self.section, self.key)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(formatter, "variable {name}"),
            Self::Line(line) => write!(formatter, "airflow.cfg, line {line}"),
            Self::Default => formatter.write_str("the default"),
        }
    }
}

fn hint(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}

/// The known word within two edits, nearest first; a short word must share more than half of its letters.
pub(super) fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 2).min(2);
    known
        .filter(|name| name.chars().count().abs_diff(word.chars().count()) <= most)
        .map(|name| (strsim::osa_distance(word, name), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}
