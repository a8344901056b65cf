//! Installs the Flyte SDK from PyPI into a virtual environment, once: `requirements.txt` pins it and a server that
//! speaks S3, and a cache directory keeps them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::{kube_build::cache_root, repository};

/// What is installed, with versions, from the root of the repository.
const REQUIREMENTS: &str = "crates/longshore/testdata/flyte/requirements.txt";
/// A file in a virtual environment that is whole: the requirements that it was made for.
const INSTALLED: &str = "installed.txt";

/// Why there is no virtual environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SdkError {
    #[error(
        "expected python3 on the path for the Flyte SDK, it cannot be run: install Python 3.10 or newer"
    )]
    NoPython(#[source] io::Error),
    #[error("{what} ended with {status}: its own words are above")]
    Failed {
        what: &'static str,
        status: ExitStatus,
    },
    #[error("expected to read {REQUIREMENTS}")]
    Requirements(#[source] io::Error),
    #[error("expected to write the cache directory {path}: set LONGSHORE_CACHE to another one")]
    Cache { path: PathBuf, source: io::Error },
}

/// Returns the virtual environment, and makes it if it is missing or was made for other versions. A
/// second process that calls this at the same time waits.
pub(crate) fn environment() -> Result<PathBuf, SdkError> {
    let folder = cache_root().join("flyte-sdk");
    let cached = |source| SdkError::Cache {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(cached)?;
    let lock = File::create(folder.join(".lock")).map_err(cached)?;
    lock.lock().map_err(cached)?;
    let file = repository::root().join(REQUIREMENTS);
    let wanted = fs::read_to_string(&file).map_err(SdkError::Requirements)?;
    // Scripts in it name the path of their Python.
    let folder = fs::canonicalize(&folder).map_err(cached)?;
    let venv = folder.join("venv");
    let mark = venv.join(INSTALLED);
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(venv);
    }
    install(&venv, &file)?;
    fs::write(mark, wanted).map_err(cached)?;
    Ok(venv)
}

fn install(venv: &Path, requirements: &Path) -> Result<(), SdkError> {
    eprintln!("installing the Flyte SDK from PyPI: takes a minute, once");
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
fn run(what: &'static str, command: &mut Command) -> Result<(), SdkError> {
    let status = command.stdout(io::stderr()).status();
    let status = status.map_err(SdkError::NoPython)?;
    if status.success() {
        Ok(())
    } else {
        Err(SdkError::Failed { what, status })
    }
}
