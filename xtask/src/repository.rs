//! The repository as its own chores see it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

/// Its root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A tracked file: its path from the root, with `/`, and its text. Files that are no text are left out.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// Its last component.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// `longshore-kit` for `crates/longshore-kit/src/clock.rs`.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether it is Rust that ends up in a program of ours: no tests, no benches, no development-only crate.
    pub(crate) fn is_production(&self) -> bool {
        let is_test = |part: &str| ["tests", "benches", "testdata"].contains(&part);
        self.path.ends_with(".rs")
            && self.path.starts_with("crates/")
            && !["longshore-test", "longshore-bench"].contains(&self.crate_name().unwrap_or(""))
            && !self.path.split('/').any(is_test)
            && !["tests.rs", "fixtures.rs", "laws.rs"].contains(&self.name())
    }

    /// Its production lines with their numbers: what comes before the tests at its end.
    pub(crate) fn production_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_test_module = |at: usize| {
            lines[at].trim() == "#[cfg(test)]"
                && lines
                    .get(at + 1)
                    .is_some_and(|next| next.starts_with("mod tests {"))
        };
        let end = (0..lines.len())
            .find(|at| is_test_module(*at))
            .unwrap_or(lines.len());
        lines
            .into_iter()
            .take(end)
            .enumerate()
            .map(|(at, line)| (at + 1, line))
    }
}

/// All text files that are tracked or may become so. Without git (a release archive) these are all files there are.
pub(crate) fn sources() -> Result<Vec<Source>> {
    let root = root();
    let paths = match tracked(&root) {
        Some(paths) => paths,
        None => walk(&root)?,
    };
    let read = |path: String| {
        // A file may be deleted and not yet committed, or hold bytes that are no text.
        let text = fs::read_to_string(root.join(&path)).ok()?;
        Some(Source { path, text })
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let paths = String::from_utf8(output.stdout).ok()?;
    Some(paths.split_terminator('\0').map(str::to_owned).collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let inside = path.strip_prefix(root)?.to_string_lossy().into_owned();
            if path.is_file() {
                paths.push(inside);
            } else if ![".git", "target"].contains(&inside.as_str()) {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}
