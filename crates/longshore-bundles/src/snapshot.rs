//! The files of a bundle at one moment, and what changed between two moments. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use thiserror::Error;

use crate::ignore::InvalidLine;

/// What the file system says of a file without reading it. Equal stamps of one path mean equal content, unless the file
/// changed within the resolution of the clock: see [`File::is_settled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// When the content changed, as the writer claims: copying tools set it back.
    pub modified_at: Timestamp,
    /// When the file changed in any way, as the kernel says.
    pub changed_at: Timestamp,
    /// The file itself: another file may take the path without any other trace.
    pub inode: u64,
}

/// What tells whether the content of a file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fingerprint {
    /// SHA-256 of the content.
    Content([u8; 32]),
    /// The file is larger than [`Limits::max_hashed_bytes`](crate::scan::Limits::max_hashed_bytes), and is not read.
    Unread(Stamp),
}

/// How a file is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// An ordinary file.
    Plain,
    /// A zip archive, whatever its name: one unit, whose members are not listed. (Airflow: `zipfile.is_zipfile`.)
    Archive,
}

/// A file of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// How it is to be read.
    pub kind: FileKind,
    /// What was seen of it before it was read.
    pub stamp: Stamp,
    /// What its content is.
    pub fingerprint: Fingerprint,
    /// Whether the stamp was old enough when the content was read. If not, the file may have changed afterwards without
    /// another stamp, and the next scan reads it again.
    pub is_settled: bool,
}

/// Why something below the root is not listed, or not as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// A file or folder cannot be read. What was known of it, or of the files below it, is kept.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// A symbolic link out of the bundle: it is not followed, because who writes into a bundle need not be allowed to
    /// read everything that this process reads.
    #[error("is a symbolic link that leads out of the bundle; copy the file into the bundle")]
    LeadsOut,
    /// A symbolic link to nothing.
    #[error("is a symbolic link to a file that does not exist")]
    Dangling,
    /// A symbolic link to a folder that is listed elsewhere. Airflow refuses the whole bundle for it.
    #[error(
        "is a symbolic link to a folder that is listed already as `{0}`; it is not listed twice"
    )]
    ListedTwice(String),
    /// Neither a file nor a folder: a socket, a pipe, a device.
    #[error("is no regular file")]
    NotRegular,
    /// A name that is no UTF-8 text; the path has replacement characters.
    #[error("has a name that is not UTF-8; rename it")]
    NotUtf8,
    /// Lines of an ignore file that are left out.
    #[error("has lines that are left out: {}", join(.0))]
    Ignore(Vec<InvalidLine>),
}

fn join(lines: &[InvalidLine]) -> String {
    let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// The files of a bundle at one moment. Paths are relative to the root of the bundle, with `/` between the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The files that are not ignored, by path.
    pub files: BTreeMap<String, File>,
    /// What is wrong, by path.
    pub problems: BTreeMap<String, Problem>,
}

/// What changed between two snapshots of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Files that were not there, or were ignored.
    pub added: BTreeSet<String>,
    /// Files whose content is another one.
    pub changed: BTreeSet<String>,
    /// Files that are gone, or are ignored now.
    pub removed: BTreeSet<String>,
    /// Problems that are new, or different.
    pub problems: BTreeMap<String, Problem>,
    /// Paths that have no problem any more.
    pub solved: BTreeSet<String>,
}

impl Diff {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Snapshot {
    /// What changed from `earlier` to this snapshot. A file that was only touched, moved over with the same content, or
    /// checked out again has not changed.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Diff {
        let mut diff = Diff::default();
        for (path, file) in &self.files {
            match earlier.files.get(path) {
                None => diff.added.insert(path.clone()),
                Some(before) if is_same(before, file) => false,
                Some(_) => diff.changed.insert(path.clone()),
            };
        }
        let is_gone = |path: &&String| !self.files.contains_key(*path);
        diff.removed = earlier.files.keys().filter(is_gone).cloned().collect();
        let problems = self.problems.iter();
        diff.problems = problems
            .filter(|(path, problem)| earlier.problems.get(*path) != Some(problem))
            .map(|(path, problem)| (path.clone(), problem.clone()))
            .collect();
        let is_solved = |path: &&String| !self.problems.contains_key(*path);
        diff.solved = earlier.problems.keys().filter(is_solved).cloned().collect();
        diff
    }

    /// The files at or below a path.
    pub(crate) fn below(&self, path: &str) -> impl Iterator<Item = (&String, &File)> {
        let below = format!("{path}/");
        self.files
            .iter()
            .filter(move |(name, _)| path.is_empty() || *name == path || name.starts_with(&below))
    }
}

fn is_same(before: &File, now: &File) -> bool {
    before.kind == now.kind && before.fingerprint == now.fingerprint
}

#[cfg(test)]
mod tests;
