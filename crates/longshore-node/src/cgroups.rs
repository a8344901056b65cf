//! Where containers with a memory limit get a cgroup (version 2): the top of the hierarchy for root, the node's own cgroup
//! where that was delegated to it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Container;
use longshore_k8s::Quantity;
use nix::unistd::geteuid;

use crate::shim::protocol::MemorySpec;

/// Where Linux has its cgroups.
const HIERARCHY: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE: &str = "cgroup.subtree_control";
/// The cgroup that the node itself moves to: the kernel lets no cgroup that holds processes pass its controllers on.
const OWN: &str = "longshore-node";

/// A cgroup that has the memory controller for those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroups {
    base: PathBuf,
}

impl Cgroups {
    /// Finds out where limits can be set on this machine; the error says why they cannot.
    pub(crate) fn find() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::find_below(Path::new(HIERARCHY), &own, geteuid().is_root())
    }

    fn find_below(hierarchy: &Path, own: &str, is_root: bool) -> Result<Self, String> {
        if !hierarchy.join(CONTROLLERS).exists() {
            let at = hierarchy.display();
            return Err(format!("{at} is no hierarchy of cgroups of version 2"));
        }
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        let own = own.ok_or("the node is in no cgroup of version 2")?;
        let own = hierarchy.join(own.trim_start_matches('/'));
        if is_root && enable(hierarchy).is_ok() {
            return Ok(Self {
                base: hierarchy.to_owned(),
            });
        }
        let refused = |e: io::Error| {
            let own = own.display();
            format!(
                "the cgroup {own} is not delegated to the node (systemd-run --user --scope -p Delegate=yes does that): {e}"
            )
        };
        if enable(&own).is_err() {
            move_to(&own.join(OWN)).map_err(refused)?;
            enable(&own).map_err(refused)?;
        }
        Ok(Self { base: own })
    }

    /// The limit of a container, in a cgroup of its own.
    pub(crate) fn limit(&self, uid: &str, container: &Container) -> Option<MemorySpec> {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        let bytes = Quantity::parse(&limits.get("memory")?.0)?.rounded_up();
        let limit = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        Some(MemorySpec {
            cgroup: self.of(uid, &container.name),
            limit,
        })
    }

    /// Removes the cgroup that a killed shim has left of a container. One in which processes run stays.
    pub(crate) fn forget(&self, uid: &str, container: &str) {
        // Most containers have none.
        drop(fs::remove_dir(self.of(uid, container)));
    }

    fn of(&self, uid: &str, container: &str) -> PathBuf {
        self.base.join(format!("longshore-{uid}-{container}"))
    }
}

/// Gives the memory controller to the cgroups below.
fn enable(cgroup: &Path) -> io::Result<()> {
    let has = |file: &str| -> io::Result<bool> {
        let list = fs::read_to_string(cgroup.join(file))?;
        Ok(list.split_whitespace().any(|it| it == "memory"))
    };
    if !has(CONTROLLERS)? {
        return Err(io::Error::other("it does not have the memory controller"));
    }
    if !has(SUBTREE)? {
        fs::write(cgroup.join(SUBTREE), "+memory")?;
    }
    // Whoever may not make cgroups here learns it now.
    let trial = cgroup.join(format!("longshore-trial-{}", std::process::id()));
    fs::create_dir(&trial)?;
    fs::remove_dir(&trial)
}

fn move_to(cgroup: &Path) -> io::Result<()> {
    match fs::create_dir(cgroup) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Ok(()) | Err(_) => {}
    }
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// A directory with the files of a cgroup.
    fn cgroup(dir: &Path, controllers: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(CONTROLLERS), controllers).unwrap();
        fs::write(dir.join(SUBTREE), "cpu").unwrap();
    }

    #[test]
    fn root_takes_the_top_and_others_their_own() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("user.slice/own.scope");
        cgroup(top.path(), "cpu memory\n");
        cgroup(&own, "memory\n");
        let line = "3:cpu:/x\n0::/user.slice/own.scope\n";
        for (is_root, base) in [(true, top.path()), (false, own.as_path())] {
            let found = Cgroups::find_below(top.path(), line, is_root).unwrap();
            assert_eq!(found.base, base);
            let subtree = fs::read_to_string(base.join(SUBTREE)).unwrap();
            assert_eq!(subtree, "+memory");
        }
    }

    #[test]
    fn where_limits_cannot_be_set_it_is_said_why() {
        let top = tempfile::tempdir().unwrap();
        let found = |line: &str| Cgroups::find_below(top.path(), line, false).unwrap_err();
        assert!(found("0::/own\n").contains("no hierarchy of cgroups of version 2"));
        cgroup(top.path(), "cpu memory\n");
        assert!(found("3:memory:/own\n").contains("in no cgroup of version 2"));
        cgroup(&top.path().join("own"), "cpu\n");
        let why = found("0::/own\n");
        assert!(
            why.contains("Delegate=yes") && why.contains("memory controller"),
            "{why}"
        );
    }

    #[test]
    fn a_limit_has_a_cgroup_of_its_container() {
        let cgroups = Cgroups { base: "/c".into() };
        for (limits, expected) in [
            (json!({"memory": "1Ki"}), Some(1024)),
            (json!({"memory": "100m"}), Some(1)),
            (json!({"cpu": "1"}), None),
            (json!({"memory": "0"}), None),
            (json!({"memory": "much"}), None),
        ] {
            let container: Container =
                from_value(json!({"name": "main", "resources": {"limits": limits}})).unwrap();
            let limit = cgroups.limit("u", &container);
            assert_eq!(limit.as_ref().map(|it| it.limit), expected, "{limits}");
            let at = limit.map(|it| it.cgroup);
            assert_eq!(at, expected.map(|_| "/c/longshore-u-main".into()));
        }
    }

    #[test]
    fn a_cgroup_that_was_left_is_removed_and_one_in_use_stays() {
        let base = tempfile::tempdir().unwrap();
        let cgroups = Cgroups {
            base: base.path().to_owned(),
        };
        let [left, used] = ["left", "used"].map(|name| cgroups.of("u", name));
        fs::create_dir_all(&left).unwrap();
        fs::create_dir_all(used.join("child")).unwrap();
        for name in ["left", "used", "none"] {
            cgroups.forget("u", name);
        }
        assert!(!left.exists() && used.exists());
    }
}
