//! The DAGs as people see them.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_store::{DocumentHash, ImportError, RunDetails};

use super::{Catalog, Entry, ReadFile, files, next_run};
use crate::{folder::FileState, model::Dag, timetable::NextRun};

/// A DAG that is known, or a file that should be one.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownDag {
    /// Its name; `None` for a file that never was a DAG, or that has the name of another file's DAG.
    pub dag_id: Option<String>,
    /// What its file said when it was last without errors: what a run is made of.
    pub dag: Option<Arc<Dag>>,
    /// The document that a run of it is pinned to; `None` where `dag` is.
    pub dag_hash: Option<DocumentHash>,
    /// Its file, relative to the folder, `/` between the parts; `None` once that is gone.
    pub file: Option<String>,
    /// Whether its schedule is held.
    pub is_paused: bool,
    /// The next run of its schedule; `None` where none is to come as things are: no schedule, paused, the file gone or
    /// broken. One in the past waits for a run to end.
    pub next_run: Option<NextRun>,
    /// What is wrong with the file, for people, one problem a line.
    pub error: Option<String>,
    /// When the file was last read and found to be another.
    pub parsed_at: Timestamp,
}

impl Catalog {
    /// Every DAG by name, then the files that are none.
    pub(crate) fn known(&self) -> Vec<KnownDag> {
        let owners = files::owners(self);
        let dags = self.entries.values().map(known_dag);
        let files = self.files.iter().flat_map(|files| files.iter());
        let others = files.filter_map(|(name, read)| {
            let error = match &read.state {
                FileState::Dag(dag) => {
                    let of_bundle = self.entry(&dag.dag_id).and_then(Entry::bundle_file);
                    let (owner, _) = owners.get(dag.dag_id.as_str())?;
                    let holder = of_bundle.map_or(*owner, |(_, file)| file);
                    (holder != name).then(|| files::duplicate(dag, holder))?
                }
                FileState::Broken(why) => {
                    let is_owner = owners.values().any(|(owner, _)| owner == name);
                    (!is_owner).then(|| why.clone())?
                }
                FileState::Pools(_) => files::second_pools(name, self.pools_file()?)?,
                FileState::Removed => return None,
            };
            Some(known_file(name, read, error))
        });
        let imports = self.bundles.errors.values();
        let imports = imports.filter(|error| !self.is_said_of_a_dag(error));
        let imports = imports.map(known_import_error);
        dags.chain(others).chain(imports).collect()
    }

    /// Whether a DAG of the file says that its file has an error.
    fn is_said_of_a_dag(&self, error: &ImportError) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| {
            let is_it = |(bundle, file)| bundle == error.key.bundle && file == error.key.file;
            entry.row.error.is_some() && entry.bundle_file().is_some_and(is_it)
        })
    }

    /// What a run of a DAG has beside the rest, where a user creates it at this time.
    pub(crate) fn manual_details(&self, dag_id: &str, at: Timestamp) -> RunDetails {
        let entry = self.entry(dag_id);
        let details = entry.and_then(|entry| {
            let interval = entry.dag.as_ref()?.timetable.manual_interval(at);
            Some(entry.run_details(at, interval))
        });
        details.unwrap_or_default()
    }

    /// One DAG.
    pub(crate) fn known_dag(&self, dag_id: &str) -> Option<KnownDag> {
        self.entry(dag_id).map(known_dag)
    }
}

fn known_dag(entry: &Entry) -> KnownDag {
    let row = &entry.row;
    let next_run = row.next_run.map(next_run);
    KnownDag {
        dag_id: Some(row.dag_id.clone()),
        dag: entry.dag.clone(),
        dag_hash: entry.dag.is_some().then(|| row.document_hash.clone()),
        file: row.file.clone(),
        is_paused: row.is_paused,
        next_run: next_run.filter(|_| super::due::is_active(entry)),
        error: row.error.clone(),
        parsed_at: row.parsed_at,
    }
}

fn known_import_error(error: &ImportError) -> KnownDag {
    KnownDag {
        dag_id: None,
        dag: None,
        dag_hash: None,
        file: Some(error.key.file.clone()),
        is_paused: false,
        next_run: None,
        error: Some(error.error.clone()),
        parsed_at: error.seen_at,
    }
}

fn known_file(name: &str, read: &ReadFile, error: String) -> KnownDag {
    KnownDag {
        dag_id: None,
        dag: None,
        dag_hash: None,
        file: Some(name.to_owned()),
        is_paused: false,
        next_run: None,
        error: Some(error),
        parsed_at: read.at,
    }
}
