//! `<data-dir>/storage.yaml`: the stores of the URLs of inputs and outputs, for the TaskAction
//! executor of this machine. It has the keys of the peer's section `storage`.

use std::{path::Path, sync::Arc};

use longshore_object_store::{Storage, StorageConfig, StorageConfigError, without_value};
use longshore_outbound::Permit;

use crate::error::CliError;

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageFileError {
    #[error("cannot read {path}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} is not valid: {message}")]
    Parse { path: String, message: String },
    #[error("{path} is not valid")]
    Config {
        path: String,
        source: StorageConfigError,
    },
}

/// The stores of a configuration, for the actions of a cluster. Requests are sent to them for as long as `permit` holds.
pub(crate) fn open(config: &StorageConfig, permit: Permit) -> Result<Arc<Storage>, CliError> {
    let storage = Storage::of_cluster(config, environment());
    let storage = storage.map_err(|source| CliError::engine("the storage of tasks", source))?;
    Ok(Arc::new(storage.with_permit(permit)))
}

/// The stores of a data directory; files of this machine where it says nothing.
pub(crate) fn storage(data_dir: &Path) -> Result<Arc<Storage>, CliError> {
    let path = data_dir.join("storage.yaml");
    if !path.exists() {
        return Ok(Arc::default());
    }
    let storage = read(&path).map_err(|source| CliError::engine("the storage of tasks", source))?;
    Ok(Arc::new(storage))
}

fn read(file: &Path) -> Result<Storage, StorageFileError> {
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| StorageFileError::Read {
        path: path(),
        source,
    })?;
    let config: StorageConfig =
        serde_saphyr::from_str(&text).map_err(|error| StorageFileError::Parse {
            path: path(),
            // Not the lines around the place, which have the keys.
            message: without_value(&error.without_snippet().to_string()),
        })?;
    Storage::new(&config, environment()).map_err(|source| StorageFileError::Config {
        path: path(),
        source,
    })
}

/// Where libraries of stores look for credentials that the file does not have.
fn environment() -> impl Iterator<Item = (String, String)> {
    let variables = std::env::vars_os();
    variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
