//! Where the programs of pods find the API server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The variables that clients of all languages read inside of a cluster.
pub(crate) const API_SERVER: [&str; 3] = [
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
];

/// The values of [`API_SERVER`]. The one place that says under which address a pod reaches the API server.
pub(crate) fn variables(address: Option<SocketAddr>) -> Vec<(String, String)> {
    let Some(address) = address else {
        return Vec::new();
    };
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let port = address.port().to_string();
    let names = API_SERVER.map(str::to_owned).into_iter();
    names.zip([host.to_string(), port.clone(), port]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_an_address_that_they_can_reach() {
        assert!(variables(None).is_empty());
        for (address, host, port) in [
            ("127.0.0.1:7443", "127.0.0.1", "7443"),
            ("0.0.0.0:1", "127.0.0.1", "1"),
            ("[::1]:7443", "::1", "7443"),
        ] {
            let found = variables(Some(address.parse().unwrap()));
            let values: Vec<&str> = found.iter().map(|(_, value)| value.as_str()).collect();
            assert_eq!(values, [host, port, port]);
            assert_eq!(found[0].0, "KUBERNETES_SERVICE_HOST");
        }
    }
}
