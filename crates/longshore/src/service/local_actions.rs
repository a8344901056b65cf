//! What the executor of TaskActions keeps on this machine, in place of Flyte's services: the events for the run
//! service, and the cached outputs.

use std::{path::Path, sync::Arc};

use longshore_kit::{Metrics, Namespaces, SystemClock};
use longshore_object_store::Storage;
use longshore_outbound::Permit;
use longshore_tasks::{
    Settings, Tasks,
    catalog::{EmbeddedCatalog, Limits},
    events::{BatchLimits, EventLog, LogLimits},
};

use super::actions;
use crate::{data_dir, error::CliError};

/// In what is kept of actions: the file of the catalog.
const CATALOG: &str = "catalog.redb";

/// The executor of the actions of a cluster that is all on this machine. The data directory is locked by the caller:
/// neither the log nor the catalog has a second writer.
pub(crate) fn executor(
    settings: Settings,
    data_dir: &Path,
    metrics: &Metrics,
    storage: Arc<Storage>,
) -> Result<Tasks, CliError> {
    let directory = data_dir::actions(data_dir);
    let directory =
        data_dir::make(&directory).map_err(|source| CliError::in_data_dir(directory, source))?;
    let log = EventLog::open(&data_dir::event_log(data_dir), LogLimits::default());
    let log = log.map_err(|source| CliError::engine("the event log of TaskActions", source))?;
    let catalog = EmbeddedCatalog::open(
        &directory.join(CATALOG),
        Arc::new(SystemClock),
        Limits::default(),
    );
    let catalog = catalog.map_err(|source| CliError::engine("the catalog of outputs", source))?;
    // One process at a time has the data directory.
    let permit = Permit::always();
    Ok(
        actions::executor(settings, Namespaces::All, metrics, storage, &permit)?
            .with_batched_events(Arc::new(log), BatchLimits::of_a_file())
            .with_catalog(Arc::new(catalog)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(data_dir: &Path) -> Result<Tasks, CliError> {
        executor(
            Settings::default(),
            data_dir,
            &Metrics::new(),
            Arc::default(),
        )
    }

    #[test]
    fn what_it_keeps_is_opened_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            open(directory.path()).unwrap();
        }
        assert!(directory.path().join("actions/events").is_dir());
        std::fs::write(directory.path().join("actions/catalog.redb"), "no catalog").unwrap();
        let error = open(directory.path()).unwrap_err();
        assert!(error.to_string().contains("catalog"), "{error}");
    }
}
