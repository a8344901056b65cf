//! Which addresses URLs of tenants may lead to.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{PoisonError, RwLock},
};

use crate::network::Network;

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Network {
    Network::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(address: [u16; 8], prefix: u8) -> Network {
    let [a, b, c, d, e, f, g, h] = address;
    Network::new(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix)
}

/// Where no URL of a tenant leads. Private networks are not among them: that is where Services and pods are.
const REFUSED: [Network; 16] = [
    // Unspecified, which Linux takes for loopback; loopback; link-local, where metadata services of clouds are.
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    // Multicast; reserved, and broadcast.
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    // Metadata services that are not link-local: of Oracle, Alibaba, Azure.
    v4(192, 0, 0, 0, 24),
    v4(100, 100, 100, 200, 32),
    v4(168, 63, 129, 16, 32),
    // Unspecified and loopback; link-local; site-local, as it once was; multicast.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 127),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    // Metadata services of Amazon and Google.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // A NAT64 prefix of a network's own choice (RFC 8215): where the IPv4 address is in it, only that network knows.
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    // Discarded.
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
];

/// Which addresses URLs of tenants may lead to. One value serves a whole process: what the process finds out about
/// API servers holds for the next connection.
#[derive(Debug, Default)]
pub struct Boundaries {
    /// Ranges that the operator allows although they are refused by default.
    allowed: Vec<Network>,
    /// Whether the operator allows the addresses of this machine's interfaces.
    allows_own: bool,
    api_servers: RwLock<ApiServers>,
}

/// What [`Boundaries::check`] has to know of the moment of a connection.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// The addresses of the configured API server, whose host may be a name.
    pub(crate) api_servers: Vec<SocketAddr>,
    /// The addresses of this machine's interfaces.
    pub(crate) own: Vec<IpAddr>,
}

#[derive(Debug, Default)]
struct ApiServers {
    /// As the kubeconfig has it: a host, which may be a name, and a port.
    configured: Option<(String, u16)>,
    /// Where else API servers are known to listen.
    known: BTreeSet<SocketAddr>,
    /// The address of their Service, as the environment of this process has it.
    service: Option<SocketAddr>,
}

/// An address that URLs of tenants must not lead to. Tenants must not learn which address it is, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its address is not allowed")]
pub struct NotAllowed;

impl Boundaries {
    /// Boundaries within which these ranges are allowed, too. API servers are never reached, whatever is allowed.
    pub fn allowing(allowed: Vec<Network>) -> Self {
        Self {
            allowed,
            ..Self::default()
        }
    }

    /// The same boundaries, within which the addresses of this machine's interfaces are allowed, too.
    #[must_use]
    pub fn allowing_own_addresses(self) -> Self {
        Self {
            allows_own: true,
            ..self
        }
    }

    /// The API server that the process itself speaks to. Its host may be a name, which is looked up for each connection.
    pub fn set_api_server(&self, host: &str, port: u16) {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.write().configured = Some((host.to_owned(), port));
    }

    /// Where API servers listen, as far as the cluster says; what was said before is forgotten.
    pub fn set_known_api_servers(&self, known: impl IntoIterator<Item = SocketAddr>) {
        self.write().known = known.into_iter().map(canonical).collect();
    }

    /// The address of the Service of API servers that Kubernetes writes into the environment of each pod: it leads to API
    /// servers, whatever the kubeconfig names.
    pub fn set_api_service(&self, address: SocketAddr) {
        self.write().service = Some(canonical(address));
    }

    /// The host and port of the API server whose name has to be looked up before [`check`](Self::check).
    pub(crate) fn configured_api_server(&self) -> Option<(String, u16)> {
        let servers = self.api_servers.read();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        servers.configured.clone()
    }

    /// Whether a URL of a tenant may lead to this address.
    ///
    /// An address of this machine's interfaces is refused, unless the operator allows its range:
    /// local programs listen there that tenants must not reach.
    ///
    /// An address of an API server is refused at every port, unless the operator allows its range: then only the API
    /// server itself is refused, as on a laptop, where everything is on loopback.
    pub(crate) fn check(&self, address: SocketAddr, now: &Surroundings) -> Result<(), NotAllowed> {
        let servers = self.api_servers.read();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        let configured = now.api_servers.iter().copied().map(canonical);
        let known = servers.known.iter().copied().chain(servers.service);
        let api_servers: Vec<SocketAddr> = known.chain(configured).collect();
        let is_own = |ip: IpAddr| now.own.iter().any(|own| own.to_canonical() == ip);
        let is_fine = forms(address.ip()).into_iter().all(|ip| {
            let socket = SocketAddr::new(ip, address.port());
            if api_servers.contains(&socket) {
                return false;
            }
            let is_refused = REFUSED.iter().any(|network| network.contains(ip))
                || api_servers.iter().any(|server| server.ip() == ip)
                || !self.allows_own && is_own(ip);
            !is_refused || self.allowed.iter().any(|network| network.contains(ip))
        });
        if is_fine { Ok(()) } else { Err(NotAllowed) }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, ApiServers> {
        let servers = self.api_servers.write();
        servers.unwrap_or_else(PoisonError::into_inner)
    }
}

/// An IPv4-mapped address is the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What an address means: itself, and the IPv4 address that a gateway or the kernel takes out of it.
fn forms(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else {
        return vec![address];
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return vec![v4.into()];
    }
    let segments = v6.segments();
    let at = |index: usize| {
        let [high, low] = [segments[index], segments[index + 1]];
        IpAddr::from(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    let embedded = match segments {
        // Compatible (deprecated): `::a.b.c.d`. `::` and `::1` are refused by themselves.
        [0, 0, 0, 0, 0, 0, ..] => Some(at(6)),
        // Translated (SIIT), and the well-known prefix of NAT64.
        [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(at(6)),
        // 6to4.
        [0x2002, ..] => Some(at(1)),
        // Teredo has the address of its client inverted, and that of its server as it is.
        [0x2001, 0, ..] => {
            let client =
                Ipv4Addr::from_bits(!(u32::from(segments[6]) << 16 | u32::from(segments[7])));
            return vec![address, at(2), client.into()];
        }
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some(at(6)),
        _ => None,
    };
    [Some(address), embedded].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(boundaries: &Boundaries, address: &str) -> bool {
        let address: SocketAddr = address.parse().unwrap();
        boundaries.check(address, &Surroundings::default()).is_ok()
    }

    #[test]
    fn addresses_of_this_machine_of_its_link_and_of_metadata_services_are_refused_in_every_form() {
        let boundaries = Boundaries::default();
        for refused in [
            "127.0.0.1:80",
            "127.8.8.8:80",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "169.254.169.254:80",
            "169.254.0.1:80",
            "224.0.0.1:80",
            "239.255.255.255:80",
            "255.255.255.255:80",
            "100.100.100.200:80",
            "168.63.129.16:80",
            "192.0.0.192:80",
            "[::]:80",
            "[::1]:80",
            "[fe80::1]:80",
            "[febf::1]:80",
            "[ff02::1]:80",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:169.254.169.254]:80",
            "[::127.0.0.1]:80",
            "[::169.254.169.254]:80",
            "[::ffff:0:169.254.169.254]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[64:ff9b::7f00:1]:80",
            "[64:ff9b:1::a9fe:a9fe]:80",
            "[2002:a9fe:a9fe::]:80",
            "[2002:7f00:1::1]:80",
            "[2001:0:a9fe:a9fe::]:80",
            "[2001:0:102:304::5601:5601]:80",
            "[2a00::5efe:a9fe:a9fe]:80",
        ] {
            assert!(!check(&boundaries, refused), "{refused}");
        }
        for allowed in [
            "10.0.0.1:80",
            "172.16.0.1:443",
            "192.168.1.1:80",
            "100.64.0.1:80",
            "93.184.216.34:80",
            "[fd00::1]:80",
            "[2a00:1450::1]:443",
            "[::ffff:10.0.0.1]:80",
            "[64:ff9b::10.0.0.1]:80",
        ] {
            assert!(check(&boundaries, allowed), "{allowed}");
        }
    }

    #[test]
    fn an_api_server_is_refused_whatever_is_allowed() {
        let boundaries = Boundaries::default();
        boundaries.set_known_api_servers(["10.0.0.5:6443".parse().unwrap()]);
        assert!(!check(&boundaries, "10.0.0.5:6443"));
        assert!(!check(&boundaries, "10.0.0.5:10250"), "its machine");
        assert!(!check(&boundaries, "[::ffff:10.0.0.5]:6443"));
        assert!(!check(&boundaries, "[64:ff9b::10.0.0.5]:6443"));
        assert!(check(&boundaries, "10.0.0.6:6443"));
        // Whatever else is found out later.
        boundaries.set_api_service("10.96.0.1:443".parse().unwrap());
        boundaries.set_known_api_servers([]);
        for service in ["10.96.0.1:443", "10.96.0.1:80", "[::ffff:10.96.0.1]:443"] {
            assert!(!check(&boundaries, service), "{service}");
        }
        let configured = Surroundings {
            api_servers: vec!["127.0.0.1:7443".parse().unwrap()],
            ..Surroundings::default()
        };
        let laptop = Boundaries::allowing(vec!["127.0.0.0/8".parse().unwrap()]);
        let checks = |address: &str| laptop.check(address.parse().unwrap(), &configured).is_ok();
        assert!(checks("127.0.0.1:8000") && !checks("127.0.0.1:7443"));
        assert!(!checks("[::ffff:127.0.0.1]:7443") && !checks("169.254.169.254:80"));
    }

    #[test]
    fn an_address_of_this_machine_is_refused_unless_its_range_is_allowed() {
        let own = ["192.168.7.7", "fd00::7", "::ffff:10.0.0.7"];
        let now = Surroundings {
            own: own.map(|it| it.parse().unwrap()).to_vec(),
            ..Surroundings::default()
        };
        let own_forms = [
            "192.168.7.7:80",
            "[::ffff:192.168.7.7]:80",
            "[64:ff9b::192.168.7.7]:80",
            "[fd00::7]:80",
            "10.0.0.7:80",
        ];
        let refused = |boundaries: &Boundaries| {
            let check = |it: &&&str| boundaries.check(it.parse().unwrap(), &now).is_err();
            own_forms.iter().filter(check).count()
        };
        let boundaries = Boundaries::default();
        assert_eq!(refused(&boundaries), own_forms.len());
        let neighbours = ["192.168.7.8:80", "[fd00::8]:80", "10.0.0.8:80"];
        for neighbour in neighbours {
            let checked = boundaries.check(neighbour.parse().unwrap(), &now);
            assert_eq!(checked, Ok(()), "{neighbour}");
        }
        let allowed = Boundaries::allowing(vec!["fd00::7".parse().unwrap()]);
        assert_eq!(refused(&allowed), own_forms.len() - 1);
        let boundaries = boundaries.allowing_own_addresses();
        assert_eq!(refused(&boundaries), 0);
    }

    proptest! {
        /// Whatever embeds a refused IPv4 address is refused, too.
        #[test]
        fn no_embedding_hides_an_address(host in any::<u32>(), port in any::<u16>()) {
            let (boundaries, now) = (Boundaries::default(), Surroundings::default());
            let plain = Ipv4Addr::from_bits(host);
            let is_allowed = boundaries.check((plain, port).into(), &now).is_ok();
            let [a, b, c, d] = plain.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for embedding in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                let embedded = boundaries.check((embedding, port).into(), &now).is_ok();
                prop_assert_eq!(embedded, is_allowed, "{}", embedding);
            }
        }
    }
}
