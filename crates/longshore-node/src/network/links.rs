//! The variables with which containers find Services, as a kubelet names them. Pure.

use std::net::Ipv4Addr;

use super::world::{API_NAME, ServiceFacts, World, is_api};

impl World {
    /// The variables of the API server's Service, and with `has_links` of those in the pod's namespace. A Service without
    /// an address has none.
    pub(super) fn variables(&self, namespace: &str, has_links: bool) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for (key, service) in &self.services {
            // A Service of the same name in another namespace would hide the API server.
            let is_linked = has_links && key.0 == namespace && key.1 != API_NAME;
            if let Some(address) = service.cluster_ip
                && (is_api(key) || is_linked)
            {
                add(&key.1, address, service, &mut variables);
            }
        }
        variables
    }
}

fn add(
    service: &str,
    address: Ipv4Addr,
    facts: &ServiceFacts,
    variables: &mut Vec<(String, String)>,
) {
    let name = word(service);
    let mut set = |suffix: &str, value: String| variables.push((format!("{name}{suffix}"), value));
    let Some(first) = facts.ports.first() else {
        return;
    };
    set("_SERVICE_HOST", address.to_string());
    set("_SERVICE_PORT", first.number.to_string());
    for port in facts.ports.iter().filter(|port| !port.name.is_empty()) {
        let suffix = format!("_SERVICE_PORT_{}", word(&port.name));
        set(&suffix, port.number.to_string());
    }
    let url = |protocol: &str, number: u16| format!("{protocol}://{address}:{number}");
    let protocol = first.protocol.to_lowercase();
    set("_PORT", url(&protocol, first.number));
    for port in &facts.ports {
        let protocol = port.protocol.to_lowercase();
        let prefix = format!("_PORT_{}_{}", port.number, port.protocol.to_uppercase());
        set(&prefix, url(&protocol, port.number));
        set(&format!("{prefix}_PROTO"), protocol);
        set(&format!("{prefix}_PORT"), port.number.to_string());
        set(&format!("{prefix}_ADDR"), address.to_string());
    }
}

/// A name as a part of the name of a variable.
fn word(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn world(services: &[(&str, &str, Value)]) -> World {
        let mut world = World::default();
        for (namespace, name, spec) in services {
            let service = serde_json::from_value(json!({"spec": spec})).unwrap();
            let facts = ServiceFacts::of(&service).unwrap();
            let key = ((*namespace).to_owned(), (*name).to_owned());
            world.services.insert(key, facts);
        }
        world
    }

    fn shown(world: &World, namespace: &str, has_links: bool) -> Vec<String> {
        let variables = world.variables(namespace, has_links).into_iter();
        variables
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn each_port_of_a_service_has_its_variables() {
        let ports =
            json!([{"name": "web-ui", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let world = world(&[(
            "team",
            "my-db",
            json!({"clusterIP": "10.96.7.8", "ports": ports}),
        )]);
        assert_eq!(
            shown(&world, "team", true),
            [
                "MY_DB_SERVICE_HOST=10.96.7.8",
                "MY_DB_SERVICE_PORT=80",
                "MY_DB_SERVICE_PORT_WEB_UI=80",
                "MY_DB_SERVICE_PORT_DNS=53",
                "MY_DB_PORT=tcp://10.96.7.8:80",
                "MY_DB_PORT_80_TCP=tcp://10.96.7.8:80",
                "MY_DB_PORT_80_TCP_PROTO=tcp",
                "MY_DB_PORT_80_TCP_PORT=80",
                "MY_DB_PORT_80_TCP_ADDR=10.96.7.8",
                "MY_DB_PORT_53_UDP=udp://10.96.7.8:53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_ADDR=10.96.7.8",
            ]
        );
    }

    #[test]
    fn a_pod_sees_the_services_of_its_namespace_and_always_the_api_server() {
        let at = |address: &str| json!({"clusterIP": address, "ports": [{"port": 1}]});
        let world = world(&[
            ("default", "kubernetes", at("10.96.0.1")),
            ("default", "other", at("10.96.0.2")),
            ("team", "bare", at("None")),
            ("team", "db", at("10.96.0.3")),
            ("team", "kubernetes", at("10.96.0.4")),
        ]);
        let hosts = |namespace: &str, has_links: bool| -> Vec<String> {
            let all = shown(&world, namespace, has_links).into_iter();
            all.filter(|it| it.contains("_SERVICE_HOST")).collect()
        };
        let api = "KUBERNETES_SERVICE_HOST=10.96.0.1";
        assert_eq!(hosts("team", true), [api, "DB_SERVICE_HOST=10.96.0.3"]);
        assert_eq!(hosts("team", false), [api]);
        assert_eq!(
            hosts("default", true),
            [api, "OTHER_SERVICE_HOST=10.96.0.2"]
        );
    }
}
