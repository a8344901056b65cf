//! Gets the foreign clients that the embedded cluster is tried with, once: programs of Go, the client for Python, and
//! the libraries of fabric8 for Java. Files in `crates/longshore/tests/clients` pin them, a cache directory keeps them.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::{
    python::{self, PythonError},
    repository,
};

/// Where the sources are, from the root of the repository.
const SOURCES: &str = "crates/longshore/tests/clients";
const REQUIREMENTS: &str = "crates/longshore/tests/clients/python/requirements.txt";
/// What the programs are built of.
const PACKAGES: [&str; 3] = ["./client", "./manager", "helm.sh/helm/v3/cmd/helm"];
/// A file in a folder that is whole: the sources that it was made of.
const MADE_OF: &str = "made-of.txt";

/// Why there are no clients.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientsError {
    #[error("expected {program} on the path, it cannot be run: install {advice}")]
    Missing {
        program: &'static str,
        advice: &'static str,
        source: io::Error,
    },
    #[error("{program} ended with {status}: its own words are above")]
    Failed {
        program: &'static str,
        status: ExitStatus,
    },
    #[error("expected to read {path}")]
    Sources { path: PathBuf, source: io::Error },
    #[error("expected to write the cache directory {path}: set LONGSHORE_CACHE to another one")]
    Cache { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Python(#[from] PythonError),
}

/// Returns a directory with `bin` (helm, client, manager), `java` (jars) and `venv`, and makes what is missing or was
/// made of other sources. A second process that calls this at the same time waits.
pub(crate) fn folder() -> Result<PathBuf, ClientsError> {
    let venv = python::environment("foreign-clients", REQUIREMENTS)?;
    let folder = venv.parent().unwrap_or(&venv).to_owned();
    let path = folder.join(".lock-of-programs");
    let cached = |source| ClientsError::Cache {
        path: path.clone(),
        source,
    };
    let lock = File::create(&path).map_err(cached)?;
    lock.lock().map_err(cached)?;
    once(&folder.join("bin"), "go", build)?;
    once(&folder.join("java"), "java/pom.xml", resolve)?;
    Ok(folder)
}

/// Makes a folder of these sources, unless it is there.
fn once(
    folder: &Path,
    sources: &str,
    make: fn(sources: &Path, folder: &Path) -> Result<(), ClientsError>,
) -> Result<(), ClientsError> {
    let sources = repository::root().join(SOURCES).join(sources);
    let wanted = text_of(&sources).map_err(|source| ClientsError::Sources {
        path: sources.clone(),
        source,
    })?;
    let mark = folder.join(MADE_OF);
    if fs::read_to_string(&mark).is_ok_and(|made_of| made_of == wanted) {
        return Ok(());
    }
    let cached = |source| ClientsError::Cache {
        path: folder.to_owned(),
        source,
    };
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(cached)?;
    }
    fs::create_dir_all(folder).map_err(cached)?;
    make(&sources, folder)?;
    fs::write(mark, wanted).map_err(cached)
}

/// All files of a folder, each after its name, or one file.
fn text_of(path: &Path) -> io::Result<String> {
    if path.is_file() {
        return fs::read_to_string(path);
    }
    let mut entries = fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    let mut text = String::new();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        text += "== ";
        text += &name;
        text += "\n";
        text += &text_of(&entry)?;
    }
    Ok(text)
}

fn build(sources: &Path, folder: &Path) -> Result<(), ClientsError> {
    eprintln!("building Helm and the clients for Go from the Go module proxy: takes minutes, once");
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"])
        .args(["-ldflags", "-s -w", "-o"])
        .arg(folder)
        .args(PACKAGES)
        .current_dir(sources)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off");
    run("go", "Go 1.24 or newer", &mut go)
}

/// The script itself is compiled when it runs.
fn resolve(pom: &Path, folder: &Path) -> Result<(), ClientsError> {
    eprintln!("getting fabric8 from Maven Central: takes a minute, once");
    let mut output = OsString::from("-DoutputDirectory=");
    output.push(folder);
    let mut maven = Command::new("mvn");
    maven
        .args(["-B", "-q", "-f"])
        .arg(pom)
        .arg("dependency:copy-dependencies")
        .arg(output);
    run("mvn", "Maven and a JDK 17 or newer", &mut maven)
}

/// Standard output is for the path.
fn run(
    program: &'static str,
    advice: &'static str,
    command: &mut Command,
) -> Result<(), ClientsError> {
    let status = command.stdout(io::stderr()).status();
    let status = status.map_err(|source| ClientsError::Missing {
        program,
        advice,
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(ClientsError::Failed { program, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once_for_the_same_sources() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let make = |_: &Path, folder: &Path| {
            assert!(!folder.join("file").exists(), "nothing of before is left");
            fs::write(folder.join("file"), "").unwrap();
            Ok(())
        };
        once(&made, "go", make).unwrap();
        fs::write(made.join("file"), "kept").unwrap();
        once(&made, "go", make).unwrap();
        assert_eq!(fs::read_to_string(made.join("file")).unwrap(), "kept");
        once(&made, "python", make).unwrap();
        assert_eq!(fs::read_to_string(made.join("file")).unwrap(), "");
    }

    #[test]
    fn the_sources_of_a_folder_are_all_its_files() {
        let text = text_of(&repository::root().join(SOURCES).join("go")).unwrap();
        for part in [
            "== go.mod\n",
            "== go.sum\n",
            "== client\n== definitions.go\n",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
