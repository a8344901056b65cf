//! What a Service has that no other Service may have.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde_json::Value;

use crate::server::hub::Claim;

/// The addresses of a Service, and its ports of the nodes.
pub(super) fn of_service(service: &Value) -> BTreeSet<Claim> {
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let list = |key: &str| {
        let items = spec.get(key).and_then(Value::as_array);
        items.into_iter().flatten()
    };
    let addresses = list("clusterIPs").chain(spec.get("clusterIP"));
    let addresses = addresses.filter_map(|it| it.as_str()?.parse::<Ipv4Addr>().ok());
    let ports = list("ports").filter_map(|port| port.get("nodePort"));
    let ports = ports.chain(spec.get("healthCheckNodePort"));
    let ports = ports.filter_map(|it| u16::try_from(it.as_u64()?).ok());
    let ports = ports.filter(|port| *port != 0).map(Claim::NodePort);
    addresses.map(Claim::Address).chain(ports).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_its_addresses_and_its_ports_of_the_nodes() {
        let spec = json!({
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::1"], "healthCheckNodePort": 30001,
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 0}, {"port": 82}],
        });
        let expected = [
            Claim::Address([10, 96, 0, 9].into()),
            Claim::NodePort(30001),
            Claim::NodePort(30080),
        ];
        let found = of_service(&json!({"spec": spec}));
        assert_eq!(found, BTreeSet::from(expected));
        for none in [
            json!({}),
            json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
        ] {
            assert!(of_service(&none).is_empty(), "{none}");
        }
    }
}
