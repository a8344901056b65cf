//! What is wrong with a DAG file, for people.

use std::fmt;

/// What kind of mistake a [`Problem`] is; the number is its page in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The text is no YAML, or goes beyond the limits of a DAG file (size, depth, aliases).
    Syntax,
    /// An unknown field.
    UnknownField,
    /// A value of the wrong type.
    WrongType,
    /// A field that must be there is not.
    MissingField,
    /// A key that occurs twice in a mapping.
    DuplicateKey,
    /// An id that Airflow does not allow.
    InvalidId,
    /// A duration that cannot be read.
    InvalidDuration,
    /// A word where only some words are allowed.
    UnknownWord,
    /// A number that is too small or too large.
    OutOfRange,
    /// A task that another one waits for does not exist.
    UnknownTask,
    /// Tasks wait for each other.
    Cycle,
    /// A pod override that is no pod.
    InvalidPodOverride,
    /// A file beside the DAG cannot be taken along.
    File,
    /// A DAG without tasks.
    NoTasks,
    /// A template that can never be filled in.
    Template,
    /// A text that means nothing where it stands.
    InvalidValue,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Syntax,
        Self::UnknownField,
        Self::WrongType,
        Self::MissingField,
        Self::DuplicateKey,
        Self::InvalidId,
        Self::InvalidDuration,
        Self::UnknownWord,
        Self::OutOfRange,
        Self::UnknownTask,
        Self::Cycle,
        Self::InvalidPodOverride,
        Self::File,
        Self::NoTasks,
        Self::Template,
        Self::InvalidValue,
    ];

    /// `LS13xx`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "LS1301",
            Self::UnknownField => "LS1302",
            Self::WrongType => "LS1303",
            Self::MissingField => "LS1304",
            Self::DuplicateKey => "LS1305",
            Self::InvalidId => "LS1306",
            Self::InvalidDuration => "LS1307",
            Self::UnknownWord => "LS1308",
            Self::OutOfRange => "LS1309",
            Self::UnknownTask => "LS1310",
            Self::Cycle => "LS1311",
            Self::InvalidPodOverride => "LS1312",
            Self::File => "LS1313",
            Self::NoTasks => "LS1314",
            Self::Template => "LS1315",
            Self::InvalidValue => "LS1316",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One mistake in a DAG file, with its place and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of mistake.
    pub code: Code,
    /// The file, as it was given to [`parse`](super::parse()).
    pub file: String,
    /// Line in the text, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// Byte in the text, on a character boundary.
    pub offset: usize,
    /// Bytes from there; zero where the mistake is that something is missing.
    pub len: usize,
    /// What is wrong, naming the thing.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            file,
            line,
            column,
            message,
            help,
            ..
        } = self;
        write!(
            f,
            "{file}:{line}:{column}: {code}: {message}\n  help: {help}"
        )
    }
}

/// All mistakes of a DAG file, by position; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Puts them in order. The same mistake at the same place is one mistake (aliases are read where they are used).
    pub(super) fn of(mut problems: Vec<Problem>) -> Self {
        problems
            .sort_by(|a, b| (a.offset, a.code, &a.message).cmp(&(b.offset, b.code, &b.message)));
        problems.dedup();
        Self(problems)
    }

    /// The mistakes, by position.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many they are, at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
