//! `hostAliases`: a hosts file of the pod's own, which is the machine's and the aliases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, HostAlias, PodSpec};

use crate::{
    refusal::Refusal,
    shim::protocol::{MountSpec, Origin},
};

/// The machine's names, and the path in a container.
const HOSTS: &str = "/etc/hosts";

/// The pod's file in its directory.
fn file(dir: &Path) -> PathBuf {
    dir.join("hosts")
}

fn aliases(spec: &PodSpec) -> &[HostAlias] {
    spec.host_aliases.as_deref().unwrap_or_default()
}

/// Writes the file of a pod that has aliases.
pub(crate) fn prepare(dir: &Path, spec: &PodSpec) -> Result<(), Refusal> {
    if aliases(spec).is_empty() {
        return Ok(());
    }
    // A machine without the file knows no names by it.
    let of_machine = fs::read_to_string(HOSTS).unwrap_or_default();
    let text = text(&of_machine, aliases(spec));
    let written = longshore_files::replace_unsynced(&file(dir), 0o644, text.as_bytes());
    written.map_err(|e| Refusal::io("write the hosts file of the pod", &e))
}

/// The mount of the file, unless the container has another one there.
pub(crate) fn mount(dir: &Path, spec: &PodSpec, container: &Container) -> Option<MountSpec> {
    let mut mounts = container.volume_mounts.iter().flatten();
    let is_covered = mounts.any(|mount| mount.mount_path == HOSTS);
    (!aliases(spec).is_empty() && !is_covered).then(|| MountSpec {
        origin: Origin::Node,
        within: None,
        source: file(dir),
        target: HOSTS.into(),
        read_only: false,
    })
}

fn text(of_machine: &str, aliases: &[HostAlias]) -> String {
    let mut text = of_machine.trim_end().to_owned();
    text.push_str("\n\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_aliases_follow_the_names_of_the_machine() {
        let spec: PodSpec = from_value(json!({
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "a.example"]}, {"ip": "::1"}],
            "containers": [
                {"name": "plain"},
                {"name": "own", "volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]},
            ],
        }))
        .unwrap();
        assert_eq!(
            text("127.0.0.1 localhost\n", aliases(&spec)),
            "127.0.0.1 localhost\n\n# Entries added by HostAliases.\n10.0.0.1\ta\ta.example\n::1\t\n"
        );
        let mounted = |index: usize| mount(Path::new("/p"), &spec, &spec.containers[index]);
        assert_eq!(mounted(0).unwrap().source, Path::new("/p/hosts"));
        assert_eq!(mounted(1), None);
    }
}
