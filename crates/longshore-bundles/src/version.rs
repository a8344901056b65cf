//! Versions of a bundle, as rows keep them and workers are told them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The full name of a commit: 40 hexadecimal digits, or 64 in a repository of SHA-256, in lower case.
///
/// Only full names: an abbreviated one may mean another commit tomorrow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId(String);

/// A text that is not the full name of a commit.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("expected 40 or 64 lower-case hexadecimal digits as the name of a commit, found {0:?}")]
pub struct InvalidCommitId(String);

impl CommitId {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CommitId {
    type Err = InvalidCommitId;

    fn from_str(text: &str) -> Result<Self, InvalidCommitId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if matches!(text.len(), 40 | 64) && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidCommitId(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for CommitId {
    type Error = InvalidCommitId;

    fn try_from(text: String) -> Result<Self, InvalidCommitId> {
        text.parse()
    }
}

impl From<CommitId> for String {
    fn from(commit: CommitId) -> Self {
        commit.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of a bundle. A run of a versioned bundle is pinned to the version of its creation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// A local folder: everybody sees its files as they are now.
    Unversioned,
    /// A commit of a git repository.
    Commit(CommitId),
}

impl Version {
    /// `bundle_info.version` of a workload (specification of `dags`, 3.1): the worker checks out exactly this version,
    /// and none if it is null. (Airflow: `GitDagBundle.get_current_version`, `LocalDagBundle.get_current_version`.)
    #[must_use]
    pub fn to_worker(&self) -> Option<&str> {
        match self {
            Self::Unversioned => None,
            Self::Commit(commit) => Some(commit.as_str()),
        }
    }

    /// The version of such a text, or of its absence.
    ///
    /// # Errors
    /// The text is not the full name of a commit.
    pub fn from_worker(text: Option<&str>) -> Result<Self, InvalidCommitId> {
        text.map_or(Ok(Self::Unversioned), |text| text.parse().map(Self::Commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_names_of_commits_are_read() {
        let sha1 = "0123456789abcdef0123456789abcdef01234567";
        let sha256 = format!("{sha1}{}", "0".repeat(24));
        for (text, is_fine) in [
            (sha1, true),
            (sha256.as_str(), true),
            (&sha1[..39], false),
            (&sha1.to_uppercase(), false),
            ("../../../../../../../../../../etc/passwd", false),
            ("main", false),
            ("", false),
            ("--upload-pack=touch /tmp/x; 012345678901", false),
        ] {
            assert_eq!(text.parse::<CommitId>().is_ok(), is_fine, "{text}");
            let version = Version::from_worker(Some(text));
            match version {
                Ok(version) => assert_eq!(version.to_worker(), Some(text)),
                Err(error) => assert!(!is_fine, "{error}"),
            }
        }
        assert_eq!(Version::from_worker(None), Ok(Version::Unversioned));
        assert_eq!(Version::Unversioned.to_worker(), None);
    }

    #[test]
    fn a_commit_is_a_text_in_json() {
        let text = format!("\"{}\"", "a".repeat(40));
        let commit: CommitId = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&commit).unwrap(), text);
        assert!(serde_json::from_str::<CommitId>("\"main\"").is_err());
    }
}
