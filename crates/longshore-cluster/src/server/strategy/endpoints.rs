//! What answers for Services, in slices and as Endpoints: upstream's complaints about names and addresses.
//!
//! Nodes write the host names into the files of all pods, so that a name which is none would be any line of them.
//! Addresses of the loopback range are accepted: pods without a network of their own have one.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    addresses::{self, Loopback},
    pod_rules::{items, label_violations},
};
use crate::server::{error::Cause, meta};

const TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];

/// What is wrong with an object of this kind. What was accepted once may be changed elsewhere.
pub(super) fn violations(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let is_same = |key: &str| old.is_some_and(|old| old.get(key) == new.get(key));
    let mut causes = Vec::new();
    if kind == "Endpoints" {
        if !is_same("subsets") {
            subset_violations(new, &mut causes);
        }
        return causes;
    }
    if !is_same("addressType") {
        causes.extend(type_violation(new, old));
    }
    if !is_same("endpoints") {
        endpoint_violations(new, &mut causes);
    }
    causes
}

/// The type of the addresses of a slice, which stays.
fn type_violation(slice: &Value, old: Option<&Value>) -> Option<Cause> {
    let (field, found) = ("addressType", meta::text(slice, "/addressType"));
    if old.is_some_and(|old| !meta::text(old, "/addressType").is_empty()) {
        return Some(Cause::invalid(field, &found.into(), "field is immutable"));
    }
    match found {
        "" => Some(Cause::required(field, "")),
        known if TYPES.contains(&known) => None,
        other => Some(Cause::unsupported(field, other, TYPES)),
    }
}

fn endpoint_violations(slice: &Value, causes: &mut Vec<Cause>) {
    let kind = meta::text(slice, "/addressType");
    for (index, endpoint) in items(slice, "endpoints").enumerate() {
        let field = format!("endpoints[{index}]");
        let addresses = format!("{field}.addresses");
        if items(endpoint, "addresses").next().is_none() {
            causes.push(Cause::required(
                &addresses,
                "must contain at least 1 address",
            ));
        }
        for (index, address) in items(endpoint, "addresses").enumerate() {
            let text = address.as_str().unwrap_or_default();
            let why = address_complaint(kind, text);
            let field = format!("{addresses}[{index}]");
            causes.extend(why.map(|why| Cause::invalid(&field, address, &why)));
        }
        if let Some(name) = endpoint.get("hostname").filter(|it| !it.is_null()) {
            let name = name.as_str().unwrap_or_default();
            label_violations(name, &format!("{field}.hostname"), causes);
        }
    }
}

fn subset_violations(endpoints: &Value, causes: &mut Vec<Cause>) {
    const LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];
    for (index, subset) in items(endpoints, "subsets").enumerate() {
        let field = format!("subsets[{index}]");
        if LISTS
            .iter()
            .all(|list| items(subset, list).next().is_none())
        {
            let why = "must specify `addresses` or `notReadyAddresses`";
            causes.push(Cause::required(&field, why));
        }
        for list in LISTS {
            for (index, address) in items(subset, list).enumerate() {
                let field = format!("{field}.{list}[{index}]");
                let ip = meta::text(address, "/ip");
                let why = addresses::complaint(ip, Loopback::Accepted);
                let name = meta::text(address, "/hostname");
                let at = format!("{field}.ip");
                causes.extend(why.map(|why| Cause::invalid(&at, &ip.into(), &why)));
                if !name.is_empty() {
                    label_violations(name, &format!("{field}.hostname"), causes);
                }
            }
        }
    }
}

/// What is wrong with an address of a slice whose addresses are of this kind. Names are left to those who look them up.
fn address_complaint(kind: &str, text: &str) -> Option<String> {
    let parsed = text.parse::<IpAddr>();
    match (kind, parsed) {
        ("IPv4", Ok(address @ IpAddr::V4(_))) | ("IPv6", Ok(address @ IpAddr::V6(_))) => {
            addresses::special(address, text, Loopback::Accepted)
        }
        ("IPv4", _) => Some("must be a valid IPv4 address".to_owned()),
        ("IPv6", _) => Some("must be a valid IPv6 address".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::strategy::NO_ADDRESS;

    const LABEL: &str = "a lowercase RFC 1123 label must consist of";

    fn told(kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
        let line = |cause: Cause| format!("{}: {}", cause.field, cause.message);
        violations(kind, new, old).into_iter().map(line).collect()
    }

    /// The only complaint about an object begins with this; there is none where it is empty.
    fn check(kind: &str, new: &Value, old: Option<&Value>, expected: &str) {
        let told = told(kind, new, old);
        assert_eq!(told.len(), usize::from(!expected.is_empty()), "{told:?}");
        let told = told.concat();
        assert!(told.starts_with(expected), "{new}: {told}");
    }

    fn slice(kind: &str, endpoint: Value) -> Value {
        json!({"addressType": kind, "endpoints": [endpoint]})
    }

    #[test]
    fn the_host_name_of_an_endpoint_is_a_label() {
        let long = "a".repeat(64);
        for (name, is_label) in [
            ("db-0", true),
            ("q\n6.6.6.6\tpayments.default.svc\n7.7.7.7\tz", false),
            ("x pypi.org y", false),
            ("a.b", false),
            ("", false),
            (&*long, false),
        ] {
            let new = slice(
                "IPv4",
                json!({"addresses": ["10.244.9.9"], "hostname": name}),
            );
            let why = if name == long {
                "must be no more than 63"
            } else {
                LABEL
            };
            let found = Value::from(name);
            let expected = format!("endpoints[0].hostname: Invalid value: {found}: {why}");
            check(
                "EndpointSlice",
                &new,
                None,
                if is_label { "" } else { &expected },
            );

            let address = json!({"ip": "10.244.9.9", "hostname": name});
            let new = json!({"subsets": [{"notReadyAddresses": [address]}]});
            let at = "subsets[0].notReadyAddresses[0].hostname";
            let expected = format!("{at}: Invalid value: {found}: {why}");
            // In Endpoints, an empty name is none.
            let is_fine = is_label || name.is_empty();
            check(
                "Endpoints",
                &new,
                None,
                if is_fine { "" } else { &expected },
            );
        }
    }

    #[test]
    fn an_endpoint_has_addresses_that_can_be_reached() {
        let (v4, v6) = (
            "must be a valid IPv4 address",
            "must be a valid IPv6 address",
        );
        let link = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        let cast = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        for (kind, address, why) in [
            ("IPv4", "10.0.0.1", ""),
            ("IPv4", "127.8.9.1", ""),
            ("IPv4", "224.0.1.1", ""),
            ("IPv4", "10.0.0.1\n6.6.6.6 z", v4),
            ("IPv4", "::1", v4),
            ("IPv4", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("IPv4", "169.254.169.254", link),
            ("IPv4", "224.0.0.251", cast),
            ("IPv6", "2001:db8::1", ""),
            ("IPv6", "10.0.0.1", v6),
            ("IPv6", "fe80::1", link),
            ("IPv6", "ff02::1", cast),
            ("FQDN", "db.example.com", ""),
        ] {
            let new = slice(kind, json!({"addresses": [address]}));
            let found = Value::from(address);
            let expected = match why {
                "" => String::new(),
                why => format!("endpoints[0].addresses[0]: Invalid value: {found}: {why}"),
            };
            check("EndpointSlice", &new, None, &expected);
        }
        for (address, why) in [
            ("10.0.0.1", ""),
            ("127.8.9.1", ""),
            ("2001:db8::1", ""),
            ("db.example.com", NO_ADDRESS),
            ("169.254.169.254", link),
        ] {
            let new = json!({"subsets": [{"addresses": [{"ip": address}]}]});
            let at = "subsets[0].addresses[0].ip";
            let expected = match why {
                "" => String::new(),
                why => format!("{at}: Invalid value: {address:?}: {why}"),
            };
            check("Endpoints", &new, None, &expected);
        }
    }

    #[test]
    fn slices_and_subsets_have_what_they_are_for() {
        let none = json!({"conditions": {}});
        for (kind, new, expected) in [
            ("Endpoints", json!({}), ""),
            (
                "Endpoints",
                json!({"subsets": [{"ports": []}]}),
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
            ),
            (
                "EndpointSlice",
                json!({"addressType": "IPv4", "endpoints": null}),
                "",
            ),
            ("EndpointSlice", json!({}), "addressType: Required value"),
            (
                "EndpointSlice",
                json!({"addressType": "IP"}),
                "addressType: Unsupported value: \"IP\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
            ),
            (
                "EndpointSlice",
                slice("IPv4", none),
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
        ] {
            check(kind, &new, None, expected);
        }
    }

    #[test]
    fn what_an_earlier_version_stored_may_be_changed_elsewhere() {
        let bad = || {
            slice(
                "IPv4",
                json!({"addresses": ["10.0.0.1"], "hostname": "x y"}),
            )
        };
        let mut new = bad();
        new["metadata"] = json!({"labels": {"a": "b"}});
        check("EndpointSlice", &new, Some(&bad()), "");
        new["endpoints"][0]["hostname"] = "x z".into();
        check(
            "EndpointSlice",
            &new,
            Some(&bad()),
            "endpoints[0].hostname: ",
        );
        let other = json!({"addressType": "IPv6", "endpoints": bad()["endpoints"]});
        let immutable = "addressType: Invalid value: \"IPv6\": field is immutable";
        check("EndpointSlice", &other, Some(&bad()), immutable);
    }
}
