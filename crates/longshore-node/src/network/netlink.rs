//! The few requests to the kernel's routing that pods' networks need, as bytes. Pure but for [`send`].

use std::{io, net::Ipv4Addr, os::fd::AsRawFd};

use nix::{
    libc,
    sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType},
};

const HEADER: usize = 16;
/// The nested attributes of a link: its kind, and what belongs to the kind.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
/// The attributes of a rule (`linux/fib_rules.h`), and its action.
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_IP_PROTO: u16 = 22;
const FRA_DPORT_RANGE: u16 = 24;
const TO_TABLE: u8 = 1;
const BRIDGE_LINK: &str = "bridge";
const VETH_LINK: &str = "veth";

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    kind: u16,
    flags: libc::c_int,
    body: Vec<u8>,
}

impl Request {
    fn make(kind: u16, body: Vec<u8>) -> Self {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        Self { kind, flags, body }
    }

    fn bytes(&self) -> Vec<u8> {
        let flags = self.flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(u16::try_from(flags).unwrap_or(0).to_ne_bytes());
        // The number of the request, and no port of ours: each request has a socket of its own.
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.body);
        bytes
    }
}

/// A bridge.
pub(super) fn bridge(name: &str) -> Request {
    let kind = attribute(INFO_KIND, BRIDGE_LINK.as_bytes());
    let attributes = [
        attribute(libc::IFLA_IFNAME, &text(name)),
        attribute(libc::IFLA_LINKINFO, &kind),
    ];
    Request::make(
        libc::RTM_NEWLINK,
        [link(0, 0), attributes.concat()].concat(),
    )
}

/// A pair of links: `name` here, `peer` in the namespace of a descriptor.
pub(super) fn pair(name: &str, peer: &str, namespace: libc::c_int) -> Request {
    let there = [
        link(0, 0),
        attribute(libc::IFLA_IFNAME, &text(peer)),
        attribute(libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes()),
    ];
    let data = attribute(VETH_PEER, &there.concat());
    let info = [
        attribute(INFO_KIND, VETH_LINK.as_bytes()),
        attribute(INFO_DATA, &data),
    ];
    let attributes = [
        attribute(libc::IFLA_IFNAME, &text(name)),
        attribute(libc::IFLA_LINKINFO, &info.concat()),
    ];
    Request::make(
        libc::RTM_NEWLINK,
        [link(0, 0), attributes.concat()].concat(),
    )
}

/// Sets a link up, as a port of a bridge where one is given.
pub(super) fn up(index: u32, bridge: Option<u32>) -> Request {
    let up = u32::try_from(libc::IFF_UP).unwrap_or(1);
    let mut body = link(index, up);
    if let Some(bridge) = bridge {
        body.extend(attribute(libc::IFLA_MASTER, &bridge.to_ne_bytes()));
    }
    Request {
        kind: libc::RTM_NEWLINK,
        flags: 0,
        body,
    }
}

/// Sets a link up that asks for nobody's hardware address, and takes what is sent through it.
pub(super) fn up_without_neighbours(index: u32) -> Request {
    let flags = u32::try_from(libc::IFF_UP | libc::IFF_NOARP).unwrap_or(0x81);
    Request {
        kind: libc::RTM_NEWLINK,
        flags: 0,
        body: link(index, flags),
    }
}

/// Removes a link.
pub(super) fn delete(index: u32) -> Request {
    Request {
        kind: libc::RTM_DELLINK,
        flags: 0,
        body: link(index, 0),
    }
}

/// Gives a link an address.
pub(super) fn address(index: u32, address: Ipv4Addr, prefix: u8) -> Request {
    let mut body = vec![inet(), prefix, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(attribute(libc::IFA_LOCAL, &address.octets()));
    body.extend(attribute(libc::IFA_ADDRESS, &address.octets()));
    Request::make(libc::RTM_NEWADDR, body)
}

/// Sends a network through another machine.
pub(super) fn route(to: Ipv4Addr, prefix: u8, gateway: Ipv4Addr, index: u32) -> Request {
    let mut body = route_head(
        prefix,
        libc::RT_TABLE_MAIN,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNICAST,
    );
    if prefix > 0 {
        body.extend(attribute(libc::RTA_DST, &to.octets()));
    }
    body.extend(attribute(libc::RTA_GATEWAY, &gateway.octets()));
    body.extend(attribute(libc::RTA_OIF, &index.to_ne_bytes()));
    Request::make(libc::RTM_NEWROUTE, body)
}

/// Makes every address of a network one of this namespace, so that sockets may be bound to it.
pub(super) fn own(network: Ipv4Addr, prefix: u8, index: u32) -> Request {
    let mut body = route_head(
        prefix,
        libc::RT_TABLE_LOCAL,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    );
    body.extend(attribute(libc::RTA_DST, &network.octets()));
    body.extend(attribute(libc::RTA_OIF, &index.to_ne_bytes()));
    Request::make(libc::RTM_NEWROUTE, body)
}

/// Sends what has no other route through a link.
pub(super) fn default_route(index: u32) -> Request {
    let mut body = route_head(
        0,
        libc::RT_TABLE_MAIN,
        libc::RT_SCOPE_LINK,
        libc::RTN_UNICAST,
    );
    body.extend(attribute(libc::RTA_OIF, &index.to_ne_bytes()));
    Request::make(libc::RTM_NEWROUTE, body)
}

/// Makes every address one of this namespace, in a table that rules lead to.
pub(super) fn own_all(table: u8, index: u32) -> Request {
    let mut body = route_head(0, table, libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
    body.extend(attribute(libc::RTA_OIF, &index.to_ne_bytes()));
    Request::make(libc::RTM_NEWROUTE, body)
}

/// Leads TCP to a port, where it comes in through a link, to a table.
pub(super) fn rule(port: u16, from: &str, table: u8, priority: u32) -> Request {
    let mut body = vec![inet(), 0, 0, 0, table, 0, 0, TO_TABLE];
    body.extend(0_u32.to_ne_bytes());
    let range = [port.to_ne_bytes(), port.to_ne_bytes()].concat();
    let tcp = u8::try_from(libc::IPPROTO_TCP).unwrap_or(6);
    body.extend(attribute(FRA_PRIORITY, &priority.to_ne_bytes()));
    body.extend(attribute(FRA_IIFNAME, &text(from)));
    body.extend(attribute(FRA_IP_PROTO, &[tcp]));
    body.extend(attribute(FRA_DPORT_RANGE, &range));
    Request::make(libc::RTM_NEWRULE, body)
}

/// `struct rtmsg`.
fn route_head(prefix: u8, table: u8, scope: u8, kind: u8) -> Vec<u8> {
    let mut head = vec![inet(), prefix, 0, 0, table, libc::RTPROT_BOOT, scope, kind];
    head.extend(0_u32.to_ne_bytes());
    head
}

/// `struct ifinfomsg`, with the flags to set.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut head = vec![0; 4];
    for part in [index, flags, flags] {
        head.extend(part.to_ne_bytes());
    }
    head
}

/// An attribute, padded to four bytes; its length counts no padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn inet() -> u8 {
    u8::try_from(libc::AF_INET).unwrap_or(2)
}

/// Has the kernel do it, in the network namespace of the calling thread.
pub(super) fn send(request: &Request) -> io::Result<()> {
    let socket = socket::socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    socket::send(socket.as_raw_fd(), &request.bytes(), MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let n = socket::recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    acknowledged(&answer[..n])
}

/// Reads the acknowledgement of a request.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let kind: Option<[u8; 2]> = answer.get(4..6).and_then(|it| it.try_into().ok());
    let code = answer.get(HEADER..HEADER + 4);
    let code: Option<[u8; 4]> = code.and_then(|it| it.try_into().ok());
    let (Some(kind), Some(code)) = (kind, code) else {
        return Err(io::Error::other("the kernel's answer is too short"));
    };
    if i32::from(u16::from_ne_bytes(kind)) != libc::NLMSG_ERROR {
        return Err(io::Error::other("the kernel's answer is of another kind"));
    }
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIDGE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
    const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);

    /// Checks requests against their kind, flags and body. The bodies are those that a Linux 6.18 has carried out.
    #[cfg(target_endian = "little")]
    #[track_caller]
    fn check<const N: usize>(requests: [(Request, u16, u16, &str); N]) {
        for (request, kind, flags, body) in requests {
            let bytes = request.bytes();
            let shown: String = bytes[HEADER..]
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect();
            assert_eq!(shown, body);
            let head: Vec<u16> = bytes[..8]
                .chunks(2)
                .map(|it| u16::from_le_bytes([it[0], it[1]]))
                .collect();
            let length = u16::try_from(bytes.len()).unwrap();
            assert_eq!(head, [length, 0, kind, flags], "{shown}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn requests_about_links_have_the_bytes_that_a_kernel_takes() {
        check([
            (
                pair("pf40307", "eth0", 7),
                16,
                0x605,
                "000000000000000000000000000000000c00030070663430333037003800120008000100766574682c000200\
                 280001000000000000000000000000000000000009000300657468300000000008001c0007000000",
            ),
            (
                bridge("br0"),
                16,
                0x605,
                "000000000000000000000000000000000800030062723000100012000a0001006272696467650000",
            ),
            (up(2, None), 16, 5, "00000000020000000100000001000000"),
            (
                up(5, Some(2)),
                16,
                5,
                "0000000005000000010000000100000008000a0002000000",
            ),
            (delete(5), 17, 5, "00000000050000000000000000000000"),
            (
                address(2, BRIDGE, 16),
                20,
                0x605,
                "0210000002000000080002000af40001080001000af40001",
            ),
        ]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn requests_about_routes_have_the_bytes_that_a_kernel_takes() {
        check([
            (
                route(Ipv4Addr::UNSPECIFIED, 0, BRIDGE, 2),
                24,
                0x605,
                "02000000fe03000100000000080005000af400010800040002000000",
            ),
            (
                route(SERVICES, 16, BRIDGE, 2),
                24,
                0x605,
                "02100000fe03000100000000080001000a600000080005000af400010800040002000000",
            ),
            (
                up_without_neighbours(3),
                16,
                5,
                "00000000030000008100000081000000",
            ),
            (
                default_route(3),
                24,
                0x605,
                "02000000fe03fd01000000000800040003000000",
            ),
            (
                own_all(100, 1),
                24,
                0x605,
                "020000006403fe02000000000800040001000000",
            ),
            (
                rule(8080, "br0", 100, 100),
                32,
                0x605,
                "02000000640000010000000008000600640000000800030062723000050016000600000008001800901f901f",
            ),
            (
                own(SERVICES, 16, 1),
                24,
                0x605,
                "02100000ff03fe0200000000080001000a6000000800040001000000",
            ),
        ]);
    }

    #[test]
    fn an_acknowledgement_is_a_code() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; 4];
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        acknowledged(&answer(2, 0)).unwrap();
        let refused = acknowledged(&answer(2, -libc::EEXIST)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
        for wrong in [answer(3, 0), answer(2, 0)[..18].to_vec(), Vec::new()] {
            acknowledged(&wrong).unwrap_err();
        }
    }
}
