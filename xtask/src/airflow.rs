//! Installs Airflow from PyPI into a virtual environment, once: `requirements.txt` pins it with the provider for
//! Kubernetes and that for git, and a cache directory keeps them.

use std::path::PathBuf;

use crate::python::{self, PythonError};

/// What is installed, with versions, from the root of the repository.
const REQUIREMENTS: &str = "crates/longshore-dags/testdata/python/requirements.txt";

/// Returns the virtual environment, and makes it if it is missing or was made for other versions.
pub(crate) fn environment() -> Result<PathBuf, PythonError> {
    python::environment("airflow", REQUIREMENTS)
}
