//! Which DAGs are known: the rows of table `dag` in memory, with the files of the folder and the requests of users.
//!
//! DAGs come from container DAG files of the folder, and from Python files of bundles: `bundles` has what is known of
//! those, [`parsed`] decides which rows change because of them.
//!
//! [`Catalog::update_files`] and [`Catalog::pause`] note what the folder holds and what users request, at any time.
//! [`rows`] decides which rows change because of that, and [`due`] which runs the schedules create. Both belong to the
//! scheduler's round: one transaction creates a run and advances its schedule, and the rows here change only after that
//! transaction.

mod bundles;
pub(crate) mod due;
mod files;
mod known;
pub(crate) mod parsed;
pub(crate) mod pools;
pub(crate) mod rows;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_store::{
    Bundle, BundleVersion, Changes, Dag as Row, DagVersion, DocumentHash, ImportError,
    NextRun as StoredRun, RunDetails, Snapshot, StoredDocument,
};

pub(crate) use bundles::{ParsedDag, ParsedUnit, SeenBundle};
pub use known::KnownDag;
use parsed::FileRows;

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
    /// The text of its file, where the database is to get it with the row.
    pub(crate) source: Option<StoredDocument>,
    /// Its last document without errors; `None` where this version cannot read it.
    pub(crate) dag: Option<Arc<Dag>>,
    /// The latest version that a Python file had of it. A container DAG of the same name may have come afterwards.
    pub(crate) version: Option<Arc<DagVersion>>,
}

impl Entry {
    /// Whether its last document came from a Python file.
    pub(crate) fn is_python(&self) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|version| version.document == self.row.document_hash)
    }

    /// The bundle and the Python file that hold it; `None` where none does.
    pub(crate) fn bundle_file(&self) -> Option<(&str, &str)> {
        let version = self.version.as_ref().filter(|_| self.is_python())?;
        Some((&version.bundle.as_ref()?.name, self.row.file.as_deref()?))
    }

    /// What a run of it has beside the rest. A run of a container DAG has nothing.
    pub(crate) fn run_details(&self, run_after: Timestamp, interval: DataInterval) -> RunDetails {
        let Some(version) = self.version.as_ref().filter(|_| self.is_python()) else {
            return RunDetails::default();
        };
        let dag = self.dag.as_ref().and_then(|dag| dag.python.as_ref());
        let is_pinned = dag.is_none_or(|dag| !dag.is_unpinned);
        let bundle = version.bundle.as_ref().filter(|_| is_pinned);
        RunDetails {
            run_after: Some(run_after),
            data_interval: Some(stored_interval(interval)),
            dag_version: Some(version.id),
            bundle_version: bundle.and_then(|bundle: &BundleVersion| bundle.version.clone()),
            ..RunDetails::default()
        }
    }
}

/// The rows about DAGs and their files, as the database has them.
#[derive(Debug, Default)]
pub(crate) struct StoredRows {
    /// DAGs.
    pub(crate) dags: Vec<Row>,
    /// At least the latest version of each DAG from Python.
    pub(crate) versions: Vec<DagVersion>,
    /// Bundles.
    pub(crate) bundles: Vec<Bundle>,
    /// Files with import errors.
    pub(crate) import_errors: Vec<ImportError>,
}

impl StoredRows {
    /// Those of a snapshot, which has them no more then.
    pub(crate) fn take(snapshot: &mut Snapshot) -> Self {
        Self {
            dags: std::mem::take(&mut snapshot.dags),
            versions: std::mem::take(&mut snapshot.dag_versions),
            bundles: std::mem::take(&mut snapshot.bundles),
            import_errors: std::mem::take(&mut snapshot.import_errors),
        }
    }

    /// The latest version of each DAG.
    fn latest(versions: Vec<DagVersion>) -> BTreeMap<String, DagVersion> {
        let mut latest: BTreeMap<String, DagVersion> = BTreeMap::new();
        for version in versions {
            let known = latest.get(&version.dag_id);
            if known.is_none_or(|known| known.number < version.number) {
                latest.insert(version.dag_id.clone(), version);
            }
        }
        latest
    }
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
    /// The bundles with Python files.
    bundles: bundles::Bundles,
    /// Whether DAGs are to be paused, where a user requested that and the rows do not have it yet.
    pauses: BTreeMap<String, bool>,
    /// Incremented by everything that may change rows.
    version: u64,
    /// The version that the rows correspond to.
    settled: u64,
}

impl Catalog {
    /// The DAGs as the database has them.
    pub(crate) fn load(rows: StoredRows, dags: &mut StoredDags) -> Self {
        let mut catalog = Self::default();
        catalog.reload(rows, dags);
        catalog
    }

    /// Takes over the rows of the database in place of those that are here.
    pub(crate) fn reload(&mut self, rows: StoredRows, dags: &mut StoredDags) {
        let mut versions = StoredRows::latest(rows.versions);
        let read = |row: Row| {
            let dag = dags.read(&row.document_hash).inspect_err(|error| {
                tracing::warn!(dag_id = row.dag_id, %error, "a stored DAG cannot be read; its file is needed");
            });
            let version = versions.remove(&row.dag_id).map(Arc::new);
            let entry = Entry {
                document: None,
                source: None,
                dag: dag.ok(),
                version,
                row,
            };
            (entry.row.dag_id.clone(), entry)
        };
        self.entries = Arc::new(rows.dags.into_iter().map(read).collect());
        let bundles = rows.bundles.into_iter();
        let bundles = bundles.map(|bundle| (bundle.name.clone(), bundle));
        self.bundles.rows = Arc::new(bundles.collect());
        let errors = rows.import_errors.into_iter();
        let errors = errors.map(|error| (error.key.clone(), error));
        self.bundles.errors = Arc::new(errors.collect());
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

    /// The version of a DAG that is to be written with its entry, where that is another than on record.
    pub(crate) fn changed_version<'a>(&self, entry: &'a Entry) -> Option<&'a Arc<DagVersion>> {
        let before = self.entry(&entry.row.dag_id);
        let before = before.and_then(|before| before.version.as_ref());
        entry.version.as_ref().filter(|now| before != Some(now))
    }

    /// Adds the rows of these entries, and those about files, to what a round commits.
    pub(crate) fn collect_into(&self, changes: &mut Changes, entries: &[Entry], files: FileRows) {
        let texts = |entry: &Entry| [entry.document.clone(), entry.source.clone()];
        let texts = entries.iter().flat_map(texts).flatten();
        changes.documents.extend(texts);
        changes.dags = entries.iter().map(|entry| entry.row.clone()).collect();
        let versions = entries.iter().filter_map(|it| self.changed_version(it));
        changes.dag_versions = versions.map(|version| DagVersion::clone(version)).collect();
        changes.bundles = files.bundles;
        changes.import_errors = files.import_errors;
        changes.mended = files.mended;
    }

    /// Takes over the rows that a round committed, with their versions incremented. `version` is that of the catalog that
    /// the round was decided upon.
    pub(crate) fn apply(&mut self, committed: &[Entry], changes: &Changes, version: u64) {
        let committed = committed.iter().map(|entry| {
            let has_version = self.changed_version(entry).is_some();
            let mut entry = entry.clone();
            (entry.document, entry.source) = (None, None);
            entry.row.version += 1;
            if let Some(version) = entry.version.as_mut().filter(|_| has_version) {
                Arc::make_mut(version).version += 1;
            }
            (entry.row.dag_id.clone(), entry)
        });
        let committed: Vec<_> = committed.collect();
        if !committed.is_empty() {
            Arc::make_mut(&mut self.entries).extend(committed);
        }
        self.bundles.apply(changes);
        let entries = &self.entries;
        self.bundles.forget_news(version, entries);
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
