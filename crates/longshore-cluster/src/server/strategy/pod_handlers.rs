//! What is wrong with the probes, hooks and security contexts of a pod, and with the names it gives to addresses: upstream's
//! complaints, in its words and in its order.

use std::net::IpAddr;

use serde_json::Value;

use super::{NO_ADDRESS, pod_rules::items, pod_sysctls};
use crate::server::{error::Cause, meta, names::NameRule};

const OF_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const SCHEMES: &[&str] = &["HTTP", "HTTPS"];
/// The kinds of handlers, in the order in which they are looked at.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
/// The fields of a probe that are numbers.
const NUMBERS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

/// Which list a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Main,
    Init,
}

/// Complaints about one container, in a pod of this grace.
pub(super) fn of_container(
    container: &Value,
    place: Place,
    grace: Option<i64>,
    field: &str,
    causes: &mut Vec<Cause>,
) {
    if let Some(context) = container.get("securityContext") {
        let field = format!("{field}.securityContext");
        for key in ["runAsUser", "runAsGroup"] {
            check_id(context.get(key), &format!("{field}.{key}"), causes);
        }
    }
    let policy = container.get("restartPolicy").and_then(Value::as_str);
    let fields = [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ];
    let given = fields.map(|key| (key, container.get(key).filter(|it| !it.is_null())));
    for (key, value) in given {
        let Some(value) = value else { continue };
        let field = format!("{field}.{key}");
        if place == Place::Init && policy != Some("Always") {
            causes.push(Cause::forbidden(&field, OF_SIDECARS));
        } else if key == "lifecycle" {
            hook_violations(value, grace, &field, causes);
        } else {
            probe_violations(key, value, &field, causes);
        }
    }
}

fn hook_violations(lifecycle: &Value, grace: Option<i64>, field: &str, causes: &mut Vec<Cause>) {
    for key in ["postStart", "preStop"] {
        if let Some(hook) = lifecycle.get(key).filter(|it| !it.is_null()) {
            handler_violations(hook, grace, &format!("{field}.{key}"), causes);
        }
    }
}

fn probe_violations(kind: &str, probe: &Value, field: &str, causes: &mut Vec<Cause>) {
    handler_violations(probe, None, field, causes);
    let number = |key: &str| probe.get(key).and_then(Value::as_i64);
    for key in NUMBERS {
        if let Some(found) = number(key).filter(|found| *found < 0) {
            let field = format!("{field}.{key}");
            causes.push(Cause::invalid(&field, &found.into(), NOT_NEGATIVE));
        }
    }
    let own_grace = number("terminationGracePeriodSeconds");
    let at = format!("{field}.terminationGracePeriodSeconds");
    if let Some(found) = own_grace.filter(|found| *found <= 0) {
        causes.push(Cause::invalid(&at, &found.into(), "must be greater than 0"));
    }
    let successes = number("successThreshold").unwrap_or(1);
    match (kind, own_grace) {
        ("readinessProbe", Some(found)) => {
            let why = "must not be set for readinessProbes";
            causes.push(Cause::invalid(&at, &found.into(), why));
        }
        ("readinessProbe", None) => {}
        _ if successes != 1 => {
            let field = format!("{field}.successThreshold");
            causes.push(Cause::invalid(&field, &successes.into(), "must be 1"));
        }
        _ => {}
    }
}

/// A handler has one kind. The first one counts.
fn handler_violations(handler: &Value, grace: Option<i64>, field: &str, causes: &mut Vec<Cause>) {
    let given = HANDLERS.map(|kind| (kind, handler.get(kind).filter(|it| !it.is_null())));
    let mut given = given
        .into_iter()
        .filter_map(|(kind, value)| Some((kind, value?)));
    let Some((kind, value)) = given.next() else {
        causes.push(Cause::required(field, "must specify a handler type"));
        return;
    };
    let at = format!("{field}.{kind}");
    match kind {
        "exec" => {
            if items(value, "command").next().is_none() {
                causes.push(Cause::required(&format!("{at}.command"), ""));
            }
        }
        "httpGet" => request_violations(value, &at, causes),
        "sleep" => sleep_violation(value, grace, &at, causes),
        _ => port_violations(value, &at, causes),
    }
    for (kind, _) in given {
        let why = "may not specify more than 1 handler type";
        causes.push(Cause::forbidden(&format!("{field}.{kind}"), why));
    }
}

fn request_violations(request: &Value, field: &str, causes: &mut Vec<Cause>) {
    if meta::text(request, "/path").is_empty() {
        causes.push(Cause::required(&format!("{field}.path"), ""));
    }
    port_violations(request, field, causes);
    let scheme = meta::text(request, "/scheme");
    if !SCHEMES.contains(&scheme) {
        let field = format!("{field}.scheme");
        causes.push(Cause::unsupported(&field, scheme, SCHEMES));
    }
    for header in items(request, "httpHeaders") {
        let name = meta::text(header, "/name");
        let is_valid = |name: &str| {
            name.bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'-')
        };
        if name.is_empty() || !is_valid(name) {
            let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
                       used for validation is '[-A-Za-z0-9]+')";
            let field = format!("{field}.httpHeaders");
            causes.push(Cause::invalid(&field, &name.into(), why));
        }
    }
}

fn port_violations(action: &Value, field: &str, causes: &mut Vec<Cause>) {
    let field = format!("{field}.port");
    let port = action.get("port").unwrap_or(&Value::Null);
    let Some(name) = port.as_str() else {
        let number = port.as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&field, &number.into(), why));
        }
        return;
    };
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let rules = [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            name.is_empty() || !name.bytes().all(is_known),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.bytes().any(|byte| byte.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
    causes.extend(broken.map(|(_, why)| Cause::invalid(&field, &name.into(), why)));
}

fn sleep_violation(sleep: &Value, grace: Option<i64>, field: &str, causes: &mut Vec<Cause>) {
    let seconds = sleep.get("seconds").and_then(Value::as_i64).unwrap_or(0);
    let Some(grace) = grace else { return };
    if !(0..=grace).contains(&seconds) {
        let why =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.push(Cause::invalid(field, &seconds.into(), &why));
    }
}

/// Complaints about what a pod says for all of its containers.
pub(super) fn of_pod(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let Some(context) = spec.get("securityContext") {
        let field = format!("{path}.securityContext");
        for key in ["fsGroup", "runAsUser", "runAsGroup"] {
            check_id(context.get(key), &format!("{field}.{key}"), causes);
        }
        for (index, group) in items(context, "supplementalGroups").enumerate() {
            let field = format!("{field}.supplementalGroups[{index}]");
            check_id(Some(group), &field, causes);
        }
        pod_sysctls::violations(spec, context, &field, causes);
    }
    for (index, alias) in items(spec, "hostAliases").enumerate() {
        let field = format!("{path}.hostAliases[{index}]");
        let ip = meta::text(alias, "/ip");
        if ip.parse::<IpAddr>().is_err() {
            let field = format!("{field}.ip");
            causes.push(Cause::invalid(&field, &ip.into(), NO_ADDRESS));
        }
        for (index, name) in items(alias, "hostnames").enumerate() {
            let field = format!("{field}.hostnames[{index}]");
            let violations = NameRule::Subdomain.violations(name.as_str().unwrap_or_default());
            causes.extend(
                violations
                    .iter()
                    .map(|why| Cause::invalid(&field, name, why)),
            );
        }
    }
}

/// A user or group of Linux.
fn check_id(id: Option<&Value>, field: &str, causes: &mut Vec<Cause>) {
    let Some(id) = id.and_then(Value::as_i64) else {
        return;
    };
    if !(0..=i64::from(i32::MAX)).contains(&id) {
        let why = "must be between 0 and 2147483647, inclusive";
        causes.push(Cause::invalid(field, &id.into(), why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The complaints about a container, as `field: message`.
    fn told(place: Place, container: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        of_container(container, place, Some(5), "c", &mut causes);
        lines(causes)
    }

    fn lines(causes: Vec<Cause>) -> Vec<String> {
        let line = |cause: Cause| format!("{}: {}", cause.field, cause.message);
        causes.into_iter().map(line).collect()
    }

    #[test]
    fn init_containers_have_hooks_and_probes_only_as_sidecars() {
        let exec = json!({"exec": {"command": ["x"]}});
        let with = |policy: Value| json!({"restartPolicy": policy, "lifecycle": {"preStop": exec}, "startupProbe": exec});
        let forbidden =
            "Forbidden: may not be set for init containers without restartPolicy=Always";
        assert_eq!(told(Place::Init, &with(json!("Always"))), [""; 0]);
        assert_eq!(
            told(Place::Init, &with(Value::Null)),
            [
                format!("c.lifecycle: {forbidden}"),
                format!("c.startupProbe: {forbidden}")
            ]
        );
    }

    #[test]
    fn a_handler_has_one_kind_that_makes_sense() {
        for (handler, expected) in [
            (json!({"exec": {"command": ["x"]}}), vec![]),
            (json!({"sleep": {"seconds": 5}}), vec![]),
            (json!({"sleep": {"seconds": 0}}), vec![]),
            (
                json!({"sleep": {"seconds": 6}}),
                vec![
                    ".sleep: Invalid value: 6: must be non-negative and less than terminationGracePeriodSeconds (5)",
                ],
            ),
            (
                json!({}),
                vec![": Required value: must specify a handler type"],
            ),
            (json!({"exec": {}}), vec![".exec.command: Required value"]),
            (
                json!({"exec": {"command": ["x"]}, "tcpSocket": {"port": 0}}),
                vec![".tcpSocket: Forbidden: may not specify more than 1 handler type"],
            ),
            (
                json!({"httpGet": {"path": "", "port": 70000, "scheme": "FTP", "httpHeaders": [{"name": "a b"}]}}),
                vec![
                    ".httpGet.path: Required value",
                    ".httpGet.port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                    ".httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
                    ".httpGet.httpHeaders: Invalid value: \"a b\": a valid HTTP header must consist of alphanumeric \
                     characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
                ],
            ),
            (
                json!({"tcpSocket": {"port": "--"}}),
                vec![
                    ".tcpSocket.port: Invalid value: \"--\": must contain at least one letter (a-z)",
                    ".tcpSocket.port: Invalid value: \"--\": must not contain consecutive hyphens",
                    ".tcpSocket.port: Invalid value: \"--\": must not begin or end with a hyphen",
                ],
            ),
        ] {
            let expected: Vec<String> = expected
                .iter()
                .map(|it| format!("c.lifecycle.preStop{it}"))
                .collect();
            let container = json!({"lifecycle": {"preStop": handler}});
            assert_eq!(told(Place::Main, &container), expected, "{container}");
        }
    }

    #[test]
    fn a_probe_has_numbers_that_make_sense() {
        let probe = json!({
            "grpc": {"port": 1}, "periodSeconds": -1, "successThreshold": 2, "terminationGracePeriodSeconds": 0,
        });
        let common = [
            "periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
        ];
        let of = |kind: &str, last: &str| {
            let all = common.iter().copied().chain([last]);
            all.map(|it| format!("c.{kind}.{it}")).collect::<Vec<_>>()
        };
        let successes = "successThreshold: Invalid value: 2: must be 1";
        let grace =
            "terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes";
        for (kind, last) in [
            ("livenessProbe", successes),
            ("startupProbe", successes),
            ("readinessProbe", grace),
        ] {
            let container = json!({kind: probe});
            assert_eq!(told(Place::Main, &container), of(kind, last));
        }
    }

    #[test]
    fn users_groups_and_aliases_are_checked() {
        let mut causes = Vec::new();
        let spec = json!({
            "securityContext": {"runAsUser": -1, "fsGroup": 0, "supplementalGroups": [1, 4_294_967_296_i64]},
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b"]}, {"ip": "ten", "hostnames": ["A"]}],
        });
        of_pod(&spec, "spec", &mut causes);
        let told = lines(causes);
        let range = "must be between 0 and 2147483647, inclusive";
        assert_eq!(
            told[..3],
            [
                format!("spec.securityContext.runAsUser: Invalid value: -1: {range}"),
                format!("spec.securityContext.supplementalGroups[1]: Invalid value: 4294967296: {range}"),
                "spec.hostAliases[1].ip: Invalid value: \"ten\": must be a valid IP address, (e.g. 10.9.8.7 or \
                 2001:db8::ffff)"
                    .to_owned(),
            ]
        );
        assert!(told[3].starts_with("spec.hostAliases[1].hostnames[0]: Invalid value: \"A\": "));
    }
}
