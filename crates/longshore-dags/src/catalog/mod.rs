//! Which DAGs are known: the rows of table `dag` in memory, with the files of the folder and the requests of users.
//!
//! [`Catalog::update_files`] and [`Catalog::pause`] note what the folder holds and what users request, at any time.
//! [`rows`] decides which rows change because of that, and [`due`] which runs the schedules create. Both belong to the
//! scheduler's round: one transaction creates a run and advances its schedule, and the rows here change only after that
//! transaction.

pub(crate) mod due;
mod files;
mod known;
pub(crate) mod pools;
pub(crate) mod rows;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_store::{Dag as Row, DocumentHash, NextRun as StoredRun, StoredDocument};

pub use known::KnownDag;

use crate::{
    base::documents::StoredDags,
    folder::{DagFile, FileState},
    model::Dag,
    timetable::{DataInterval, NextRun, Restriction},
};

/// A DAG as the database has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its row.
    pub(crate) row: Row,
    /// The document of the row, where the database is to get it with the row.
    pub(crate) document: Option<StoredDocument>,
    /// Its last document without errors; `None` where this version cannot read it.
    pub(crate) dag: Option<Arc<Dag>>,
}

/// A file as the folder last reported it.
#[derive(Clone, Debug)]
struct ReadFile {
    state: FileState,
    at: Timestamp,
}

/// The committed DAGs, and the changes that are not committed yet. A clone shares the rows and the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    entries: Arc<BTreeMap<String, Entry>>,
    /// The files of the folder by name; `None` before its first look, and where no folder is followed.
    files: Option<Arc<BTreeMap<String, ReadFile>>>,
    /// Whether DAGs are to be paused, where a user requested that and the rows do not have it yet.
    pauses: BTreeMap<String, bool>,
    /// Incremented by everything that may change rows.
    version: u64,
    /// The version that the rows correspond to.
    settled: u64,
}

impl Catalog {
    /// The DAGs as the database has them.
    pub(crate) fn load(rows: Vec<Row>, dags: &mut StoredDags) -> Self {
        let mut catalog = Self::default();
        catalog.reload(rows, dags);
        catalog
    }

    /// Takes over the rows of the database in place of those that are here.
    pub(crate) fn reload(&mut self, rows: Vec<Row>, dags: &mut StoredDags) {
        let read = |row: Row| {
            let dag = dags.read(&row.document_hash).inspect_err(|error| {
                tracing::warn!(dag_id = row.dag_id, %error, "a stored DAG cannot be read; its file is needed");
            });
            let (dag_id, dag, document) = (row.dag_id.clone(), dag.ok(), None);
            (dag_id, Entry { row, dag, document })
        };
        self.entries = Arc::new(rows.into_iter().map(read).collect());
        self.version += 1;
    }

    /// Notes what a look at the folder found.
    pub(crate) fn update_files(&mut self, news: Vec<DagFile>, at: Timestamp) {
        let files = Arc::make_mut(self.files.get_or_insert_default());
        for DagFile { name, state } in news {
            match state {
                FileState::Removed => {
                    files.remove(&name);
                }
                FileState::Dag(_) | FileState::Pools(_) | FileState::Broken(_) => {
                    files.insert(name, ReadFile { state, at });
                }
            }
        }
        self.version += 1;
    }

    /// Notes that a DAG is to be paused, or not.
    pub(crate) fn pause(&mut self, dag_id: &str, is_paused: bool) {
        self.pauses.insert(dag_id.to_owned(), is_paused);
        self.version += 1;
    }

    /// Whether a user requested to pause this DAG, or to resume it, and its row does not have that yet.
    pub(crate) fn is_pausing(&self, dag_id: &str) -> bool {
        self.pauses.contains_key(dag_id)
    }

    /// Whether the rows correspond to the files and the requests.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.version
    }

    /// Whether the folder was looked at, and rows are as it says.
    pub(crate) fn has_looked(&self) -> bool {
        self.files.is_some() && self.is_settled()
    }

    /// A DAG on record.
    pub(crate) fn entry(&self, dag_id: &str) -> Option<&Entry> {
        self.entries.get(dag_id)
    }

    /// The DAGs on record by the hashes of their documents.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&DocumentHash, &Arc<Dag>)> {
        let entries = self.entries.values();
        entries.filter_map(|entry| Some((&entry.row.document_hash, entry.dag.as_ref()?)))
    }

    /// Takes over the rows that a round committed, with their versions incremented. `version` is that of the catalog that
    /// the round was decided upon.
    pub(crate) fn apply(&mut self, committed: &[Entry], version: u64) {
        if !committed.is_empty() {
            let entries = Arc::make_mut(&mut self.entries);
            for entry in committed {
                let mut entry = entry.clone();
                entry.document = None;
                entry.row.version += 1;
                entries.insert(entry.row.dag_id.clone(), entry);
            }
        }
        let entries = &self.entries;
        self.pauses.retain(|dag_id, is_paused| {
            let entry = entries.get(dag_id);
            entry.is_some_and(|entry| entry.row.is_paused != *is_paused)
        });
        self.settled = version;
    }

    /// Compared by [`apply`](Self::apply) and [`is_settled`](Self::is_settled).
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

/// The bounds that a DAG sets to its timetable.
fn restriction(dag: &Dag) -> Restriction {
    Restriction {
        earliest: dag.start_date,
        latest: dag.end_date,
        catchup: dag.catchup,
    }
}

/// The data interval as the database has it.
fn stored_interval(interval: DataInterval) -> (Timestamp, Timestamp) {
    (interval.start, interval.end)
}

/// A data interval of the database.
fn interval((start, end): (Timestamp, Timestamp)) -> DataInterval {
    DataInterval { start, end }
}

/// The next run as the database has it.
fn stored_run(run: NextRun) -> StoredRun {
    StoredRun {
        run_after: run.run_after,
        logical_date: Some(run.logical_date),
        data_interval: Some(stored_interval(run.data_interval)),
    }
}

/// A next run of the database.
fn next_run(stored: StoredRun) -> NextRun {
    NextRun {
        logical_date: stored.logical_date.unwrap_or(stored.run_after),
        data_interval: stored
            .data_interval
            .map_or(DataInterval::exact(stored.run_after), interval),
        run_after: stored.run_after,
    }
}

#[cfg(test)]
mod tests;
