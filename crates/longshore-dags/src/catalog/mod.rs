//! Which DAGs are known: the rows of table `dag` in memory, with what the folder says and what people ask for.
//!
//! The folder and people say how things are to be, at any time and as often as they like ([`Catalog::tell`],
//! [`Catalog::pause`]); [`rows`] decides which rows are to change for it, [`due`] which runs the schedules make. Both are
//! part of the scheduler's round, so that a run is created in the transaction in which its schedule goes on, and rows
//! here change only after their commit.

pub(crate) mod due;
mod files;
mod known;
pub(crate) mod rows;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_store::{Dag as Row, NextRun as StoredRun};

pub use known::KnownDag;

use crate::{
    folder::{DagFile, FileState},
    model::Dag,
    timetable::{DataInterval, NextRun, Restriction},
};

/// A DAG as the database has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its row, without the document.
    pub(crate) row: Row,
    /// Its last document without errors; `None` where this version cannot read it.
    pub(crate) dag: Option<Arc<Dag>>,
}

/// A file as it was told last.
#[derive(Clone, Debug)]
struct Told {
    state: FileState,
    at: Timestamp,
}

/// The committed DAGs, and what they are to become. A clone shares both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    entries: Arc<BTreeMap<String, Entry>>,
    /// The files of the folder by name; `None` before its first look, and where no folder is followed.
    files: Option<Arc<BTreeMap<String, Told>>>,
    /// Who is to be paused or not, where that was asked for and is not on record.
    pauses: BTreeMap<String, bool>,
    /// Counted up by everything that may make rows change.
    told: u64,
    /// Up to which of them the rows are as they are to be.
    settled: u64,
}

impl Catalog {
    /// The DAGs as the database has them.
    pub(crate) fn load(rows: Vec<Row>) -> Self {
        let mut catalog = Self::default();
        catalog.reload(rows);
        catalog
    }

    /// Takes over the rows of the database in place of those that are here.
    pub(crate) fn reload(&mut self, rows: Vec<Row>) {
        let read = |mut row: Row| {
            let document = row.document.take().unwrap_or_default();
            let dag = Dag::from_json(&document).inspect_err(|error| {
                tracing::warn!(dag_id = row.dag_id, %error, "a stored DAG cannot be read; its file is needed");
            });
            let dag = dag.ok().map(Arc::new);
            (row.dag_id.clone(), Entry { row, dag })
        };
        self.entries = Arc::new(rows.into_iter().map(read).collect());
        self.told += 1;
    }

    /// Notes what a look at the folder found.
    pub(crate) fn tell(&mut self, news: Vec<DagFile>, at: Timestamp) {
        let files = Arc::make_mut(self.files.get_or_insert_default());
        for DagFile { name, state } in news {
            match state {
                FileState::Removed => {
                    files.remove(&name);
                }
                FileState::Dag(_) | FileState::Broken(_) => {
                    files.insert(name, Told { state, at });
                }
            }
        }
        self.told += 1;
    }

    /// Notes that a DAG is to be paused, or not.
    pub(crate) fn pause(&mut self, dag_id: &str, is_paused: bool) {
        self.pauses.insert(dag_id.to_owned(), is_paused);
        self.told += 1;
    }

    /// Whether it was asked to pause this DAG, or not to, and that is not on record.
    pub(crate) fn is_pausing(&self, dag_id: &str) -> bool {
        self.pauses.contains_key(dag_id)
    }

    /// Whether the rows are as they are to be.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.told
    }

    /// Whether the folder was looked at, and rows are as it says.
    pub(crate) fn has_looked(&self) -> bool {
        self.files.is_some() && self.is_settled()
    }

    /// A DAG on record.
    pub(crate) fn entry(&self, dag_id: &str) -> Option<&Entry> {
        self.entries.get(dag_id)
    }

    /// Does what the commit of a round did: puts its rows in their places, with their versions counted up. `seen` is the
    /// catalog that the round was decided upon.
    pub(crate) fn apply(&mut self, committed: &[Entry], seen: u64) {
        if !committed.is_empty() {
            let entries = Arc::make_mut(&mut self.entries);
            for entry in committed {
                let mut entry = entry.clone();
                entry.row.document = None;
                entry.row.version += 1;
                entries.insert(entry.row.dag_id.clone(), entry);
            }
        }
        let entries = &self.entries;
        self.pauses.retain(|dag_id, is_paused| {
            let entry = entries.get(dag_id);
            entry.is_some_and(|entry| entry.row.is_paused != *is_paused)
        });
        self.settled = seen;
    }

    /// How much was told so far.
    pub(crate) fn told(&self) -> u64 {
        self.told
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
