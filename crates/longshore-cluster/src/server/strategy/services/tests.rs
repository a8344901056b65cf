//! What Services get, keep and may not have, as tables.

use super::*;
use crate::server::{hub::Claim, service_range::ServiceRange};

/// A Service with one port, changed by a merge.
fn service(change: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}]},
    });
    json_patch::merge(&mut service["spec"], &change);
    service
}

fn range_of_14() -> ServiceRange {
    "10.0.0.0/28".parse().unwrap()
}

/// Allocates in a range of 14 addresses, of which others have these.
fn allocated(new: Value, old: Option<&Value>, taken: &[Claim]) -> Result<Value, Refusal> {
    let taken: BTreeSet<Claim> = taken.iter().copied().collect();
    let pool = Pool {
        range: range_of_14(),
        is_free: &|claim| !taken.contains(&claim),
        random: 0,
        is_of_server: false,
    };
    let mut new = new;
    allocate(&pool, &mut new, old).map(|()| new)
}

fn made(change: Value) -> Value {
    allocated(service(change), None, &[]).unwrap()
}

/// What the client sends for a change of a stored Service, as it is stored.
fn changed(old: &Value, change: Value) -> Value {
    let mut new = old.clone();
    json_patch::merge(&mut new["spec"], &change);
    let mut new = allocated(new, Some(old), &[]).unwrap();
    prepare_update(&mut new, old);
    new
}

fn refusal(outcome: Result<Value, Refusal>) -> String {
    match outcome {
        Ok(service) => service["spec"]["clusterIPs"].to_string(),
        Err(Refusal::Full(why)) => why.to_owned(),
        Err(Refusal::Invalid(causes)) => {
            let shown = causes
                .iter()
                .map(|it| format!("{}: {}", it.field, it.message));
            shown.collect::<Vec<_>>().join("; ")
        }
    }
}

/// What it is, what the client sends, and a member that it then has.
fn new_services() -> Vec<(&'static str, Value, &'static str, Value)> {
    vec![
        (
            "headless",
            json!({"clusterIP": "None"}),
            "/spec/clusterIPs",
            json!(["None"]),
        ),
        (
            "headless without selector",
            json!({"clusterIP": "None", "selector": null}),
            "/spec/ipFamilies",
            json!(["IPv4", "IPv6"]),
        ),
        (
            "asked for",
            json!({"clusterIP": "10.0.0.9"}),
            "/spec/clusterIPs",
            json!(["10.0.0.9"]),
        ),
        (
            "a name",
            json!({"type": "ExternalName", "externalName": "a.b"}),
            "/spec/clusterIPs",
            Value::Null,
        ),
        (
            "on nodes",
            json!({"type": "NodePort"}),
            "/spec/ports/0/nodePort",
            json!(30_086),
        ),
        (
            "on nodes, from outside",
            json!({"type": "NodePort"}),
            "/spec/externalTrafficPolicy",
            json!("Cluster"),
        ),
        (
            "two protocols of one port",
            json!({"type": "NodePort", "ports": [
                {"name": "a", "port": 53, "nodePort": 30_053}, {"name": "b", "port": 53, "protocol": "UDP"},
            ]}),
            "/spec/ports/1/nodePort",
            json!(30_053),
        ),
        (
            "a load balancer that asks the nodes",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
            "/spec/healthCheckNodePort",
            json!(30_087),
        ),
        (
            "a load balancer without ports of the nodes",
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}),
            "/spec/ports/0/nodePort",
            Value::Null,
        ),
        (
            "clients that stay",
            json!({"sessionAffinity": "ClientIP"}),
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            json!(10_800),
        ),
    ]
}

#[test]
fn a_new_service_is_complete() {
    let found = made(json!({}));
    let expected = json!({
        "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"app": "s"},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "None", "type": "ClusterIP",
    });
    assert_eq!(found["spec"], expected);
    for (what, change, pointer, expected) in new_services() {
        let made = made(change);
        let found = made.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{what}");
        assert_eq!(violations(&made, None), [], "{what}");
    }
}

/// What it is, what the client asks for, what others have, and the refusal.
fn refused_services() -> Vec<(&'static str, Value, Vec<Claim>, &'static str)> {
    let nine = Claim::Address([10, 0, 0, 9].into());
    let addresses = (1..=14).map(|it| Claim::Address([10, 0, 0, it].into()));
    let all: Vec<Claim> = addresses.collect();
    vec![
        (
            "the next free one",
            json!({}),
            vec![Claim::Address([10, 0, 0, 2].into())],
            r#"["10.0.0.3"]"#,
        ),
        (
            "taken",
            json!({"clusterIP": "10.0.0.9"}),
            vec![nine],
            "spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already \
             allocated",
        ),
        (
            "the API server's",
            json!({"clusterIP": "10.0.0.1"}),
            vec![],
            "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: provided IP is already \
             allocated",
        ),
        (
            "of another range",
            json!({"clusterIP": "10.9.0.1"}),
            vec![],
            "spec.clusterIPs: Invalid value: [\"10.9.0.1\"]: failed to allocate IP 10.9.0.1: the provided network does \
             not match the current range",
        ),
        (
            "the network's own",
            json!({"clusterIP": "10.0.0.0"}),
            vec![],
            "spec.clusterIPs: Invalid value: [\"10.0.0.0\"]: failed to allocate IP 10.0.0.0: the provided network does \
             not match the current range",
        ),
        (
            "no address",
            json!({"clusterIP": "here"}),
            vec![],
            "spec.clusterIPs[0]: Invalid value: \"here\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            "of another family",
            json!({"ipFamilies": ["IPv6"]}),
            vec![],
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            "of both families",
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            vec![],
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack \
             services",
        ),
        (
            "nothing left",
            json!({}),
            all,
            "failed to allocate a serviceIP: range is full",
        ),
    ]
}

/// What it is, the ports that the client asks for, what others have, and the refusal.
fn refused_ports() -> Vec<(&'static str, Value, Vec<Claim>, &'static str)> {
    let on_nodes = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_080}]});
    vec![
        (
            "a port that is taken",
            on_nodes,
            vec![Claim::NodePort(30_080)],
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
        ),
        (
            "a port that nodes do not give",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            vec![],
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid \
             ports is 30000-32767",
        ),
    ]
}

#[test]
fn nobody_gets_what_another_one_has() {
    let cases = refused_services().into_iter().chain(refused_ports());
    for (what, change, taken, expected) in cases {
        let found = refusal(allocated(service(change), None, &taken));
        assert_eq!(found, expected, "{what}");
    }
    let port = Claim::NodePort(30_080);
    let own = made(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_080}]}));
    let again = allocated(own.clone(), Some(&own), &[port]).unwrap();
    assert_eq!(again, own, "what it has had");
}

#[test]
fn an_update_keeps_what_it_does_not_name_and_loses_what_its_type_has_not() {
    let on_nodes = made(json!({"type": "NodePort"}));
    let plain = made(json!({}));
    let name = json!({"type": "ExternalName", "externalName": "a.b"});
    for (what, old, change, pointer, expected) in [
        (
            "a replacement without address",
            &plain,
            json!({"clusterIP": null, "clusterIPs": null, "ipFamilies": null}),
            "/spec/clusterIPs",
            json!(["10.0.0.2"]),
        ),
        (
            "a replacement without the port of the nodes",
            &on_nodes,
            json!({"ports": [{"port": 81}]}),
            "/spec/ports/0/nodePort",
            json!(30_086),
        ),
        (
            "no longer on the nodes",
            &on_nodes,
            json!({"type": "ClusterIP"}),
            "/spec/ports/0/nodePort",
            Value::Null,
        ),
        (
            "no longer from outside",
            &on_nodes,
            json!({"type": "ClusterIP"}),
            "/spec/externalTrafficPolicy",
            Value::Null,
        ),
        (
            "now on the nodes",
            &plain,
            json!({"type": "NodePort"}),
            "/spec/ports/0/nodePort",
            json!(30_086),
        ),
        (
            "now a name",
            &plain,
            name.clone(),
            "/spec/clusterIP",
            Value::Null,
        ),
        (
            "no longer a name",
            &made(name),
            json!({"type": "ClusterIP", "externalName": null}),
            "/spec/clusterIP",
            json!("10.0.0.2"),
        ),
    ] {
        let new = changed(old, change);
        let found = new.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{what}");
        assert_eq!(violations(&new, Some(old)), [], "{what}");
    }
}

#[test]
fn a_service_of_an_earlier_version_is_completed() {
    for (stored, expected) in [
        (json!({"type": "ClusterIP"}), "10.0.0.2"),
        (json!({"type": "ClusterIP", "clusterIP": "None"}), "None"),
    ] {
        let old = service(stored);
        let new = changed(&old, json!({}));
        assert_eq!(new["spec"]["clusterIPs"], json!([expected]));
        assert_eq!(new["spec"]["clusterIP"], expected);
        assert_eq!(violations(&new, Some(&old)), [], "{expected}");
    }
}

#[test]
fn an_update_keeps_the_conditions_of_the_status() {
    let mut old = made(json!({}));
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    old["status"] =
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": conditions});
    let new = changed(&old, json!({"ports": [{"port": 81}]}));
    assert_eq!(
        new["status"],
        json!({"loadBalancer": {}, "conditions": conditions})
    );
}

#[test]
fn an_address_that_was_given_stays() {
    let plain = made(json!({}));
    let headless = made(json!({"clusterIP": "None"}));
    for (what, old, change, field) in [
        (
            "another one",
            &plain,
            json!({"clusterIP": "10.0.0.9"}),
            "spec.clusterIPs[0]",
        ),
        (
            "none any more",
            &plain,
            json!({"clusterIP": "None"}),
            "spec.clusterIPs[0]",
        ),
        (
            "one now",
            &headless,
            json!({"clusterIP": "10.0.0.9"}),
            "spec.clusterIPs[0]",
        ),
    ] {
        let found = violations(&changed(old, change), Some(old));
        assert_eq!(found[0].field, field, "{what}: {found:?}");
        assert!(
            found[0].message.ends_with("may not change once set"),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn fields_are_judged() {
    for (change, field) in [
        (json!({"ports": null}), "spec.ports"),
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (
            json!({"ports": [{"port": 80, "protocol": "X"}]}),
            "spec.ports[0].protocol",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": "Web"}]}),
            "spec.ports[0].targetPort",
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "spec.ports[0].name",
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}),
            "spec.ports[1]",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30_080}]}),
            "spec.ports[0].nodePort",
        ),
        (json!({"selector": {"a b": "c"}}), "spec.selector"),
        (json!({"sessionAffinity": "Always"}), "spec.sessionAffinity"),
        (json!({"type": "Magic"}), "spec.type"),
        (
            json!({"type": "ExternalName", "ports": null}),
            "spec.externalName",
        ),
        (
            json!({"type": "NodePort", "clusterIP": "None"}),
            "spec.clusterIPs[0]",
        ),
        (
            json!({"loadBalancerClass": "a/b"}),
            "spec.loadBalancerClass",
        ),
        (
            json!({"externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy",
        ),
        (json!({"externalIPs": ["127.0.0.1"]}), "spec.externalIPs[0]"),
        (
            json!({"internalTrafficPolicy": "Nearby"}),
            "spec.internalTrafficPolicy",
        ),
    ] {
        let found = violations(&made(change.clone()), None);
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert!(fields.contains(&field), "{change}: {found:?}");
    }
}

#[test]
fn an_external_address_leads_to_one_place_outside_of_the_machine() {
    for (address, expected) in [
        ("192.0.2.1", ""),
        ("2001:db8::1", ""),
        ("127.0.0.1", "may not be in the loopback range"),
        ("::1", "may not be in the loopback range"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("169.254.169.254", "may not be in the link-local range"),
        ("fe80::1", "may not be in the link-local range"),
        ("224.0.0.1", "may not be in the link-local multicast range"),
        ("db.example.com", "must be a valid IP address"),
    ] {
        let found = violations(&made(json!({"externalIPs": [address]})), None);
        let found = found
            .iter()
            .filter(|it| it.field == "spec.externalIPs[0]")
            .map(|it| it.message.as_str())
            .collect::<Vec<_>>();
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{address}");
        assert!(
            found.iter().all(|found| found.contains(expected)),
            "{address}: {found:?}"
        );
    }
}
