//! The hosts file of a pod with a network, and its `resolv.conf`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::{OpenOptions, Permissions},
    io,
    net::Ipv4Addr,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
};

use longshore_k8s::names::{is_label, is_subdomain};

use super::world::Entry;

/// The first line by which programs, and Kubernetes' conformance tests, know a file of the node.
const HEAD: &str = "# Kubernetes-managed hosts file.\n";
const LOOPBACK: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
/// The domain of all Services.
const DOMAIN: &str = "cluster.local";

/// The names of a pod itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnNames {
    pub(super) address: Ipv4Addr,
    pub(super) namespace: String,
    pub(super) hostname: String,
    /// The Service that gives the pod its full name.
    pub(super) subdomain: Option<String>,
    /// Address and names of `hostAliases`.
    pub(super) aliases: Vec<(String, Vec<String>)>,
}

/// The hosts file of one pod. Short names of Services are those of its own namespace.
pub(super) fn render(own: &OwnNames, names: &BTreeSet<Entry>) -> String {
    let mut lines = format!("{HEAD}{LOOPBACK}");
    let namespace = &own.namespace;
    let full = own.subdomain.as_ref().map(|subdomain| {
        let hostname = &own.hostname;
        format!("{hostname}.{subdomain}.{namespace}.svc.{DOMAIN}\t")
    });
    let full = full.unwrap_or_default();
    // Writes to a String cannot fail.
    let _ = writeln!(lines, "{}\t{full}{}", own.address, own.hostname);
    let mut by_address: BTreeMap<(Ipv4Addr, &str), Vec<String>> = BTreeMap::new();
    // What is no name could be lines of its own.
    let is_name = |it: &&Entry| is_subdomain(&it.name) && is_label(&it.namespace);
    for entry in names.iter().filter(is_name) {
        let at = (entry.address, entry.namespace.as_str());
        let known = by_address.entry(at).or_default();
        let qualified = format!("{}.{}", entry.name, entry.namespace);
        known.push(format!("{qualified}.svc.{DOMAIN}"));
        known.push(format!("{qualified}.svc"));
        known.push(qualified);
        if entry.namespace == *namespace {
            known.push(entry.name.clone());
        }
    }
    for ((address, _), names) in by_address {
        let _ = writeln!(lines, "{address}\t{}", names.join("\t"));
    }
    for (address, names) in &own.aliases {
        let _ = writeln!(lines, "{address}\t{}", names.join("\t"));
    }
    lines
}

/// The `resolv.conf` of a pod: the bridge, where the node answers, for one with a way out. Without it there is no name
/// server, and names that the hosts file does not have are unknown at once.
pub(super) fn resolver(server: Option<Ipv4Addr>) -> String {
    match server {
        Some(server) => format!("nameserver {server}\n"),
        None => "# Names are in /etc/hosts.\n".to_owned(),
    }
}

/// Writes a file that containers have mounted: in place, because a mount follows the file and not its name.
///
/// Programs read it at any time. So it is written with one call and never gets shorter; empty lines fill it up.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    // Every user of a container resolves names, whatever the umask of the node is.
    file.set_permissions(Permissions::from_mode(0o644))?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut known = vec![0; length];
    file.read_exact_at(&mut known, 0)?;
    let wanted = padded(text, length);
    if known == wanted {
        return Ok(());
    }
    file.write_all_at(&wanted, 0)
}

fn padded(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().max(length), b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> OwnNames {
        OwnNames {
            address: Ipv4Addr::new(10, 244, 1, 2),
            namespace: "team".into(),
            hostname: "db-0".into(),
            subdomain: None,
            aliases: Vec::new(),
        }
    }

    fn names(all: &[(&str, &str, [u8; 4])]) -> BTreeSet<Entry> {
        let entry = |(namespace, name, address): &(&str, &str, [u8; 4])| Entry {
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
            address: Ipv4Addr::from(*address),
        };
        all.iter().map(entry).collect()
    }

    fn rest(own: &OwnNames, names: &BTreeSet<Entry>) -> String {
        let text = render(own, names);
        let rest = text
            .strip_prefix(HEAD)
            .and_then(|it| it.strip_prefix(LOOPBACK));
        rest.expect("the head").replace('\t', " ")
    }

    #[test]
    fn a_pod_knows_itself_its_services_and_those_of_others() {
        let names = names(&[
            ("team", "db", [10, 244, 1, 2]),
            ("team", "db", [10, 244, 1, 3]),
            ("team", "db-0.db", [10, 244, 1, 2]),
            ("other", "web", [10, 96, 1, 1]),
        ]);
        assert_eq!(
            rest(&own(), &names),
            "10.244.1.2 db-0\n\
             10.96.1.1 web.other.svc.cluster.local web.other.svc web.other\n\
             10.244.1.2 db.team.svc.cluster.local db.team.svc db.team db \
             db-0.db.team.svc.cluster.local db-0.db.team.svc db-0.db.team db-0.db\n\
             10.244.1.3 db.team.svc.cluster.local db.team.svc db.team db\n"
        );
    }

    #[test]
    fn what_is_no_name_gets_no_line() {
        let names = names(&[
            (
                "team",
                "q\n6.6.6.6\tpay.default.svc\n7.7.7.7\tz.db",
                [10, 244, 1, 2],
            ),
            ("team", "x pypi.org.db", [10, 244, 1, 3]),
            ("te am", "db", [10, 244, 1, 4]),
            ("team", "db-0.db", [10, 244, 1, 5]),
        ]);
        assert_eq!(
            rest(&own(), &names),
            "10.244.1.2 db-0\n\
             10.244.1.5 db-0.db.team.svc.cluster.local db-0.db.team.svc db-0.db.team db-0.db\n"
        );
    }

    #[test]
    fn a_subdomain_gives_a_full_name_and_aliases_come_last() {
        let own = OwnNames {
            subdomain: Some("db".into()),
            aliases: vec![("1.2.3.4".into(), vec!["a".into(), "b".into()])],
            ..own()
        };
        assert_eq!(
            rest(&own, &BTreeSet::new()),
            "10.244.1.2 db-0.db.team.svc.cluster.local db-0\n1.2.3.4 a b\n"
        );
    }

    #[test]
    fn only_a_pod_with_a_way_out_has_a_name_server() {
        let with = resolver(Some(Ipv4Addr::new(10, 244, 0, 1)));
        assert_eq!(with, "nameserver 10.244.0.1\n");
        assert!(!resolver(None).contains("nameserver"));
    }

    #[test]
    fn a_file_is_changed_in_place_and_never_gets_shorter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        write(&path, "first\nsecond\n").unwrap();
        let mounted = std::fs::File::open(&path).unwrap();
        write(&path, "third\n").unwrap();
        let mut seen = [0; 13];
        mounted.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"third\n\n\n\n\n\n\n\n");
        assert_eq!(mounted.metadata().unwrap().len(), 13);
    }
}
