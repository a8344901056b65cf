//! Versions that nobody uses are removed, and no others.

use std::{collections::BTreeSet, fs};

use jiff::SignedDuration;

use super::*;
use crate::git::{lock::Unused, steps::PRUNE_STEPS};

const KEEP_NONE: PruneSettings = PruneSettings {
    interval: 1,
    age_threshold: 100,
    min_versions: 0,
};

fn later(world: &World, seconds: i64) -> Timestamp {
    world.now() + SignedDuration::from_secs(seconds)
}

/// A world with that many commits, all on disk, used at 0, 10, 20 … s.
async fn with_versions(n: i64) -> (World, GitBundle, Vec<CommitId>) {
    let world = World::new();
    let bundle = world.bundle();
    let mut commits = Vec::new();
    for index in 0..n {
        let commit = world.commit(&[("a", &index.to_string())]);
        let used_at = later(&world, index * 10);
        bundle.check_out(&commit, used_at).await.unwrap();
        commits.push(commit);
    }
    (world, bundle, commits)
}

/// Tries until there is something. A child that another test starts has our locks for a moment, until it has become
/// its program.
async fn eventually<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = attempt().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing in 30 s");
}

/// Prunes until so many versions are removed; no more may be. The versions, in the order of `commits`.
async fn prune(
    bundle: &GitBundle,
    needed: &BTreeSet<CommitId>,
    settings: &PruneSettings,
    now: Timestamp,
    commits: &[CommitId],
    n_removed: usize,
) -> Vec<usize> {
    let mut removed = BTreeSet::new();
    eventually(async || {
        removed.extend(bundle.prune(needed, settings, now).await.unwrap());
        (removed.len() >= n_removed).then_some(())
    })
    .await;
    removed.extend(bundle.prune(needed, settings, now).await.unwrap());
    let indices = commits.iter().enumerate();
    let indices = indices.filter(|(_, commit)| removed.contains(*commit));
    indices.map(|(index, _)| index).collect()
}

fn on_disk(world: &World, commits: &[CommitId]) -> Vec<bool> {
    let versions = world.base().join("versions");
    let is_there = |commit: &CommitId| versions.join(commit.as_str()).exists();
    commits.iter().map(is_there).collect()
}

#[tokio::test]
async fn old_unused_versions_are_removed() {
    let (world, bundle, commits) = with_versions(5).await;
    let needed = BTreeSet::from([commits[0].clone()]);
    let used = world.bundle();
    let used = used.check_out(&commits[1], later(&world, 10)).await;
    let now = later(&world, 131);
    let removed = prune(&bundle, &needed, &KEEP_NONE, now, &commits, 2).await;
    assert_eq!(removed, [2, 3]);
    assert_eq!(on_disk(&world, &commits), [true, true, false, false, true]);
    drop(used);
    let settings = PruneSettings {
        min_versions: 1,
        ..KEEP_NONE
    };
    let (none, now) = (BTreeSet::new(), later(&world, 9_999));
    let removed = prune(&bundle, &none, &settings, now, &commits, 2).await;
    assert_eq!(removed, [0, 1]);
    let tracking = world.storage().join("_tracking/test");
    assert_eq!(fs::read_dir(tracking).unwrap().count(), 1);
    let refs = fs::read_dir(world.base().join("bare/refs/longshore/versions"));
    assert_eq!(refs.unwrap().count(), 1);
    // What was removed comes back, without the remote.
    fs::remove_dir_all(world.remote()).unwrap();
    let tree = bundle.check_out(&commits[0], now).await.unwrap();
    assert_eq!(world::read(&tree, "a"), "0");
}

#[tokio::test]
async fn a_kill_between_any_two_steps_of_a_prune_is_made_good() {
    for n_done in 0..=PRUNE_STEPS.len() {
        let (world, bundle, commits) = with_versions(1).await;
        let (none, now) = (BTreeSet::new(), later(&world, 9_999));
        let killed = world.bundle_with(|it| it.stop = world::stop_after(n_done));
        let outcome = eventually(async || {
            let outcome = killed.prune(&none, &KEEP_NONE, now).await;
            let is_skipped = matches!(&outcome, Ok(removed) if removed.is_empty());
            (!is_skipped).then_some(outcome)
        });
        assert_eq!(outcome.await.is_ok(), n_done == PRUNE_STEPS.len());
        // A process that needs the version gets a whole one.
        if n_done % 2 == 0 {
            let tree = bundle.check_out(&commits[0], world.now()).await.unwrap();
            assert_eq!(world::read(&tree, "a"), "0", "after {n_done} steps");
        }
        let tracking = world.storage().join("_tracking/test");
        let is_empty = |path: &std::path::Path| fs::read_dir(path).map_or(0, Iterator::count) == 0;
        eventually(async || {
            bundle.prune(&none, &KEEP_NONE, now).await.unwrap();
            is_empty(&tracking).then_some(())
        })
        .await;
        assert_eq!(on_disk(&world, &commits), [false]);
        assert!(is_empty(&world.base().join("trash")));
    }
}

#[tokio::test]
async fn a_version_that_airflow_begins_to_use_meanwhile_stays() {
    let (world, bundle, commits) = with_versions(1).await;
    let tracking = world.storage().join("_tracking/test");
    let tracking = tracking.join(commits[0].as_str());
    let unused = eventually(async || Unused::take(&tracking).unwrap()).await;
    assert!(unused.is_still());
    // Airflow replaces the tracking file, and locks the new one.
    longshore_files::replace(&tracking, 0o600, b"2027-01-15T08:00:00+00:00").unwrap();
    assert!(!unused.is_still());
    let step = crate::git::steps::PruneStep::MoveToTrash;
    let is_moved = bundle.prune_step(step, &commits[0], &unused).await;
    assert!(!is_moved.unwrap());
    assert_eq!(on_disk(&world, &commits), [true]);
    let written = crate::git::lock::last_used(&tracking).unwrap();
    assert_eq!(written.to_string(), "2027-01-15T08:00:00Z");
}

#[tokio::test]
async fn a_tracking_file_that_cannot_be_read_counts_from_when_it_was_written() {
    let (world, bundle, commits) = with_versions(1).await;
    let tracking = world.storage().join("_tracking/test");
    fs::write(tracking.join(commits[0].as_str()), "half a ti").unwrap();
    let (none, early, late) = (BTreeSet::new(), Timestamp::UNIX_EPOCH, Timestamp::MAX);
    for (now, expected) in [(early, &[] as &[usize]), (late, &[0])] {
        let n_removed = expected.len();
        let removed = prune(&bundle, &none, &KEEP_NONE, now, &commits, n_removed).await;
        assert_eq!(removed, expected);
    }
}
