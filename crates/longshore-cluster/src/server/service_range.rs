//! The addresses that Services get, and the ports of the nodes.

use std::{fmt, net::Ipv4Addr, str::FromStr};

/// The ports of the nodes that Services get, as upstream's default.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// A text is no range of addresses for Services.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a range of IPv4 addresses with a prefix from 12 to 30, as 10.96.0.0/16, found {found:?}"
)]
pub struct InvalidRange {
    found: String,
}

/// The addresses that Services get. Default: 10.96.0.0/16.
///
/// The first address is that of the API server itself, the Service `default/kubernetes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: Ipv4Addr,
    prefix: u8,
}

impl Default for ServiceRange {
    fn default() -> Self {
        ServiceRange {
            network: Ipv4Addr::new(10, 96, 0, 0),
            prefix: 16,
        }
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for ServiceRange {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix: u8 = prefix.parse().ok()?;
            let is_usable = (12..=30).contains(&prefix);
            is_usable.then(|| ServiceRange {
                network: Ipv4Addr::from_bits(address.to_bits() & mask(prefix)),
                prefix,
            })
        };
        read().ok_or_else(|| InvalidRange {
            found: text.to_owned(),
        })
    }
}

/// The bits of the network.
fn mask(prefix: u8) -> u32 {
    let n_host_bits = 32_u32.saturating_sub(u32::from(prefix));
    u32::MAX.checked_shl(n_host_bits).unwrap_or(0)
}

impl ServiceRange {
    /// The address of the API server.
    pub fn first(&self) -> Ipv4Addr {
        self.nth(0)
    }

    /// Whether an address is the network's own.
    pub(crate) fn is_network(self, address: Ipv4Addr) -> bool {
        address == self.network
    }

    /// Whether an address is inside, the network's own and its last one included.
    pub(crate) fn contains(self, address: Ipv4Addr) -> bool {
        let distance = address.to_bits().checked_sub(self.network.to_bits());
        distance.is_some_and(|distance| distance <= self.n_hosts() + 1)
    }

    /// Whether a Service can have an address.
    pub(crate) fn is_usable(self, address: Ipv4Addr) -> bool {
        let distance = address.to_bits().checked_sub(self.network.to_bits());
        distance.is_some_and(|distance| (1..=self.n_hosts()).contains(&distance))
    }

    /// All addresses in the order in which they are tried: at random, and those that people choose last.
    pub(crate) fn in_order(self, random: u64) -> impl Iterator<Item = Ipv4Addr> {
        let n_hosts = self.n_hosts();
        let n_chosen = if n_hosts <= 16 {
            0
        } else {
            (n_hosts / 16).clamp(16, 256)
        };
        shuffled(n_hosts, n_chosen, random).map(move |index| self.nth(index))
    }

    /// Addresses without the network's own and its last one.
    fn n_hosts(self) -> u32 {
        let size = 1_u32.checked_shl(32 - u32::from(self.prefix));
        size.unwrap_or(u32::MAX).saturating_sub(2)
    }

    fn nth(self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits().saturating_add(index + 1))
    }
}

/// Whether a port is one that Services get on the nodes.
pub(crate) fn is_node_port(port: u16) -> bool {
    NODE_PORTS.contains(&port)
}

/// The ports of the nodes, as messages show them.
pub(crate) fn node_ports() -> String {
    format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end())
}

/// All ports of the nodes in the order in which they are tried.
pub(crate) fn node_ports_in_order(random: u64) -> impl Iterator<Item = u16> {
    const N_CHOSEN: u32 = 86;
    let n_ports = u32::from(NODE_PORTS.end() - NODE_PORTS.start()) + 1;
    let first = u32::from(*NODE_PORTS.start());
    shuffled(n_ports, N_CHOSEN, random).filter_map(move |it| u16::try_from(first + it).ok())
}

/// The numbers from `n_last` on, beginning at a random one, and then those before it.
fn shuffled(n: u32, n_last: u32, random: u64) -> impl Iterator<Item = u32> {
    let n_first = n.saturating_sub(n_last);
    let start = u32::try_from(random % u64::from(n_first.max(1))).unwrap_or(0);
    let first = (0..n_first).map(move |it| n_last + (it + start) % n_first);
    first.chain(0..n_last)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_read_and_shown() {
        for (text, shown) in [
            ("10.96.0.0/16", Some("10.96.0.0/16")),
            ("10.96.7.9/28", Some("10.96.7.0/28")),
            ("10.96.0.0", None),
            ("10.96.0.0/8", None),
            ("10.96.0.0/64", None),
            ("10.96.0.0/31", None),
            ("fd00::/108", None),
        ] {
            let read: Result<ServiceRange, _> = text.parse();
            let found = read.as_ref().ok().map(ToString::to_string);
            assert_eq!(found.as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn every_address_of_a_range_is_tried_once() {
        let small: ServiceRange = "10.0.0.0/28".parse().unwrap();
        let default = ServiceRange::default();
        assert_eq!(default.first(), Ipv4Addr::new(10, 96, 0, 1));
        for (range, n_hosts) in [(small, 14), (default, 65_534)] {
            for random in [0, 5, u64::MAX] {
                let tried: Vec<Ipv4Addr> = range.in_order(random).collect();
                let different: BTreeSet<Ipv4Addr> = tried.iter().copied().collect();
                assert_eq!(
                    (tried.len(), different.len()),
                    (n_hosts, n_hosts),
                    "{range}"
                );
                assert!(tried.iter().all(|it| range.is_usable(*it)), "{range}");
            }
        }
        for (address, is_inside, is_usable) in [
            ([10, 0, 0, 0], true, false),
            ([10, 0, 0, 1], true, true),
            ([10, 0, 0, 14], true, true),
            ([10, 0, 0, 15], true, false),
            ([10, 0, 0, 16], false, false),
            ([9, 255, 255, 255], false, false),
        ] {
            let address = Ipv4Addr::from(address);
            let found = (small.contains(address), small.is_usable(address));
            assert_eq!(found, (is_inside, is_usable), "{address}");
        }
    }

    #[test]
    fn low_addresses_and_ports_are_left_to_people_for_as_long_as_possible() {
        let first = ServiceRange::default().in_order(0).next().unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 96, 1, 1));
        let ports: Vec<u16> = node_ports_in_order(0).collect();
        assert_eq!((ports.len(), ports[0], ports[2767]), (2768, 30_086, 30_085));
        assert_eq!(node_ports(), "30000-32767");
        assert!(is_node_port(30_000) && !is_node_port(32_768));
    }
}
