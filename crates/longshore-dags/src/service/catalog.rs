//! The DAGs of the service: the folder that they come from, the list of them, pausing.

use std::{io, path::Path};

use jiff::Timestamp;
use longshore_store::RunDetails;
use tokio::sync::watch;

use super::Dags;
use crate::{
    catalog::{KnownDag, pools::FolderPools},
    folder::{DagFile, DagFolder},
};

/// There is no DAG of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no DAG `{0}`")]
pub struct UnknownDag(pub String);

impl Dags {
    /// Follows a folder of DAG files, lets the schedules of its DAGs make runs (without it none does), and makes the pools
    /// what its file of pools says. To be called once.
    ///
    /// # Errors
    /// There is no folder.
    pub fn follow(&self, folder: &Path) -> io::Result<()> {
        let folder = DagFolder::open(folder)?;
        let shared = self.shared.clone();
        let (says, said) = watch::channel(FolderPools::Unreadable);
        let report = move |news: Vec<DagFile>| {
            let now = shared.clock.now();
            let mut catalog = shared.catalog_mut();
            catalog.update_files(news, now);
            says.send_replace(catalog.folder_pools());
            drop(catalog);
            shared.inbox.wake();
        };
        self.follow_pools(said);
        let following = folder.follow(report, self.tasks.shutdown());
        self.tasks.spawn("dags.folder", following);
        Ok(())
    }

    /// Waits until the folder that is [followed](Self::follow) was looked at, and what was found is recorded.
    pub async fn first_look(&self) {
        loop {
            let committed = self.shared.committed.notified();
            if self.shared.catalog().has_looked() {
                return;
            }
            committed.await;
        }
    }

    /// Every DAG that was ever in the folder, by name, then the files that are no DAGs, each with what is wrong.
    pub fn dags(&self) -> Vec<KnownDag> {
        self.shared.catalog().known()
    }

    /// One DAG.
    pub fn dag(&self, dag_id: &str) -> Option<KnownDag> {
        self.shared.catalog().known_dag(dag_id)
    }

    /// What a run of a DAG has beside the rest, where a user creates it at this time.
    pub fn manual_details(&self, dag_id: &str, at: Timestamp) -> RunDetails {
        self.shared.catalog().manual_details(dag_id, at)
    }

    /// Holds the schedule of a DAG, or lets it go on. Its runs go on either way. Returns when that is recorded, so it
    /// waits while the database does not respond.
    ///
    /// *Cancellation*: a caller that goes away may find it done or not.
    pub async fn set_paused(&self, dag_id: &str, is_paused: bool) -> Result<(), UnknownDag> {
        {
            let mut catalog = self.shared.catalog_mut();
            let entry = catalog.entry(dag_id);
            let entry = entry.ok_or_else(|| UnknownDag(dag_id.to_owned()))?;
            if entry.row.is_paused == is_paused && !catalog.is_pausing(dag_id) {
                return Ok(());
            }
            catalog.pause(dag_id, is_paused);
        }
        self.shared.inbox.wake();
        loop {
            let committed = self.shared.committed.notified();
            if !self.shared.catalog_mut().is_pausing(dag_id) {
                return Ok(());
            }
            committed.await;
        }
    }
}
