//! Ports of a node that pods take for themselves, and which of them clash (`hostPort`, `hostIP` and `protocol` of a
//! container's port).

/// The address that stands for all of a node's. No other address does, not even that of IPv6.
const ALL: &str = "0.0.0.0";

/// A port of a node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    address: String,
    protocol: String,
    number: i32,
}

impl HostPort {
    /// Reads the fields `hostIP`, `protocol` and `hostPort`; `None` where the container takes no port of its node. Without
    /// an address, it takes the port at all of them; without a protocol, that of TCP.
    pub fn read(
        host_ip: Option<&str>,
        protocol: Option<&str>,
        host_port: Option<i32>,
    ) -> Option<Self> {
        let given = |text: Option<&str>, otherwise: &str| {
            let text = text.filter(|text| !text.is_empty());
            text.unwrap_or(otherwise).to_owned()
        };
        let number = host_port.filter(|number| *number > 0)?;
        Some(Self {
            address: given(host_ip, ALL),
            protocol: given(protocol, "TCP"),
            number,
        })
    }

    /// Whether two pods of one node cannot have these ports (upstream: `HostPortInfo.CheckConflict` of kube-scheduler's
    /// framework). Addresses are compared as texts.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let shares_address =
            self.address == other.address || self.address == ALL || other.address == ALL;
        shares_address && self.protocol == other.protocol && self.number == other.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port((ip, protocol, number): (&str, &str, i32)) -> HostPort {
        HostPort::read(Some(ip), Some(protocol), Some(number)).expect("a port of the node")
    }

    #[test]
    fn two_pods_cannot_have_the_same_port_of_a_node() {
        let any = ("", "", 80);
        for (one, other, clash) in [
            (any, any, true),
            (any, ("0.0.0.0", "TCP", 80), true),
            (any, ("", "TCP", 81), false),
            (any, ("", "UDP", 80), false),
            (("", "SCTP", 80), ("", "UDP", 80), false),
            (any, ("127.0.0.1", "TCP", 80), true),
            (("127.0.0.1", "", 80), ("127.0.0.1", "TCP", 80), true),
            (("127.0.0.1", "", 80), ("127.0.0.2", "TCP", 80), false),
            (("0.0.0.0", "UDP", 80), ("127.0.0.1", "UDP", 80), true),
            (("0.0.0.0", "UDP", 80), ("127.0.0.1", "TCP", 80), false),
            (("::", "", 80), ("127.0.0.1", "", 80), false),
            (("::", "", 80), any, true),
        ] {
            let found = [
                port(one).clashes_with(&port(other)),
                port(other).clashes_with(&port(one)),
            ];
            assert_eq!(found, [clash; 2], "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_port_of_the_container_alone_is_none_of_the_node() {
        for (host_port, is_one) in [(None, false), (Some(0), false), (Some(1), true)] {
            let read = HostPort::read(None, None, host_port);
            assert_eq!(read.is_some(), is_one, "{host_port:?}");
        }
    }
}
