//! The DAGs of a folder, as the HTTP API shows them.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use longshore_console::{ControlError, control::Pause};
use longshore_dags::{
    folder::{DagFile, DagFolder, FileState},
    model::Dag,
};
use longshore_kit::{Clock, SystemClock, Tasks};
use longshore_store::{Catalog, ParsedDag, Store};
use tokio::sync::mpsc;

use crate::{
    control::{Catalogue, KnownDag},
    error::CliError,
};

/// News of the folder that may wait.
const NEWS: usize = 64;

/// The DAGs of a folder. Which of them are paused is kept in the database.
#[derive(Debug)]
pub(crate) struct FolderCatalogue {
    store: Arc<Store>,
    /// By the names of their files.
    known: Mutex<BTreeMap<String, KnownDag>>,
}

impl FolderCatalogue {
    /// Reads the folder, and follows it from then on.
    pub(crate) async fn follow(
        folder: &Path,
        store: Arc<Store>,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, CliError> {
        let unusable = |source| CliError::DagsFolder {
            path: folder.to_owned(),
            source,
        };
        let mut files = DagFolder::open(folder).map_err(unusable)?;
        let first = files.look().map_err(unusable)?;
        let catalogue = Arc::new(Self {
            store,
            known: Mutex::default(),
        });
        for file in first {
            catalogue.take(file).await;
        }
        let (tell, mut news) = mpsc::channel(NEWS);
        tasks.spawn("dags.folder", files.follow(tell, tasks.shutdown()));
        let this = catalogue.clone();
        tasks.spawn("dags.catalogue", async move {
            while let Some(file) = news.recv().await {
                this.take(file).await;
            }
        });
        Ok(catalogue)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.known().len()
    }

    async fn take(&self, file: DagFile) {
        let DagFile { name, state } = file;
        match state {
            FileState::Dag(dag) => self.add(name, dag).await,
            FileState::Broken(why) => {
                tracing::warn!(
                    file = name,
                    why,
                    "a DAG file has problems; what it said before stays"
                );
            }
            FileState::Removed => {
                self.known().remove(&name);
            }
        }
    }

    async fn add(&self, name: String, dag: Arc<Dag>) {
        let parsed = ParsedDag {
            dag_id: dag.dag_id.clone(),
            file: Some(name.clone()),
            parsed_at: SystemClock.now(),
            error: None,
            document: Some(dag.to_json()),
            is_paused_upon_creation: false,
        };
        if let Err(error) = self.store.set_dag(&parsed).await {
            tracing::warn!(%error, dag_id = dag.dag_id, "a DAG is not recorded");
        }
        let is_paused = match self.store.dags().await {
            Ok(rows) => rows
                .iter()
                .any(|row| row.dag_id == dag.dag_id && row.is_paused),
            Err(_) => false,
        };
        let known = KnownDag {
            dag,
            file: Some(name.clone()),
            is_paused,
            next_run_at: None,
        };
        self.known().insert(name, known);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, KnownDag>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Catalogue for FolderCatalogue {
    fn dags(&self) -> Vec<KnownDag> {
        let mut dags: Vec<KnownDag> = self.known().values().cloned().collect();
        dags.sort_by(|a, b| a.dag.dag_id.cmp(&b.dag.dag_id));
        dags
    }

    fn dag(&self, dag_id: &str) -> Option<KnownDag> {
        let known = self.known();
        known
            .values()
            .find(|known| known.dag.dag_id == dag_id)
            .cloned()
    }

    async fn set_pause(&self, dag_id: &str, pause: Pause) -> Result<(), ControlError> {
        let is_paused = pause == Pause::Paused;
        let kept = self.store.set_paused(dag_id, is_paused).await;
        kept.map_err(|error| ControlError::Unavailable {
            what: "the database",
            source: Box::new(error),
        })?;
        for known in self.known().values_mut() {
            if known.dag.dag_id == dag_id {
                known.is_paused = is_paused;
            }
        }
        Ok(())
    }
}
