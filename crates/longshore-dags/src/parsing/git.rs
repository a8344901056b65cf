//! A bundle in a git repository: the commit that the tracked ref names, and those that runs are pinned to.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_bundles::{
    CommitId, Limits, Scanner, Snapshot,
    git::{GitBundle, GitError, WorkTree, schedule::RefreshPace},
    local::Look,
};
use longshore_core::error::chain;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::bundle::{Following, ScannedTree};
use crate::base::shared::Shared;

/// The fetches of a repository.
struct Fetches<'a> {
    git: &'a GitBundle,
    following: Settings,
    /// The commit whose files were told last, and these files.
    last: Option<(CommitId, Arc<Snapshot>)>,
    pruned_at: Timestamp,
}

/// What the fetches need of the loop of the bundle.
struct Settings {
    shared: Arc<Shared>,
    parsing: super::ParsingSettings,
    name: longshore_bundles::BundleName,
}

/// Follows the repository until shutdown.
pub(super) async fn follow(
    following: Following,
    git: &GitBundle,
    refresh_interval: Duration,
    shutdown: CancellationToken,
) {
    let pace = RefreshPace {
        interval: refresh_interval,
        ..RefreshPace::default()
    };
    let settings = Settings {
        shared: Arc::clone(following.shared()),
        parsing: following.settings().clone(),
        name: following.name().clone(),
    };
    let fetches = Fetches {
        git,
        pruned_at: settings.shared.clock.now(),
        following: settings,
        last: None,
    };
    let (tell, told) = mpsc::channel(1);
    let stop = shutdown.clone();
    let fetching = async move {
        stop.run_until_cancelled(fetches.run(pace, tell)).await;
    };
    tokio::join!(fetching, following.run(told, shutdown));
}

impl Fetches<'_> {
    async fn run(mut self, pace: RefreshPace, tell: mpsc::Sender<ScannedTree>) {
        let mut n_failures = 0;
        loop {
            let looked = self.look().await;
            let wait = match looked {
                Ok(seen) => {
                    n_failures = 0;
                    if let Some(seen) = seen
                        && tell.send(seen).await.is_err()
                    {
                        return;
                    }
                    pace.wait(None, 0)
                }
                Err(error) => {
                    n_failures += 1;
                    let bundle = &self.following.name;
                    tracing::warn!(%bundle, error = chain(&error), "a bundle cannot be refreshed; its DAGs stay as they are");
                    pace.wait(Some(&error), n_failures)
                }
            };
            self.prune_if_due().await;
            tokio::time::sleep(wait).await;
        }
    }

    /// Fetches, and checks out the tracked commit where it is another one. Where the remote is gone, what was fetched
    /// before is looked at once, so that a restart without a remote knows its DAGs.
    async fn look(&mut self) -> Result<Option<ScannedTree>, GitError> {
        let last = self.last.as_ref().map(|(commit, _)| commit);
        let commit = match self.git.refresh(last).await {
            Ok(refreshed) => refreshed.commit,
            Err(error) if self.last.is_none() => match self.git.tracked().await {
                Ok(commit) => {
                    tracing::warn!(bundle = %self.following.name, error = chain(&error), "a bundle is used as it was fetched before");
                    commit
                }
                Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        if last == Some(&commit) {
            return Ok(None);
        }
        let now = self.following.shared.clock.now();
        let tree = self.git.check_out(&commit, now).await?;
        Ok(self.scan(commit, tree, now).await)
    }

    async fn scan(
        &mut self,
        commit: CommitId,
        tree: WorkTree,
        now: Timestamp,
    ) -> Option<ScannedTree> {
        let before = self.last.as_ref().map(|(_, snapshot)| Arc::clone(snapshot));
        let before = before.unwrap_or_default();
        let syntax = self.following.parsing.ignore_syntax;
        let scanner = Scanner::new(&tree.root, syntax, Limits::default());
        let scanning = tokio::task::spawn_blocking(move || {
            let root = scanner.real_root()?;
            let snapshot = Arc::new(scanner.scan(&before, now)?);
            let diff = snapshot.since(&before);
            Ok(Look {
                root,
                snapshot,
                diff,
            })
        });
        let look: Result<Look, longshore_bundles::ScanError> = match scanning.await {
            Ok(look) => look,
            Err(error) => {
                tracing::error!(bundle = %self.following.name, %error, "a look at a bundle is lost");
                return None;
            }
        };
        match look {
            Ok(look) => {
                self.last = Some((commit.clone(), Arc::clone(&look.snapshot)));
                Some(ScannedTree {
                    look,
                    version: Some(commit.as_str().to_owned()),
                    tree: Some(Arc::new(tree)),
                })
            }
            Err(error) => {
                tracing::warn!(bundle = %self.following.name, error = chain(&error), "the files of a commit cannot be read");
                None
            }
        }
    }

    /// Removes old work trees from the disk. Those that unfinished runs are pinned to stay.
    async fn prune_if_due(&mut self) {
        let now = self.following.shared.clock.now();
        let settings = &self.following.parsing.prune;
        let is_due = settings
            .next_round(self.pruned_at)
            .is_some_and(|at| at <= now);
        if !is_due {
            return;
        }
        self.pruned_at = now;
        let board = self.following.shared.board();
        let runs = board.runs.values();
        let pinned = runs.filter_map(|active| active.run.details.bundle_version.as_deref());
        let mut needed: BTreeSet<CommitId> = pinned.filter_map(|it| it.parse().ok()).collect();
        needed.extend(self.last.as_ref().map(|(commit, _)| commit.clone()));
        match self.git.prune(&needed, settings, now).await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => {
                tracing::info!(bundle = %self.following.name, n_removed = removed.len(), "old commits were removed from the disk");
            }
            Err(error) => {
                tracing::warn!(bundle = %self.following.name, error = chain(&error), "old commits stay on the disk");
            }
        }
    }
}
