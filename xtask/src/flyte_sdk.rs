//! Installs the Flyte SDK from PyPI into a virtual environment, once: `requirements.txt` pins it and a server that
//! speaks S3, and a cache directory keeps them.

use std::path::PathBuf;

use crate::python::{self, PythonError};

/// What is installed, with versions, from the root of the repository.
const REQUIREMENTS: &str = "crates/longshore/testdata/flyte/requirements.txt";

/// Returns the virtual environment, and makes it if it is missing or was made for other versions.
pub(crate) fn environment() -> Result<PathBuf, PythonError> {
    python::environment("flyte-sdk", REQUIREMENTS)
}
