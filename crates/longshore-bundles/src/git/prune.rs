//! Which versions may be removed from the disk. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::version::CommitId;

/// `[dag_processor] stale_bundle_cleanup_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneSettings {
    /// `stale_bundle_cleanup_interval`, in seconds: time between two rounds; default 1,800. Zero or less: never.
    pub interval: i64,
    /// `stale_bundle_cleanup_age_threshold`, in seconds: a version that was used since is kept; default 21,600.
    pub age_threshold: i64,
    /// `stale_bundle_cleanup_min_versions`: as many versions, the last used ones, are kept whatever their age; default
    /// 10.
    pub min_versions: usize,
}

impl Default for PruneSettings {
    fn default() -> Self {
        Self {
            interval: 1_800,
            age_threshold: 21_600,
            min_versions: 10,
        }
    }
}

impl PruneSettings {
    /// When the next round is due, if ever.
    #[must_use]
    pub fn next_round(&self, last: Timestamp) -> Option<Timestamp> {
        let interval = SignedDuration::from_secs(self.interval);
        (self.interval > 0).then(|| last.saturating_add(interval).unwrap_or(Timestamp::MAX))
    }
}

/// A version on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDisk {
    /// The version.
    pub commit: CommitId,
    /// When it was used last.
    pub last_used_at: Timestamp,
}

/// The versions that may be removed if no process uses them now, the longest unused one first. A version in `needed` is
/// kept: unfinished runs are pinned to it, whether or not a process uses it.
///
/// (Airflow: `BundleUsageTrackingManager._find_candidates`.)
#[must_use]
pub fn removable(
    mut versions: Vec<OnDisk>,
    needed: &BTreeSet<CommitId>,
    settings: &PruneSettings,
    now: Timestamp,
) -> Vec<CommitId> {
    if settings.interval <= 0 {
        return Vec::new();
    }
    versions.sort_by(|a, b| {
        let by_use = b.last_used_at.cmp(&a.last_used_at);
        by_use.then_with(|| a.commit.cmp(&b.commit))
    });
    let age = SignedDuration::from_secs(settings.age_threshold);
    let is_old = |version: &OnDisk| now.duration_since(version.last_used_at) > age;
    let old = versions.into_iter().skip(settings.min_versions);
    let mut old: Vec<_> = old
        .filter(|version| is_old(version) && !needed.contains(&version.commit))
        .map(|version| version.commit)
        .collect();
    old.reverse();
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(n: u64) -> CommitId {
        format!("{n:040}").parse().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(1_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn old_versions_beyond_the_kept_ones_are_removable() {
        // Version n was used n * 100 s ago, at 1,000 s.
        let versions = |n: u64| {
            (1..=n).map(|n| OnDisk {
                commit: commit(n),
                last_used_at: at(1_000 - i64::try_from(n).unwrap() * 100),
            })
        };
        for (n_versions, interval, age_threshold, min_versions, needed, expected) in [
            (5, 1, 250, 0, None, &[5_u64, 4, 3] as &[_]),
            (5, 1, 300, 0, None, &[5, 4]),
            (5, 1, 0, 4, None, &[5]),
            (5, 1, 0, 5, None, &[]),
            (5, 1, 0, 3, Some(5), &[4]),
            (5, 1, 450, 1, None, &[5]),
            (5, 0, 0, 0, None, &[]),
            (5, -1, 0, 0, None, &[]),
            (0, 1, 0, 0, None, &[]),
        ] {
            let settings = PruneSettings {
                interval,
                age_threshold,
                min_versions,
            };
            let needed: BTreeSet<_> = needed.into_iter().map(commit).collect();
            let found = removable(
                versions(n_versions).collect(),
                &needed,
                &settings,
                at(1_000),
            );
            let expected: Vec<_> = expected.iter().copied().map(commit).collect();
            assert_eq!(found, expected, "{settings:?} {needed:?}");
        }
    }

    #[test]
    fn rounds_are_due_unless_there_are_none() {
        for (interval, expected) in [(1_800, Some(at(1_800))), (0, None), (-5, None)] {
            let settings = PruneSettings {
                interval,
                ..PruneSettings::default()
            };
            assert_eq!(settings.next_round(at(0)), expected);
        }
    }
}
