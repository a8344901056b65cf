//! Whom the program of a container runs as and what it may do: what its security context says, as far as this node can.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec};
use nix::unistd::{getegid, geteuid};

use super::unsupported::supplemental_groups;
use crate::{
    profile::Profile,
    refusal::Refusal,
    shim::{
        capabilities::{bit, of_runtimes, of_status},
        protocol::UserSpec,
    },
};

/// The word that stands for all capabilities.
const ALL: &str = "ALL";

/// Capabilities with which a program takes away what keeps the machine, and the data directory, out of its sight: it
/// unmounts what covers them, opens files by number, takes over a process that may do so, or changes the kernel.
const OF_WALLS: [&str; 10] = [
    "SYS_ADMIN",
    "DAC_READ_SEARCH",
    "SYS_PTRACE",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_BOOT",
    "BPF",
    "PERFMON",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
];

/// What the node itself is and may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    profile: Profile,
    uid: u32,
    gid: u32,
    /// Its capabilities.
    held: u64,
}

impl Powers {
    pub(crate) fn of_this_process(profile: Profile) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            profile,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            held: of_status(&status, "CapEff").unwrap_or(0),
        }
    }

    /// What a container may be left with: in a user namespace it has everything, over nothing.
    fn most(self) -> u64 {
        match self.profile {
            Profile::User => u64::MAX,
            Profile::Full | Profile::None => self.held,
        }
    }

    /// Whether a container can be kept from having all of it. An ordinary user who runs plain processes has nothing that
    /// they could be kept from.
    fn can_limit(self) -> bool {
        bit("SETPCAP").is_some_and(|needed| self.most() & needed != 0)
    }

    /// What a container may be given.
    fn grants(self) -> u64 {
        match self.profile {
            Profile::User => 0,
            Profile::Full | Profile::None => self.held,
        }
    }
}

/// The identity of a container's program. Where the pod has no network of its own, it shares that of the machine.
pub(crate) fn user(
    container: &Container,
    spec: &PodSpec,
    powers: Powers,
    has_network: bool,
) -> Result<UserSpec, Refusal> {
    let own = container.security_context.as_ref();
    let pod = spec.security_context.as_ref();
    let refused = |why: String| Refusal::config(&container.name, why);
    let id = |n: i64| u32::try_from(n).ok();
    let uid = own
        .and_then(|s| s.run_as_user)
        .or(pod.and_then(|s| s.run_as_user))
        .and_then(id);
    let gid = own
        .and_then(|s| s.run_as_group)
        .or(pod.and_then(|s| s.run_as_group))
        .and_then(id);
    let non_root = own
        .and_then(|s| s.run_as_non_root)
        .or(pod.and_then(|s| s.run_as_non_root));
    if non_root == Some(true) && uid.unwrap_or(powers.uid) == 0 {
        let why = "runAsNonRoot is set and the container would run as root: set runAsUser";
        return Err(refused(why.into()));
    }
    let is_other =
        uid.is_some_and(|uid| uid != powers.uid) || gid.is_some_and(|gid| gid != powers.gid);
    if powers.profile == Profile::None && powers.uid != 0 && is_other {
        return Err(refused(format!(
            "expected runAsUser {} and runAsGroup {} or none: this node runs as an ordinary user and may not make \
             namespaces (profile none)",
            powers.uid, powers.gid
        )));
    }
    let groups = match powers.profile {
        Profile::Full => supplemental_groups(spec)
            .into_iter()
            .filter_map(id)
            .collect(),
        Profile::User | Profile::None => Vec::new(),
    };
    let named = own.and_then(|s| s.capabilities.as_ref());
    let kept = match named {
        Some(named) => Some(capabilities(named, powers, has_network).map_err(refused)?),
        None => powers
            .can_limit()
            .then(|| unnamed(has_network) & powers.most()),
    };
    // Who holds no capability cannot limit what programs with privileges would get. Such programs must not get any, then.
    let cannot_limit = named.is_some() && powers.most() == 0;
    Ok(UserSpec {
        uid,
        gid,
        groups,
        no_new_privileges: cannot_limit
            || own.is_some_and(|s| s.allow_privilege_escalation == Some(false)),
        capabilities: kept.filter(|_| !cannot_limit),
    })
}

/// The capabilities of a container that names none. In the network of the machine, raw sockets would show it what others
/// send, such as the tokens of calls to an API server on the loopback interface.
fn unnamed(has_network: bool) -> u64 {
    let raw = bit("NET_RAW").filter(|_| !has_network);
    of_runtimes() & !raw.unwrap_or(0)
}

/// The capabilities of a container that names some: those of a container that names none, with and without the named ones.
fn capabilities(wanted: &Capabilities, powers: Powers, has_network: bool) -> Result<u64, String> {
    let (added, dropped) = (
        named(wanted.add.as_deref())?,
        named(wanted.drop.as_deref())?,
    );
    let missing = added.iter().find(|(_, bit)| bit & !powers.grants() != 0);
    if let Some((name, _)) = missing {
        return Err(format!(
            "the node cannot give the capability {name}, because it does not have it itself (profile {})",
            powers.profile
        ));
    }
    let is_all = |list: &[(&str, u64)]| list.iter().any(|(name, _)| *name == ALL);
    let base = match (is_all(&dropped), is_all(&added)) {
        (true, _) => 0,
        (false, true) => u64::MAX,
        (false, false) => unnamed(has_network),
    };
    let single = |list: &[(&str, u64)]| {
        let single = list.iter().filter(|(name, _)| *name != ALL);
        single.fold(0, |all, (_, bit)| all | bit)
    };
    let kept = (base | single(&added)) & !single(&dropped) & powers.most();
    match OF_WALLS.into_iter().find(|name| holds(kept, name)) {
        Some(name) => Err(format!(
            "the capability {name} would show the container what the node keeps from it, such as the keys of the cluster: \
             name the capabilities that it needs, without {}",
            OF_WALLS.join(", ")
        )),
        None => Ok(kept),
    }
}

fn holds(all: u64, name: &str) -> bool {
    bit(name).is_some_and(|bit| all & bit != 0)
}

/// Names with their bits.
fn named(list: Option<&[String]>) -> Result<Vec<(&str, u64)>, String> {
    let names = list.unwrap_or_default().iter();
    names.map(|name| known(name)).collect()
}

/// A name with its bit; `ALL` has none.
fn known(name: &str) -> Result<(&str, u64), String> {
    let plain = name.strip_prefix("CAP_").unwrap_or(name);
    if plain == ALL {
        return Ok((ALL, 0));
    }
    match bit(plain) {
        Some(bit) => Ok((plain, bit)),
        None => Err(format!(
            "expected the name of a capability, as NET_ADMIN, found {name:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    const ROOT: Powers = Powers {
        profile: Profile::Full,
        uid: 0,
        gid: 0,
        held: 0x1ff_ffff_ffff,
    };
    const ANYONE: Powers = Powers {
        profile: Profile::User,
        uid: 1000,
        gid: 1000,
        held: 0,
    };
    const PLAIN: Powers = Powers {
        profile: Profile::None,
        ..ANYONE
    };

    fn spec_of(pod: &Value, container: &Value) -> PodSpec {
        from_value(json!({
            "securityContext": pod, "containers": [{"name": "c", "securityContext": container}],
        }))
        .unwrap()
    }

    fn of(pod: &Value, container: &Value, powers: Powers) -> Result<UserSpec, String> {
        let spec = spec_of(pod, container);
        user(&spec.containers[0], &spec, powers, true).map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_container_comes_before_the_pod() {
        let pod = json!({"runAsUser": 1, "runAsGroup": 2, "supplementalGroups": [3], "fsGroup": 4});
        let user = of(&pod, &json!({"runAsUser": 5}), ROOT).unwrap();
        assert_eq!((user.uid, user.gid), (Some(5), Some(2)));
        assert_eq!(user.groups, [3, 4]);
        assert!(!user.no_new_privileges && user.capabilities == Some(of_runtimes()));
        let user = of(
            &json!({}),
            &json!({"allowPrivilegeEscalation": false}),
            ROOT,
        );
        assert!(user.unwrap().no_new_privileges);
    }

    #[test]
    fn what_the_node_cannot_do_is_refused() {
        let no = json!({});
        for (pod, container, powers, expected) in [
            (
                json!({"runAsNonRoot": true}),
                no.clone(),
                ROOT,
                "set runAsUser",
            ),
            (json!({"runAsNonRoot": true}), no.clone(), ANYONE, ""),
            (
                json!({"runAsNonRoot": true}),
                json!({"runAsNonRoot": false}),
                ROOT,
                "",
            ),
            (json!({"runAsUser": 7}), no.clone(), ANYONE, ""),
            (
                json!({"runAsUser": 7}),
                no.clone(),
                PLAIN,
                "expected runAsUser 1000",
            ),
            (json!({"runAsUser": 1000}), no.clone(), PLAIN, ""),
            (
                json!({"runAsGroup": 7}),
                no.clone(),
                PLAIN,
                "runAsGroup 1000",
            ),
            (
                no.clone(),
                json!({"capabilities": {"add": ["NET_ADMIN"]}}),
                ANYONE,
                "cannot give the capability NET_ADMIN",
            ),
            (
                no.clone(),
                json!({"capabilities": {"add": ["FLY"]}}),
                ROOT,
                "found \"FLY\"",
            ),
            (
                no.clone(),
                json!({"capabilities": {"drop": ["ALL"]}}),
                PLAIN,
                "",
            ),
        ] {
            let told = of(&pod, &container, powers).map_or_else(|why| why, |_| String::new());
            let holds = told.contains(expected) && told.is_empty() == expected.is_empty();
            assert!(holds, "{pod} {container} {powers:?}: {told}");
        }
    }

    #[test]
    fn capabilities_are_those_of_runtimes_with_and_without_the_named_ones() {
        let bits = |names: &[&str]| names.iter().filter_map(|it| bit(it)).fold(0, |a, b| a | b);
        for (wanted, expected) in [
            (json!({}), of_runtimes()),
            (json!({"drop": ["ALL"]}), 0),
            (
                json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
                bits(&["NET_BIND_SERVICE"]),
            ),
            (
                json!({"drop": ["CHOWN"]}),
                of_runtimes() & !bits(&["CHOWN"]),
            ),
            (
                json!({"add": ["CAP_NET_ADMIN"]}),
                of_runtimes() | bits(&["NET_ADMIN"]),
            ),
            (
                json!({"add": ["ALL"], "drop": OF_WALLS}),
                ROOT.held & !bits(&OF_WALLS),
            ),
            (
                json!({"add": ["SYS_ADMIN"], "drop": ["SYS_ADMIN"]}),
                of_runtimes(),
            ),
        ] {
            let user = of(&json!({}), &json!({"capabilities": wanted}), ROOT).unwrap();
            assert_eq!(user.capabilities, Some(expected), "{wanted}");
        }
        for (powers, expected) in [
            // Root in a network of its own must not set it up as another pod's.
            (ROOT, Some(of_runtimes())),
            (ANYONE, Some(of_runtimes())),
            (PLAIN, None),
            (
                Powers {
                    held: bits(&["NET_ADMIN", "CHOWN", "SETPCAP"]),
                    ..ROOT
                },
                Some(bits(&["CHOWN", "SETPCAP"])),
            ),
            (
                Powers {
                    held: bits(&["NET_BIND_SERVICE"]),
                    ..PLAIN
                },
                None,
            ),
        ] {
            let user = of(&json!({}), &json!({}), powers).unwrap();
            assert_eq!(user.capabilities, expected, "{powers:?}");
            assert!(!user.no_new_privileges, "{powers:?}");
        }
        // Without rights to give up, programs with privileges of their own are kept from using them.
        let user = of(
            &json!({}),
            &json!({"capabilities": {"drop": ["ALL"]}}),
            PLAIN,
        )
        .unwrap();
        assert_eq!((user.capabilities, user.no_new_privileges), (None, true));
    }

    #[test]
    fn no_container_gets_what_takes_its_walls_away() {
        let with = |wanted: &Value, powers| {
            let told = of(&json!({}), &json!({"capabilities": wanted}), powers);
            told.err().unwrap_or_default()
        };
        for name in OF_WALLS {
            for wanted in [
                json!({"add": [name]}),
                json!({"add": [format!("CAP_{name}")], "drop": ["ALL"]}),
            ] {
                let told = with(&wanted, ROOT);
                assert!(
                    told.contains(&format!("the capability {name} would")),
                    "{told}"
                );
            }
            assert_eq!(with(&json!({"drop": [name]}), ROOT), "");
            assert_eq!(with(&json!({"add": [name], "drop": [name]}), ROOT), "");
        }
        // In a user namespace, too, the container would own what covers the machine.
        for powers in [ROOT, ANYONE] {
            let told = with(&json!({"add": ["ALL"]}), powers);
            assert!(told.contains("the capability SYS_ADMIN would"), "{told}");
        }
        assert_eq!(
            of_runtimes() & OF_WALLS.iter().filter_map(|it| bit(it)).sum::<u64>(),
            0
        );
    }

    #[test]
    fn raw_sockets_in_the_network_of_the_machine_are_for_those_that_name_them() {
        let raw = bit("NET_RAW").unwrap();
        let of = |capabilities: Value, has_network| {
            let spec = spec_of(&json!({}), &json!({"capabilities": capabilities}));
            let user = user(&spec.containers[0], &spec, ROOT, has_network).unwrap();
            user.capabilities.unwrap()
        };
        for (capabilities, has_network, expected) in [
            (Value::Null, true, of_runtimes()),
            (Value::Null, false, of_runtimes() & !raw),
            (json!({"drop": ["CHOWN"]}), false, of_runtimes() & !raw & !1),
            (json!({"add": ["NET_RAW"]}), false, of_runtimes()),
            (
                json!({"add": ["ALL"], "drop": OF_WALLS}),
                false,
                ROOT.held & !OF_WALLS.iter().filter_map(|it| bit(it)).sum::<u64>(),
            ),
            (json!({"drop": ["ALL"], "add": ["NET_RAW"]}), false, raw),
        ] {
            let found = of(capabilities.clone(), has_network);
            assert_eq!(found, expected, "{capabilities} {has_network}");
        }
    }
}
