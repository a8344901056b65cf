//! What is wrong with the parameters of the kernel that a pod sets for itself: upstream's complaints, in its words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod_rules::items;
use crate::server::{error::Cause, meta};

/// Longest name, in bytes.
const MAX_NAME: usize = 253;
const MESSAGE: &str = "must have at most 253 characters and match regex \
     ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Parameters of the IPC namespace beside those that begin with `fs.mqueue.`.
const OF_IPC: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Complaints about a pod's security context that stands at a path.
pub(super) fn violations(spec: &Value, context: &Value, path: &str, causes: &mut Vec<Cause>) {
    let shares = |key: &str| spec.get(key) == Some(&Value::Bool(true));
    let mut names = BTreeSet::new();
    for (index, sysctl) in items(context, "sysctls").enumerate() {
        let name = meta::text(sysctl, "/name");
        let field = format!("{path}.sysctls[{index}].name");
        if name.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if !is_name(name) {
            causes.push(Cause::invalid(&field, &name.into(), MESSAGE));
        } else if names.contains(name) {
            causes.push(Cause::duplicate(&field, name));
        }
        names.insert(name);
        let shared = match namespace(name) {
            Some(Namespace::Net) if shares("hostNetwork") => Some("hostNetwork"),
            Some(Namespace::Ipc) if shares("hostIPC") => Some("hostIPC"),
            Some(Namespace::Net | Namespace::Ipc) | None => None,
        };
        if let Some(shared) = shared {
            let why = format!("may not be specified when '{shared}' is true");
            causes.push(Cause::invalid(&field, &name.into(), &why));
        }
    }
}

/// Words between dots or slashes.
fn is_name(name: &str) -> bool {
    let is_edge = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    name.len() <= MAX_NAME
        && name.split(['.', '/']).all(|word| {
            let bytes = word.as_bytes();
            is_edge(bytes.first()) && is_edge(bytes.last()) && word.bytes().all(is_inner)
        })
}

/// Of what namespace of the kernel a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Net,
    Ipc,
}

/// `None` for a parameter of the whole machine.
fn namespace(name: &str) -> Option<Namespace> {
    let name = with_dots(name);
    if name.starts_with("net.") {
        Some(Namespace::Net)
    } else if OF_IPC.contains(&&*name) || name.starts_with("fs.mqueue.") {
        Some(Namespace::Ipc)
    } else {
        None
    }
}

/// The name with dots between its words. Where slashes are between them, dots stand for slashes.
fn with_dots(name: &str) -> String {
    if name
        .find(['.', '/'])
        .is_none_or(|at| name[at..].starts_with('.'))
    {
        return name.to_owned();
    }
    let swap = |it| match it {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(spec: &Value, sysctls: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        violations(spec, &json!({"sysctls": sysctls}), "at", &mut causes);
        let line = |cause: Cause| format!("{}: {}", cause.field, cause.message);
        causes.into_iter().map(line).collect()
    }

    #[test]
    fn parameters_have_names_of_words() {
        let private = json!({});
        for (name, is_valid) in [
            ("kernel.shmmax", true),
            ("safe-and-unsafe", true),
            ("net/ipv4/conf/eno2.100/rp_filter", true),
            ("a_b.c", true),
            ("foo-", false),
            ("bar..", false),
            ("_a", false),
            ("A", false),
            (&"a".repeat(253), true),
            (&"a".repeat(254), false),
        ] {
            let told = told(&private, &json!([{"name": name, "value": "1"}]));
            let expected = format!("at.sysctls[0].name: Invalid value: {name:?}: {MESSAGE}");
            let expected = if is_valid { vec![] } else { vec![expected] };
            assert_eq!(told, expected, "{name}");
        }
        let twice = json!([{"name": "a"}, {"name": ""}, {"name": "a"}]);
        assert_eq!(
            told(&private, &twice),
            [
                "at.sysctls[1].name: Required value",
                "at.sysctls[2].name: Duplicate value: \"a\"",
            ]
        );
    }

    #[test]
    fn a_pod_sets_nothing_of_a_namespace_that_it_shares_with_the_host() {
        let net = "may not be specified when 'hostNetwork' is true";
        let ipc = "may not be specified when 'hostIPC' is true";
        for (name, spec, expected) in [
            ("net.ipv4.tcp_rmem", json!({"hostNetwork": true}), net),
            ("net/ipv4/tcp_rmem", json!({"hostNetwork": true}), net),
            ("net.ipv4.tcp_rmem", json!({"hostIPC": true}), ""),
            ("kernel.shm_rmid_forced", json!({"hostIPC": true}), ipc),
            ("fs.mqueue.msg_max", json!({"hostIPC": true}), ipc),
            ("kernel.shm_rmid_forced", json!({"hostNetwork": true}), ""),
            ("kernel.pid_max", json!({"hostIPC": true}), ""),
        ] {
            let told = told(&spec, &json!([{"name": name}])).concat();
            assert!(told.ends_with(expected), "{name} {spec}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "{name} {spec}");
        }
    }
}
