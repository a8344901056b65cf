//! Which files of a bundle are parsed, and which of them are parsed again after a change.
//!
//! A **unit** is a file that is parsed by itself: a module of Python that may define something, or an archive of modules.
//! Airflow parses every unit every 30 s. Here a unit is parsed again if it has changed, or if something has changed that
//! its code read when it was parsed last: a module that it imports, a file that it opens, a folder that it lists. Where
//! that is not known, every change counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File as OpenFile,
    io::{self, Read},
    path::Path,
};

use crate::{
    local::Look,
    snapshot::{Diff, File, FileKind},
};

/// Which modules are units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// Those whose text has `airflow`, and `dag` or `asset`, in any case. (`[core] dag_discovery_safe_mode`, the default.)
    #[default]
    SafeMode,
    /// All.
    Everything,
}

/// A module is searched up to here, in bytes; a longer one is a unit.
const MAX_SEARCHED: u64 = 16 << 20;

/// The units of a bundle.
#[derive(Clone, Debug, Default)]
pub struct Units {
    discovery: Discovery,
    paths: BTreeSet<String>,
}

/// What the code of a unit has read of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Any file may be one of them.
    Unknown,
    /// These.
    Known {
        /// Files, whether they were there or not.
        files: BTreeSet<String>,
        /// Folders whose entries were listed, with `/` at the end; the root is empty.
        folders: BTreeSet<String>,
    },
}

/// What is to be done about units. No path is in two of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Units that are new or have changed: they come first.
    pub changed: Vec<String>,
    /// Units that have read something that changed.
    pub dependants: Vec<String>,
    /// What were units.
    pub gone: Vec<String>,
}

impl Affected {
    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Units {
    /// No units yet.
    #[must_use]
    pub fn new(discovery: Discovery) -> Self {
        Self {
            discovery,
            paths: BTreeSet::new(),
        }
    }

    /// The units, by their paths.
    #[must_use]
    pub fn paths(&self) -> &BTreeSet<String> {
        &self.paths
    }

    /// Takes up what a look has found, and says what is to be done. `reads` is what each unit has read when it was parsed
    /// last; one that failed then has read something unknown, because what it misses may come.
    ///
    /// Searches the modules that are new or have changed. Blocks.
    pub fn take(&mut self, look: &Look, reads: &BTreeMap<String, Reads>) -> Affected {
        let before = self.paths.clone();
        let diff = &look.diff;
        for path in diff.removed.iter().chain(&diff.added).chain(&diff.changed) {
            let file = look.snapshot.files.get(path);
            // A file that cannot be searched is given to the parser, which says what is wrong with it.
            let is_unit = file
                .is_some_and(|it| is_unit(self.discovery, &look.root, path, it).unwrap_or(true));
            if is_unit {
                self.paths.insert(path.clone());
            } else {
                self.paths.remove(path);
            }
        }
        affected(&before, &self.paths, diff, reads)
    }
}

/// What a change means for units. Pure.
#[must_use]
pub fn affected(
    before: &BTreeSet<String>,
    now: &BTreeSet<String>,
    diff: &Diff,
    reads: &BTreeMap<String, Reads>,
) -> Affected {
    let mut affected = Affected {
        gone: before.difference(now).cloned().collect(),
        ..Affected::default()
    };
    for unit in now {
        let is_changed =
            !before.contains(unit) || diff.added.contains(unit) || diff.changed.contains(unit);
        if is_changed {
            affected.changed.push(unit.clone());
        } else if reads.get(unit).unwrap_or(&Reads::Unknown).has_any(diff) {
            affected.dependants.push(unit.clone());
        }
    }
    affected
}

impl Reads {
    /// What the program around the parser has noted: paths of files, and of folders with `/` at the end.
    #[must_use]
    pub fn of(paths: Vec<String>) -> Self {
        let is_folder = |path: &String| path.is_empty() || path.ends_with('/');
        let (folders, files) = paths.into_iter().partition(is_folder);
        Self::Known { files, folders }
    }

    /// Whether something changed that was read.
    fn has_any(&self, diff: &Diff) -> bool {
        let Self::Known { files, folders } = self else {
            return !(diff.added.is_empty() && diff.changed.is_empty() && diff.removed.is_empty());
        };
        let is_read = |path: &String| files.contains(path) || is_member_in(files, path);
        let is_listed = |path: &String| ancestors(path).any(|folder| folders.contains(folder));
        let mut come_and_gone = diff.added.iter().chain(&diff.removed);
        diff.changed.iter().any(is_read) || come_and_gone.any(|it| is_read(it) || is_listed(it))
    }
}

/// Whether a member of the archive at this path was read.
fn is_member_in(files: &BTreeSet<String>, archive: &str) -> bool {
    let below = format!("{archive}/");
    let next = files.range(below.clone()..).next();
    next.is_some_and(|path| path.starts_with(&below))
}

/// The folders that a path lies in: `""`, `"a/"` and `"a/b/"` of `a/b/c`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).map(|end| &path[..end])
}

fn is_unit(discovery: Discovery, root: &Path, path: &str, file: &File) -> io::Result<bool> {
    if file.kind == FileKind::Archive {
        return Ok(true);
    }
    let is_module = Path::new(path).extension().is_some_and(|it| it == "py");
    match discovery {
        Discovery::Everything => Ok(is_module),
        Discovery::SafeMode if !is_module => Ok(false),
        Discovery::SafeMode if file.stamp.size > MAX_SEARCHED => Ok(true),
        Discovery::SafeMode => {
            let mut text = Vec::new();
            let file = OpenFile::open(root.join(path))?;
            file.take(MAX_SEARCHED).read_to_end(&mut text)?;
            text.make_ascii_lowercase();
            let has = |word: &[u8]| text.windows(word.len()).any(|it| it == word);
            Ok(has(b"airflow") && (has(b"dag") || has(b"asset")))
        }
    }
}

#[cfg(test)]
mod tests;
