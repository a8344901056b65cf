//! What is done to the disk, one step after the other, as data. Pure.
//!
//! After each step the disk is fit for any other process, and the whole list may begin again from what is there.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::GitError;

/// One step of a refresh, under the lock of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloneStep {
    /// Removes what an earlier process left of a clone that it did not finish.
    ClearDraft,
    /// Moves a clone away that is none, instead of the one that was moved away before.
    SetAside,
    /// Makes an empty clone as a draft.
    InitDraft,
    /// Gives the draft its name.
    Publish,
    /// Removes lock files and drafts of packs that a killed git left. No git works on the clone now.
    ClearLeftovers,
    /// Writes the URL of the remote, without a password, into the clone, for Airflow's own processes.
    SetOrigin,
    /// Fetches all branches and tags.
    Fetch,
}

/// What there is of a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloneSeen {
    Absent,
    Complete,
    /// Something that is no git repository, which we did not make.
    Foreign,
}

/// The steps of a refresh.
pub(super) fn clone_steps(seen: CloneSeen) -> Vec<CloneStep> {
    use CloneStep::{ClearDraft, ClearLeftovers, Fetch, InitDraft, Publish, SetAside, SetOrigin};
    match seen {
        CloneSeen::Absent => vec![ClearDraft, InitDraft, Publish, SetOrigin, Fetch],
        CloneSeen::Foreign => vec![SetAside, ClearDraft, InitDraft, Publish, SetOrigin, Fetch],
        CloneSeen::Complete => vec![ClearLeftovers, SetOrigin, Fetch],
    }
}

/// One step of making a work tree, under the lock of the work trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeStep {
    /// Removes what is half-made or half-removed.
    ClearDrafts,
    /// Moves a tree away that still has a `.git`: a process of Airflow did not finish it.
    SetAside,
    /// Lists the files of the commit, and refuses too many and too large ones.
    List,
    /// Gives the commit a ref of ours, so that it stays whatever the remote does.
    KeepCommit,
    /// Reads the commit into an index beside the draft.
    ReadTree,
    /// Writes the files into the draft.
    CheckOut,
    /// Makes the draft durable.
    Sync,
    /// Gives the draft its name.
    Publish,
}

/// What there is of a work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeSeen {
    Absent,
    Complete,
    HalfMade,
}

/// The steps that make a work tree.
pub(super) fn tree_steps(seen: TreeSeen) -> Vec<TreeStep> {
    use TreeStep::{CheckOut, ClearDrafts, KeepCommit, List, Publish, ReadTree, SetAside, Sync};
    let make = [
        ClearDrafts,
        List,
        KeepCommit,
        ReadTree,
        CheckOut,
        Sync,
        Publish,
    ];
    match seen {
        TreeSeen::Complete => Vec::new(),
        TreeSeen::Absent => make.to_vec(),
        TreeSeen::HalfMade => [SetAside].into_iter().chain(make).collect(),
    }
}

/// One step of removing a work tree, under both locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PruneStep {
    /// Takes the tree's name away, so that nobody begins to use it.
    MoveToTrash,
    /// Removes the files.
    Remove,
    /// Removes our ref of the commit.
    ForgetCommit,
    /// Removes the tracking file: the version is forgotten.
    Untrack,
}

/// The steps that remove a work tree, of which the first or more may have been done.
pub(super) const PRUNE_STEPS: [PruneStep; 4] = [
    PruneStep::MoveToTrash,
    PruneStep::Remove,
    PruneStep::ForgetCommit,
    PruneStep::Untrack,
];

/// Ends the work before a step, in tests.
#[derive(Debug, Default)]
pub(super) struct Stop {
    /// How many steps may be done still.
    #[cfg(test)]
    pub(super) left: Option<AtomicUsize>,
}

impl Stop {
    pub(super) fn before_step(&self) -> Result<(), GitError> {
        #[cfg(test)]
        if let Some(left) = &self.left {
            let one_less = |left: usize| left.checked_sub(1);
            let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
            return taken.map(|_| ()).map_err(|_| GitError::Stopped);
        }
        Ok(())
    }
}
