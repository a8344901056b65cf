//! A local folder, followed: every change is reported with the snapshot that it leads to.
//!
//! After every notification of the file system the whole folder is listed, so a lost notification does no harm; a look
//! at regular intervals covers file systems without notifications. Files are read only if their stamps changed.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    scan::{ScanError, Scanner},
    snapshot::{Diff, Snapshot},
};

/// How often a folder is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A look without a notification; default 300 s (`[dag_processor] refresh_interval`).
    pub rescan_interval: Duration,
    /// The folder is listed this long after a notification, because copying a folder makes many; default 200 ms.
    pub settle_time: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rescan_interval: Duration::from_secs(300),
            settle_time: Duration::from_millis(200),
        }
    }
}

/// What a look found.
#[derive(Clone, Debug)]
pub struct Look {
    /// The folder that was listed, free of symbolic links: paths of the snapshot lie below it.
    pub root: PathBuf,
    /// The files as they are now.
    pub snapshot: Arc<Snapshot>,
    /// What changed since the last look that found something.
    pub diff: Diff,
}

/// A folder of files, with what was found there last.
#[derive(Debug)]
pub struct LocalFolder {
    scanner: Scanner,
    last: Arc<Snapshot>,
    pace: Pace,
}

impl LocalFolder {
    /// A folder that nothing is known of yet. It need not exist.
    #[must_use]
    pub fn new(scanner: Scanner, pace: Pace) -> Self {
        Self {
            scanner,
            last: Arc::default(),
            pace,
        }
    }

    /// Lists the folder. The first look finds all files as added.
    ///
    /// # Errors
    /// The folder cannot be listed; what is known of it stays.
    pub fn look(&mut self, now: Timestamp) -> Result<Look, ScanError> {
        let root = self.scanner.real_root()?;
        let snapshot = Arc::new(self.scanner.scan(&self.last, now)?);
        let diff = snapshot.since(&self.last);
        self.last = Arc::clone(&snapshot);
        Ok(Look {
            root,
            snapshot,
            diff,
        })
    }

    /// Looks again and again until shutdown. Reports the first look, each that found a change, and each new reason why
    /// the folder cannot be listed, once. A folder that comes back is reported even if nothing in it changed.
    ///
    /// # Cancellation
    /// Safe: nothing is written.
    pub async fn follow<R, F>(
        self,
        clock: impl Fn() -> Timestamp + Send + Sync,
        report: R,
        shutdown: CancellationToken,
    ) where
        R: Fn(Result<Look, ScanError>) -> F + Send + Sync,
        F: Future<Output = ()> + Send,
    {
        let following = self.follow_for_ever(clock, report);
        shutdown.run_until_cancelled(following).await;
    }

    async fn follow_for_ever<R, F>(mut self, clock: impl Fn() -> Timestamp + Send + Sync, report: R)
    where
        R: Fn(Result<Look, ScanError>) -> F + Send + Sync,
        F: Future<Output = ()> + Send,
    {
        let changed = Arc::new(Notify::new());
        let mut watch = Watch::default();
        let mut reported: Option<Result<(), String>> = None;
        let pace = self.pace;
        loop {
            // Before the look: what changes during it is notified.
            watch.follow(&self.scanner, &changed);
            let now = clock();
            let looked = tokio::task::spawn_blocking(move || {
                let look = self.look(now);
                (self, look)
            });
            let Ok((this, look)) = looked.await else {
                return;
            };
            self = this;
            let outcome = match &look {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            let has_changed = look.as_ref().is_ok_and(|look| !look.diff.is_empty());
            if has_changed || reported.as_ref() != Some(&outcome) {
                report(look).await;
                reported = Some(outcome);
            }
            let _ = tokio::time::timeout(pace.rescan_interval, changed.notified()).await;
            tokio::time::sleep(pace.settle_time).await;
        }
    }
}

/// The notifications of one folder.
#[derive(Debug, Default)]
struct Watch {
    /// Held for as long as we follow, with the folder that it watches.
    watcher: Option<(RecommendedWatcher, Option<PathBuf>)>,
    has_warned: bool,
}

impl Watch {
    /// Watches the folder, where it really is now, and the folder that holds its name: a link there may turn, and a
    /// folder that is missing may come. Without notifications, the slow look remains.
    fn follow(&mut self, scanner: &Scanner, changed: &Arc<Notify>) {
        let real = scanner.real_root().ok();
        if let Some((_, watched)) = &self.watcher
            && *watched == real
            && real.is_some()
        {
            return;
        }
        match watch(scanner.root(), real.as_deref(), Arc::clone(changed)) {
            Ok(watcher) => self.watcher = Some((watcher, real)),
            Err(error) => {
                if !self.has_warned {
                    let folder = scanner.root().display();
                    tracing::warn!(%folder, %error, "changes of a bundle's folder are not notified");
                }
                self.has_warned = true;
                self.watcher = None;
            }
        }
    }
}

fn watch(
    root: &Path,
    real: Option<&Path>,
    changed: Arc<Notify>,
) -> notify::Result<RecommendedWatcher> {
    let notify = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            changed.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(notify)?;
    if let Some(parent) = root.parent().filter(|parent| parent.is_dir()) {
        watcher.watch(parent, RecursiveMode::NonRecursive)?;
    }
    if let Some(real) = real {
        watcher.watch(real, RecursiveMode::Recursive)?;
    }
    Ok(watcher)
}

#[cfg(test)]
mod tests;
