//! Installs cargo-deny from crates.io, once: a cache directory keeps the program.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::kube_build::cache_root;

/// The version that checks `deny.toml`.
const VERSION: &str = "0.20.2";

/// Why there is no cargo-deny.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DenyError {
    #[error("expected cargo on the path to install cargo-deny {VERSION}, it cannot be run")]
    NoCargo(#[source] io::Error),
    #[error("cargo install of cargo-deny {VERSION} ended with {status}: its own words are above")]
    Failed { status: ExitStatus },
    #[error("expected to write the cache directory {path}: set LONGSHORE_CACHE to another one")]
    Cache { path: PathBuf, source: io::Error },
}

/// Returns the program, and installs it if it is missing. A second process that calls this at the same time waits.
pub(crate) fn program() -> Result<PathBuf, DenyError> {
    let folder = cache_root().join(format!("cargo-deny-{VERSION}"));
    let cached = |source| DenyError::Cache {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(cached)?;
    let lock = File::create(folder.join(".lock")).map_err(cached)?;
    lock.lock().map_err(cached)?;
    let folder = fs::canonicalize(&folder).map_err(cached)?;
    let program = folder.join("bin/cargo-deny");
    // Cargo moves the program there when it is whole.
    if !program.exists() {
        install(&folder)?;
        let built = fs::remove_dir_all(target(&folder));
        built.map_err(cached)?;
    }
    Ok(program)
}

/// Not the target directory of the workspace, in which its files would stay.
fn target(folder: &Path) -> PathBuf {
    folder.join("target")
}

/// Without optimisation: it has the whole program optimised at link time, and the checks take seconds either way.
fn install(folder: &Path) -> Result<(), DenyError> {
    eprintln!("installing cargo-deny {VERSION} from crates.io: takes a minute, once");
    let mut command = Command::new("cargo");
    command
        .args(["install", "--locked", "--debug", "--quiet", "--root"])
        .arg(folder)
        .args(["--version", VERSION, "cargo-deny"])
        .env("CARGO_TARGET_DIR", target(folder))
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    // Standard output is for the path.
    let status = command.stdout(io::stderr()).status();
    let status = status.map_err(DenyError::NoCargo)?;
    if status.success() {
        Ok(())
    } else {
        Err(DenyError::Failed { status })
    }
}
