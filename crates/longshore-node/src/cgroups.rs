//! Where pods and containers get cgroups, for limits of memory and of the number of processes. Of version 2: the top of the
//! hierarchy for root, the node's own cgroup where that was delegated to it. Processes are also counted by the controller
//! of version 1.
//!
//! A process is in one cgroup of version 2. So the cgroup of a container with a memory limit is below that of its pod where
//! the pod has one, and the other containers of such a pod have one together: the kernel lets no cgroup that holds
//! processes pass its controllers on.

use std::{
    fs, io,
    num::NonZeroU64,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Container;
use longshore_k8s::Quantity;
use nix::unistd::geteuid;

use crate::shim::{
    cgroup::{HIERARCHY, PIDS, PREFIX, remove_of_pod},
    protocol::{MemorySpec, ProcessesSpec},
};

const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE: &str = "cgroup.subtree_control";
const MEMORY: &str = "memory";
/// The cgroup that the node itself moves to: the kernel lets no cgroup that holds processes pass its controllers on.
const OWN: &str = "longshore-node";
/// The cgroup of the containers of a pod without a memory limit: no name of a container.
const OTHERS: &str = "_others";

/// What can be limited on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// A cgroup (version 2) that has the memory controller for those below it.
    memory: Option<PathBuf>,
    processes: Option<Processes>,
}

/// Where the processes of pods are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Processes {
    /// A cgroup that has the pids controller for those below it.
    base: PathBuf,
    version: Version,
    limit: NonZeroU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A cgroup of version 2, and what of that which was wanted those below it have.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    path: PathBuf,
    controllers: Vec<&'static str>,
}

impl Cgroups {
    /// Finds out where limits can be set on this machine; says why they cannot.
    pub(crate) fn find(pids_limit: Option<NonZeroU64>) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::find_below(Path::new(HIERARCHY), &own, geteuid().is_root(), pids_limit)
    }

    fn find_below(
        hierarchy: &Path,
        own: &str,
        is_root: bool,
        pids_limit: Option<NonZeroU64>,
    ) -> Self {
        let wanted = [MEMORY]
            .into_iter()
            .chain(pids_limit.is_some().then_some(PIDS));
        let wanted: Vec<_> = wanted.collect();
        let base = Base::find(hierarchy, own, is_root, &wanted);
        let memory = place_in(&base, MEMORY)
            .inspect_err(|why| tracing::info!(%why, "memory limits of containers are not enforced"))
            .ok();
        let processes = pids_limit.and_then(|limit| {
            let place = place_in(&base, PIDS).map(|base| (base, Version::Two));
            let place = place.or_else(|of_two| {
                let of_one = pids_of_version_one(hierarchy, own);
                of_one
                    .map(|base| (base, Version::One))
                    .map_err(|of_one| format!("{of_two}; {of_one}"))
            });
            place
                .inspect_err(
                    |why| tracing::info!(%why, "the number of processes of pods is not limited"),
                )
                .ok()
                .map(|(base, version)| Processes {
                    base,
                    version,
                    limit,
                })
        });
        Self { memory, processes }
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn limits_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Makes the cgroup of a pod, and sets its limit of processes.
    pub(crate) fn prepare(&self, uid: &str) -> io::Result<()> {
        let Some(processes) = &self.processes else {
            return Ok(());
        };
        let pod = processes.of(uid);
        make(&pod)?;
        fs::write(pod.join("pids.max"), processes.limit.to_string())?;
        match processes.version {
            Version::One => Ok(()),
            Version::Two => {
                if self.memory.is_some() {
                    fs::write(pod.join(SUBTREE), "+memory")?;
                }
                make(&pod.join(OTHERS))
            }
        }
    }

    /// Where the processes of a container are counted, in the cgroup of its pod.
    pub(crate) fn processes(
        &self,
        uid: &str,
        memory: Option<&MemorySpec>,
    ) -> Option<ProcessesSpec> {
        let processes = self.processes.as_ref()?;
        let pod = processes.of(uid);
        let cgroup = match (processes.version, memory) {
            (Version::One, _) => pod.clone(),
            (Version::Two, Some(memory)) => memory.cgroup.clone(),
            (Version::Two, None) => pod.join(OTHERS),
        };
        Some(ProcessesSpec { pod, cgroup })
    }

    /// The memory limit of a container, in a cgroup of its own.
    pub(crate) fn limit(&self, uid: &str, container: &Container) -> Option<MemorySpec> {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        let bytes = Quantity::parse(&limits.get(MEMORY)?.0)?.rounded_up();
        let limit = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        let base = self.memory.as_ref()?;
        let below = self.processes.as_ref();
        let below = below.filter(|processes| processes.version == Version::Two);
        let cgroup = match below {
            Some(processes) => processes.of(uid).join(&container.name),
            None => alone(base, uid, &container.name),
        };
        Some(MemorySpec { cgroup, limit })
    }

    /// Removes the cgroups that a killed shim has left of a pod. One in which processes run stays.
    pub(crate) fn forget<'a>(&self, uid: &str, containers: impl IntoIterator<Item = &'a str>) {
        // Most containers have none.
        for container in containers {
            if let Some(base) = &self.memory {
                drop(fs::remove_dir(alone(base, uid, container)));
            }
        }
        if let Some(processes) = &self.processes {
            remove_of_pod(&processes.of(uid));
        }
    }
}

/// The cgroup of a container whose pod has none.
fn alone(base: &Path, uid: &str, container: &str) -> PathBuf {
    base.join(format!("{PREFIX}{uid}-{container}"))
}

impl Processes {
    fn of(&self, uid: &str) -> PathBuf {
        self.base.join(format!("{PREFIX}{uid}"))
    }
}

impl Base {
    fn find(
        hierarchy: &Path,
        own: &str,
        is_root: bool,
        wanted: &[&'static str],
    ) -> Result<Self, String> {
        if !hierarchy.join(CONTROLLERS).exists() {
            let at = hierarchy.display();
            return Err(format!("{at} is no hierarchy of cgroups of version 2"));
        }
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        let own = own.ok_or("the node is in no cgroup of version 2")?;
        let own = hierarchy.join(own.trim_start_matches('/'));
        let base = |path: &Path, controllers| Self {
            path: path.to_owned(),
            controllers,
        };
        if let Some(enabled) = is_root.then(|| enable(hierarchy, wanted).ok()).flatten() {
            return Ok(base(hierarchy, enabled));
        }
        let refused = |e: io::Error| {
            let own = own.display();
            format!(
                "the cgroup {own} is not delegated to the node (systemd-run --user --scope -p Delegate=yes does that): {e}"
            )
        };
        if let Ok(enabled) = enable(&own, wanted) {
            return Ok(base(&own, enabled));
        }
        move_to(&own.join(OWN)).map_err(refused)?;
        let enabled = enable(&own, wanted).map_err(refused)?;
        Ok(base(&own, enabled))
    }
}

/// The cgroup that has this controller for those below it.
fn place_in(base: &Result<Base, String>, controller: &str) -> Result<PathBuf, String> {
    let base = base.as_ref().map_err(Clone::clone)?;
    if !base.controllers.contains(&controller) {
        let at = base.path.display();
        return Err(format!(
            "the cgroup {at} does not have the {controller} controller"
        ));
    }
    Ok(base.path.clone())
}

/// Gives controllers to the cgroups below: those of the wanted ones that there are.
fn enable(cgroup: &Path, wanted: &[&'static str]) -> io::Result<Vec<&'static str>> {
    let list = |file: &str| fs::read_to_string(cgroup.join(file));
    let (available, given) = (list(CONTROLLERS)?, list(SUBTREE)?);
    let has = |list: &str, name: &str| list.split_whitespace().any(|it| it == name);
    let wanted = wanted.iter().copied();
    let enabled: Vec<_> = wanted.filter(|name| has(&available, name)).collect();
    if enabled.is_empty() {
        return Err(io::Error::other(
            "it has neither the memory controller nor the pids controller",
        ));
    }
    let missing = enabled.iter().filter(|name| !has(&given, name));
    let missing: Vec<_> = missing.map(|name| format!("+{name}")).collect();
    if !missing.is_empty() {
        fs::write(cgroup.join(SUBTREE), missing.join(" "))?;
    }
    try_to_make(cgroup)?;
    Ok(enabled)
}

/// A cgroup of version 1 for the processes of pods: the node's own, so that a limit of it stays one, else the top.
fn pids_of_version_one(hierarchy: &Path, own: &str) -> Result<PathBuf, String> {
    let top = hierarchy.join(PIDS);
    let own = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|it| it == PIDS).then_some(path)
    });
    let own = own.map(|path| top.join(path.trim_start_matches('/')));
    let mut why = format!(
        "there is no pids controller of version 1 at {}",
        top.display()
    );
    for cgroup in own.into_iter().chain([top]) {
        if !cgroup.join("tasks").exists() {
            continue;
        }
        match try_to_make(&cgroup) {
            Ok(()) => return Ok(cgroup),
            Err(e) => why = format!("no cgroup can be made in {}: {e}", cgroup.display()),
        }
    }
    Err(why)
}

/// Whoever may not make cgroups here learns it now.
fn try_to_make(cgroup: &Path) -> io::Result<()> {
    let trial = cgroup.join(format!("{PREFIX}trial-{}", std::process::id()));
    fs::create_dir(&trial)?;
    fs::remove_dir(&trial)
}

/// Makes a cgroup that may be there.
fn make(cgroup: &Path) -> io::Result<()> {
    match fs::create_dir(cgroup) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn move_to(cgroup: &Path) -> io::Result<()> {
    make(cgroup)?;
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
}

#[cfg(test)]
mod tests;
