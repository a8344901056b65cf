//! Builds the programs of a real Kubernetes control plane from the Go module proxy, once: `kube/go.mod` pins them, a
//! cache directory keeps them. `KUBEBUILDER_ASSETS` names a directory of ready ones instead.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::repository;

/// The Go module that pins what is built.
const GO_MOD: &str = include_str!("../kube/go.mod");

/// A program of the control plane, or one that tests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The database under the API server. Distributions ship 3.4, whose watches are too old for it.
    Etcd,
    /// The API server.
    Apiserver,
    /// Garbage collection, namespaces, workloads.
    ControllerManager,
    /// Binds pods to nodes.
    Scheduler,
    /// The command line client.
    Kubectl,
    /// The servers and small tools that pods of Kubernetes' own tests run.
    Agnhost,
    /// Kubernetes' own conformance suite.
    Conformance,
}

impl Program {
    /// The name of its file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Apiserver => "kube-apiserver",
            Program::ControllerManager => "kube-controller-manager",
            Program::Scheduler => "kube-scheduler",
            Program::Kubectl => "kubectl",
            Program::Agnhost => "agnhost",
            Program::Conformance => "conformance.test",
        }
    }

    /// Its package: a main package, or one of tests.
    fn package(self) -> String {
        match self {
            Program::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            Program::Apiserver
            | Program::ControllerManager
            | Program::Scheduler
            | Program::Kubectl => format!("k8s.io/kubernetes/cmd/{}", self.name()),
            Program::Agnhost => "k8s.io/kubernetes/test/images/agnhost".to_owned(),
            Program::Conformance => "./conformance".to_owned(),
        }
    }

    /// The subcommand of `go` that builds it.
    fn subcommand(self) -> &'static [&'static str] {
        match self {
            Program::Etcd
            | Program::Apiserver
            | Program::ControllerManager
            | Program::Scheduler
            | Program::Kubectl
            | Program::Agnhost => &["build"],
            Program::Conformance => &["test", "-c"],
        }
    }

    /// What of it is in this repository: where that has changed, the program of the cache is too old.
    fn source(self) -> Option<&'static str> {
        match self {
            Program::Etcd
            | Program::Apiserver
            | Program::ControllerManager
            | Program::Scheduler
            | Program::Kubectl
            | Program::Agnhost => None,
            Program::Conformance => Some(include_str!("../kube/conformance/conformance_test.go")),
        }
    }

    /// Whether a directory has it, built from the source of today.
    fn is_in(self, folder: &Path) -> bool {
        let is_current = self.source().is_none_or(|source| {
            fs::read_to_string(self.copy_of_source(folder)).is_ok_and(|built| built == source)
        });
        is_current && folder.join(self.name()).is_file()
    }

    /// Where a directory has the source that it was built from.
    fn copy_of_source(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.source", self.name()))
    }
}

/// Why there are no programs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error(
        "expected go on the path to build {program}, it cannot be run: install Go 1.24 or newer, or set \
         KUBEBUILDER_ASSETS to a directory that holds {program}"
    )]
    NoGo {
        program: &'static str,
        source: io::Error,
    },
    #[error("go build of {program} ended with {status}: its own words are above")]
    Failed {
        program: &'static str,
        status: ExitStatus,
    },
    #[error("expected {program} in KUBEBUILDER_ASSETS, found no file {path}")]
    NotAmongAssets {
        program: &'static str,
        path: PathBuf,
    },
    #[error("expected to write the cache directory {path}: set LONGSHORE_CACHE to another one")]
    Cache { path: PathBuf, source: io::Error },
    #[error("expected kube/go.mod to require {module}, found no such line")]
    NotPinned { module: &'static str },
}

/// A directory that holds all the requested programs.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The file of a program.
    pub(crate) fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.name())
    }
}

/// The version of Kubernetes that is built, `1.34.2`.
pub(crate) fn kubernetes_version() -> Result<&'static str, BuildError> {
    pinned("k8s.io/kubernetes")
}

/// Returns these programs: from `KUBEBUILDER_ASSETS`, from the cache, or by building what is
/// missing there, which takes minutes. Builds of one program at the same time wait for each other.
pub(crate) fn programs(wanted: &[Program]) -> Result<Programs, BuildError> {
    if let Some(folder) = environment("KUBEBUILDER_ASSETS") {
        return assets(folder.into(), wanted);
    }
    let folder = cache()?.join("bin");
    let cached = |source| BuildError::Cache {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(cached)?;
    for program in wanted {
        let lock = folder.join(format!(".{}.lock", program.name()));
        let lock = File::create(lock).map_err(cached)?;
        lock.lock().map_err(cached)?;
        if !program.is_in(&folder) {
            build(*program, &folder)?;
        }
    }
    Ok(Programs { folder })
}

fn assets(folder: PathBuf, wanted: &[Program]) -> Result<Programs, BuildError> {
    for program in wanted {
        let path = folder.join(program.name());
        if !path.is_file() {
            let program = program.name();
            return Err(BuildError::NotAmongAssets { program, path });
        }
    }
    Ok(Programs { folder })
}

/// Builds under another name first: a file of the right name is a whole program.
fn build(program: Program, folder: &Path) -> Result<(), BuildError> {
    let version = kubernetes_version()?;
    eprintln!(
        "building {} of Kubernetes {version} from the Go module proxy: takes minutes, once",
        program.name()
    );
    let unfinished = folder.join(format!(".{}", program.name()));
    let status = Command::new("go")
        .args(program.subcommand())
        .args(["-mod=readonly", "-trimpath", "-buildvcs=false"])
        .arg("-ldflags")
        .arg(linker_flags(version))
        .arg("-o")
        .arg(&unfinished)
        .arg(program.package())
        .current_dir(repository::root().join("xtask/kube"))
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .status()
        .map_err(|source| BuildError::NoGo {
            program: program.name(),
            source,
        })?;
    if !status.success() {
        let program = program.name();
        return Err(BuildError::Failed { program, status });
    }
    let path = folder.join(program.name());
    fs::rename(&unfinished, &path).map_err(|source| BuildError::Cache { path, source })?;
    // Afterwards: were this process killed in between, the program would be built once more.
    let Some(text) = program.source() else {
        return Ok(());
    };
    let path = program.copy_of_source(folder);
    fs::write(&path, text).map_err(|source| BuildError::Cache { path, source })
}

/// The version that the programs report, which clients compare; no debugger is expected.
fn linker_flags(version: &str) -> String {
    let (major, rest) = version.split_once('.').unwrap_or((version, ""));
    let minor = rest.split('.').next().unwrap_or("");
    let set = |name: &str, value: &str| format!(" -X k8s.io/component-base/version.{name}={value}");
    let mut flags = "-s -w".to_owned();
    flags += &set("gitVersion", &format!("v{version}"));
    flags += &set("gitMajor", major);
    flags += &set("gitMinor", minor);
    flags
}

/// Where programs are kept: one directory for each set of versions.
fn cache() -> Result<PathBuf, BuildError> {
    let (kubernetes, etcd) = (kubernetes_version()?, pinned("go.etcd.io/etcd/server/v3")?);
    Ok(cache_root().join(format!("kubernetes-{kubernetes}-etcd-{etcd}")))
}

/// Where everything is kept that is made once.
pub(crate) fn cache_root() -> PathBuf {
    match environment("LONGSHORE_CACHE") {
        Some(root) => PathBuf::from(root),
        None => target().join("longshore-cache"),
    }
}

/// Cargo's target directory.
fn target() -> PathBuf {
    environment("CARGO_TARGET_DIR").map_or_else(|| repository::root().join("target"), PathBuf::from)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a chore is a program of its own and is told things by its environment"
)]
fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The version of a module that `go.mod` requires, without its `v`.
fn pinned(module: &'static str) -> Result<&'static str, BuildError> {
    GO_MOD
        .lines()
        .filter_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            line.strip_prefix(module)?.trim().strip_prefix('v')
        })
        .find_map(|rest| rest.split_whitespace().next())
        .ok_or(BuildError::NotPinned { module })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_go_module() {
        assert!(kubernetes_version().unwrap().starts_with("1.34."));
        assert!(
            pinned("go.etcd.io/etcd/server/v3")
                .unwrap()
                .starts_with("3.6.")
        );
        assert!(pinned("example.com/nothing").is_err());
    }

    #[test]
    fn a_program_with_a_source_of_ours_is_built_again_when_that_changes() {
        let folder = tempfile::tempdir().unwrap();
        let suite = Program::Conformance;
        fs::write(folder.path().join(suite.name()), "").unwrap();
        assert!(!suite.is_in(folder.path()));
        fs::write(suite.copy_of_source(folder.path()), suite.source().unwrap()).unwrap();
        assert!(suite.is_in(folder.path()));
        fs::write(suite.copy_of_source(folder.path()), "package old").unwrap();
        assert!(!suite.is_in(folder.path()));
        fs::write(folder.path().join("agnhost"), "").unwrap();
        assert!(Program::Agnhost.is_in(folder.path()));
    }

    #[test]
    fn programs_say_which_version_they_are() {
        assert_eq!(
            linker_flags("1.34.2"),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.2 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
        );
    }

    #[test]
    fn a_directory_of_ready_programs_must_hold_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let path = || folder.path().to_owned();
        assert!(assets(path(), &[Program::Etcd]).is_ok());
        let error = assets(path(), &[Program::Etcd, Program::Kubectl]).unwrap_err();
        assert!(error.to_string().contains("expected kubectl"), "{error}");
    }
}
