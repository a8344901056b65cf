//! How items ended, kept in a file: a campaign that is interrupted goes on with the items that are left.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Most characters of a reason.
const MAX_REASON: usize = 400;

/// How an item ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The word of the suite: `passed`, `failed`, `skipped`, `timedout`, …
    pub(super) state: String,
    /// Why it did not pass, in one line.
    pub(super) reason: String,
    /// How often it was tried.
    pub(super) tries: u64,
}

impl Outcome {
    /// One with a reason of any length.
    pub(super) fn new(state: &str, reason: &str, tries: u64) -> Self {
        let words: Vec<&str> = reason.split_whitespace().collect();
        Self {
            state: state.to_owned(),
            reason: words.join(" ").chars().take(MAX_REASON).collect(),
            tries,
        }
    }

    pub(super) fn passed(&self) -> bool {
        self.state == "passed"
    }

    /// As it stands in the result.
    pub(super) fn to_json(&self) -> Value {
        let mut object = json!({"state": self.state});
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if self.tries > 1 {
            object["tries"] = json!(self.tries);
        }
        object
    }
}

/// The outcomes so far of one program.
#[derive(Debug)]
pub(super) struct Outcomes {
    folder: PathBuf,
    by_item: BTreeMap<String, Outcome>,
}

impl Outcomes {
    /// Those that a campaign with this program had when it was interrupted. `cache` has a directory for each program.
    pub(super) fn of(program: &Path, cache: &Path) -> Result<Self> {
        let folder = cache.join(version(program)?);
        fs::create_dir_all(&folder)?;
        let text = fs::read_to_string(file(&folder)).unwrap_or_default();
        Ok(Self {
            folder,
            by_item: text.lines().filter_map(read).collect(),
        })
    }

    /// The directory of what this campaign keeps beside them.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn get(&self, item: &str) -> Option<&Outcome> {
        self.by_item.get(item)
    }

    /// Writes one down.
    pub(super) fn add(&mut self, item: &str, outcome: Outcome) -> Result<()> {
        let mut line = outcome.to_json();
        line["item"] = json!(item);
        // A line of a process that was killed may have no end.
        let line = format!("\n{line}\n");
        File::options()
            .create(true)
            .append(true)
            .open(file(&self.folder))?
            .write_all(line.as_bytes())?;
        self.by_item.insert(item.to_owned(), outcome);
        Ok(())
    }

    /// Forgets them: the campaign is over.
    pub(super) fn forget(self) -> Result<()> {
        fs::remove_file(file(&self.folder)).context("the outcomes so far cannot be removed")
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("outcomes.jsonl")
}

/// What tells one build of a program from another.
fn version(program: &Path) -> Result<String> {
    let about = fs::metadata(program).context("the program to test cannot be read")?;
    let built_at = about.modified()?.duration_since(UNIX_EPOCH)?;
    Ok(format!("{}-{}", about.len(), built_at.as_millis()))
}

/// An outcome in a line; a line without an end has none.
fn read(line: &str) -> Option<(String, Outcome)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let outcome = Outcome::new(
        line["state"].as_str()?,
        line["reason"].as_str().unwrap_or_default(),
        line["tries"].as_u64().unwrap_or(1),
    );
    Some((line["item"].as_str()?.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_campaign_knows_what_it_had_and_another_program_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (program, cache) = (folder.path().join("longshore"), folder.path().join("cache"));
        fs::write(&program, "one").unwrap();
        let mut outcomes = Outcomes::of(&program, &cache).unwrap();
        let failed = Outcome::new("failed", "expected\n  a pod", 2);
        outcomes.add("a", failed.clone()).unwrap();
        // As if it were killed while it wrote.
        let mut file = File::options()
            .append(true)
            .open(file(outcomes.folder()))
            .unwrap();
        file.write_all(b"\n{\"item\": \"b\", \"sta").unwrap();
        let mut outcomes = Outcomes::of(&program, &cache).unwrap();
        assert_eq!(outcomes.get("a"), Some(&failed));
        assert_eq!(outcomes.get("b"), None);
        outcomes.add("b", Outcome::new("passed", "", 1)).unwrap();
        let again = Outcomes::of(&program, &cache).unwrap();
        assert!(again.get("b").unwrap().passed());
        fs::write(&program, "another").unwrap();
        assert_eq!(Outcomes::of(&program, &cache).unwrap().get("a"), None);
        again.forget().unwrap();
    }

    #[test]
    fn reasons_are_short_lines() {
        let outcome = Outcome::new("failed", &"a\n".repeat(1_000), 1);
        assert_eq!(outcome.reason.len(), MAX_REASON);
        assert_eq!(
            Outcome::new("failed", "no\n\tpod", 2).to_json(),
            json!({"state": "failed", "reason": "no pod", "tries": 2})
        );
        assert_eq!(
            Outcome::new("passed", "", 1).to_json(),
            json!({"state": "passed"})
        );
    }
}
