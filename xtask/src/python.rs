//! Virtual environments of Python with packages from PyPI, each made once: a `requirements.txt` pins them, a cache
//! directory keeps them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::{kube_build::cache_root, repository};

/// A file in a virtual environment that is whole: the requirements that it was made for.
const INSTALLED: &str = "installed.txt";

/// Why there is no virtual environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PythonError {
    #[error("expected python3 on the path, it cannot be run: install Python 3.10 or newer")]
    NoPython(#[source] io::Error),
    #[error("{what} ended with {status}: its own words are above")]
    Failed {
        what: &'static str,
        status: ExitStatus,
    },
    #[error("expected to read {path}")]
    Requirements {
        path: &'static str,
        source: io::Error,
    },
    #[error("expected to write the cache directory {path}: set LONGSHORE_CACHE to another one")]
    Cache { path: PathBuf, source: io::Error },
}

/// Returns the virtual environment of this name with these requirements, a path from the root of the repository. Makes
/// it if it is missing or was made for other versions. A second process that calls this at the same time waits.
pub(crate) fn environment(
    name: &'static str,
    requirements: &'static str,
) -> Result<PathBuf, PythonError> {
    let folder = cache_root().join(name);
    let cached = |source| PythonError::Cache {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(cached)?;
    let lock = File::create(folder.join(".lock")).map_err(cached)?;
    lock.lock().map_err(cached)?;
    let file = repository::root().join(requirements);
    let wanted = fs::read_to_string(&file).map_err(|source| PythonError::Requirements {
        path: requirements,
        source,
    })?;
    // Scripts in it name the path of their Python.
    let folder = fs::canonicalize(&folder).map_err(cached)?;
    let venv = folder.join("venv");
    let mark = venv.join(INSTALLED);
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(venv);
    }
    eprintln!("installing what {requirements} names from PyPI: takes a minute, once");
    install(&venv, &file)?;
    fs::write(mark, wanted).map_err(cached)?;
    Ok(venv)
}

fn install(venv: &Path, requirements: &Path) -> Result<(), PythonError> {
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(venv);
    run("python3 -m venv", &mut make)?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ])
    .arg("--requirement")
    .arg(requirements);
    run("pip install", &mut pip)
}

/// Standard output is for the path.
fn run(what: &'static str, command: &mut Command) -> Result<(), PythonError> {
    let status = command.stdout(io::stderr()).status();
    let status = status.map_err(PythonError::NoPython)?;
    if status.success() {
        Ok(())
    } else {
        Err(PythonError::Failed { what, status })
    }
}
