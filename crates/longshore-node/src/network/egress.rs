//! The way out of pods whose image says `egress: host`: TCP to any address, and names.
//!
//! What a pod sends to another network comes to the bridge, which has no other network. The keeper leads it into
//! nothing, and this node sees it there: the first connection to a port makes it listen for that port at all addresses,
//! and the pod's second try, a second later, is accepted. Connections to the commonest ports do not wait. Where a
//! connection was meant to go is the local address of the accepted socket.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::sys::socket::{MsgFlags, recv};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    BRIDGE, Network, is_of_a_pod, is_of_a_service, no_descriptor,
    protocol::Ask,
    relay::{Guests, Relay},
    world::Target,
};

/// Ports that are open from the start.
const FIRST: [u16; 3] = [DNS, 80, 443];
const DNS: u16 = 53;
/// Ports of other networks that pods may use. Connections to one more get no answer.
const MAX_PORTS: usize = 1024;
/// The headers of a packet.
const HEAD: usize = 128;
/// The longest message of DNS over UDP that is passed on.
const MAX_MESSAGE: usize = 4096;
/// How long a name server may take before the next one is asked.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a packet could not be read.
const AGAIN: Duration = Duration::from_millis(100);

/// Opens the way out. Dropping the handle closes it.
pub(super) async fn open(
    network: Arc<Network>,
    guests: Arc<Guests>,
) -> io::Result<AbortOnDropHandle<()>> {
    let packets = descriptor(&network, Ask::WayOut).await?;
    #[expect(
        unsafe_code,
        reason = "nothing else closes the descriptor, or puts another one in its place, while it is registered"
    )]
    // SAFETY: the registration owns the descriptor.
    let registered = unsafe { AsyncFd::register_with_interest(packets, Interest::READABLE) };
    let packets = registered?;
    let ask = Ask::Datagrams {
        address: BRIDGE,
        port: DNS,
    };
    let names: std::net::UdpSocket = descriptor(&network, ask).await?.into();
    let mut way_out = WayOut {
        names: Arc::new(UdpSocket::from_std(names)?),
        queries: JoinSet::new(),
        relays: BTreeMap::new(),
        network,
        guests,
    };
    for port in FIRST {
        way_out.listen(port).await?;
    }
    let task = tokio::spawn(async move { way_out.run(&packets).await });
    Ok(AbortOnDropHandle::new(task))
}

async fn descriptor(network: &Network, ask: Ask) -> io::Result<OwnedFd> {
    let (_, descriptor) = network.ask(&ask).await?;
    descriptor.ok_or_else(no_descriptor)
}

struct WayOut {
    network: Arc<Network>,
    guests: Arc<Guests>,
    names: Arc<UdpSocket>,
    queries: JoinSet<()>,
    relays: BTreeMap<u16, Relay>,
}

impl WayOut {
    async fn run(mut self, packets: &AsyncFd<OwnedFd>) {
        let names = Arc::clone(&self.names);
        let mut query = vec![0; MAX_MESSAGE];
        loop {
            tokio::select! {
                packet = next_packet(packets) => match packet {
                    Ok(packet) => self.on_packet(&packet).await,
                    Err(error) => pause("a packet of a pod was not read", &error).await,
                },
                received = names.recv_from(&mut query) => match received {
                    Ok((n, from)) => self.on_query(query[..n].to_vec(), from),
                    Err(error) => pause("a query of a pod was not read", &error).await,
                },
                Some(_) = self.queries.join_next() => {}
            }
        }
    }

    async fn on_packet(&mut self, packet: &[u8]) {
        let Some((from, port)) = connection(packet) else {
            return;
        };
        let is_new = !self.relays.contains_key(&port) && self.relays.len() < MAX_PORTS;
        if is_new
            && self.network.has_way_out(from)
            && let Err(error) = self.listen(port).await
        {
            tracing::warn!(port, %error, "a port of other networks is not open to pods");
        }
    }

    async fn listen(&mut self, port: u16) -> io::Result<()> {
        let socket = descriptor(&self.network, Ask::ListenForAll { port }).await?;
        let listener = TcpListener::from_std(socket.into())?;
        let (network, guests) = (Arc::clone(&self.network), Arc::clone(&self.guests));
        let relay = Relay::start(None, listener, Target::Original, network, guests);
        self.relays.insert(port, relay);
        Ok(())
    }

    /// A query without an answer is asked again by the pod.
    fn on_query(&mut self, query: Vec<u8>, from: SocketAddr) {
        let SocketAddr::V4(pod) = from else { return };
        if !self.network.has_way_out(*pod.ip()) {
            return;
        }
        let Some(place) = self.guests.admit((None, from.ip())) else {
            return;
        };
        let (names, network) = (Arc::clone(&self.names), Arc::clone(&self.network));
        self.queries.spawn(async move {
            if let Some(answer) = ask_servers(&query, &network.name_servers()).await
                && let Err(error) = names.send_to(&answer, from).await
            {
                tracing::debug!(%error, "a pod did not take the answer to its query");
            }
            drop(place);
        });
    }
}

async fn next_packet(packets: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let receive = |packets: &OwnedFd| -> io::Result<Vec<u8>> {
        let mut head = vec![0; HEAD];
        let n = recv(packets.as_raw_fd(), &mut head, MsgFlags::MSG_DONTWAIT)?;
        head.truncate(n);
        Ok(head)
    };
    packets.async_io(Interest::READABLE, receive).await
}

async fn pause(what: &str, error: &io::Error) {
    tracing::debug!(%error, "{what}");
    tokio::time::sleep(AGAIN).await;
}

/// The sender of an IPv4 packet that opens a TCP connection, and the port that it wants. Pure.
fn connection(packet: &[u8]) -> Option<(Ipv4Addr, u16)> {
    const TCP: u8 = 6;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let first = *packet.first()?;
    let tcp = packet.get(usize::from(first & 0x0f) * 4..)?;
    let is_tcp = first >> 4 == 4 && *packet.get(9)? == TCP;
    let opens = *tcp.get(13)? & (SYN | ACK) == SYN;
    let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let port: [u8; 2] = tcp.get(2..4)?.try_into().ok()?;
    (is_tcp && opens).then(|| (from.into(), u16::from_be_bytes(port)))
}

/// Where a connection that was accepted at an address goes. `None` for an address of pods, Services or loopback, which
/// stands for another server on the host's network; the bridge stands for a name server.
pub(super) fn destination(
    at: SocketAddr,
    name_server: impl FnOnce() -> Option<SocketAddr>,
) -> Option<SocketAddr> {
    let SocketAddr::V4(to) = at else { return None };
    let ip = *to.ip();
    if ip == BRIDGE {
        return (to.port() == DNS).then(name_server).flatten();
    }
    let is_inside = is_of_a_pod(ip) || is_of_a_service(ip);
    let is_no_host = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
    (!is_inside && !is_no_host).then_some(at)
}

/// The name servers of the host, as they are now.
pub(super) fn name_servers() -> Vec<SocketAddr> {
    servers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

fn servers(resolver: &str) -> Vec<SocketAddr> {
    let lines = resolver.lines().map(str::split_whitespace);
    let named = lines.filter_map(|mut words| {
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)
    });
    let addresses = named.filter_map(|it| it.parse().ok());
    let mut found: Vec<_> = addresses.map(|it| SocketAddr::new(it, DNS)).collect();
    if found.is_empty() {
        // As resolvers have it.
        found.push(SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS).into());
    }
    found
}

async fn ask_servers(query: &[u8], servers: &[SocketAddr]) -> Option<Vec<u8>> {
    for server in servers {
        match tokio::time::timeout(DNS_TIMEOUT, ask(query, *server)).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%server, %error, "a name server did not answer"),
            Err(_) => tracing::debug!(%server, "a name server did not answer in time"),
        }
    }
    None
}

async fn ask(query: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let from = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(from).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut answer = vec![0; MAX_MESSAGE];
    let n = socket.recv(&mut answer).await?;
    answer.truncate(n);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u8, protocol: u8, flags: u8, options: usize) -> Vec<u8> {
        let words = u8::try_from(5 + options).unwrap();
        let mut packet = vec![0; 20 + options * 4 + 20];
        (packet[0], packet[9]) = ((version << 4) | words, protocol);
        packet[12..16].copy_from_slice(&[10, 244, 1, 2]);
        let tcp = &mut packet[20 + options * 4..];
        tcp[2..4].copy_from_slice(&8080_u16.to_be_bytes());
        tcp[13] = flags;
        packet
    }

    #[test]
    fn a_connection_is_the_first_packet_of_tcp() {
        let found = Some((Ipv4Addr::new(10, 244, 1, 2), 8080));
        for (packet, expected) in [
            (packet(4, 6, 0x02, 0), found),
            (packet(4, 6, 0x02, 3), found),
            (packet(4, 6, 0xc2, 0), found),
            (packet(4, 6, 0x12, 0), None),
            (packet(4, 6, 0x10, 0), None),
            (packet(4, 17, 0x02, 0), None),
            (packet(6, 6, 0x02, 0), None),
            (packet(4, 6, 0x02, 0)[..30].to_vec(), None),
            (vec![0x4f; 20], None),
            (Vec::new(), None),
        ] {
            assert_eq!(connection(&packet), expected, "{packet:?}");
        }
    }

    #[test]
    fn connections_leave_the_network_or_go_nowhere() {
        let server: SocketAddr = "192.0.2.53:53".parse().unwrap();
        for (at, expected) in [
            ("93.184.216.34:443", Some("93.184.216.34:443")),
            ("192.168.1.2:22", Some("192.168.1.2:22")),
            ("10.244.0.1:53", Some("192.0.2.53:53")),
            ("10.244.0.1:80", None),
            ("10.244.1.2:80", None),
            ("10.96.0.1:443", None),
            ("127.0.0.1:80", None),
            ("224.0.0.1:80", None),
        ] {
            let found = destination(at.parse().unwrap(), || Some(server));
            assert_eq!(found, expected.map(|it| it.parse().unwrap()), "{at}");
        }
    }

    #[test]
    fn name_servers_are_those_of_the_host() {
        let text =
            "search example\n# nameserver 1.1.1.1\nnameserver 192.0.2.1\n nameserver ::1 x\n";
        let shown = |text: &str| -> Vec<String> {
            let found = servers(text).into_iter();
            found.map(|it| it.to_string()).collect()
        };
        assert_eq!(shown(text), ["192.0.2.1:53", "[::1]:53"]);
        assert_eq!(shown("nameserver\n"), ["127.0.0.1:53"]);
    }

    #[tokio::test]
    async fn a_name_server_that_does_not_listen_is_passed_over() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let servers = [closed.local_addr().unwrap(), server.local_addr().unwrap()];
        drop(closed);
        let answering = async {
            let mut query = [0; 16];
            let (n, from) = server.recv_from(&mut query).await.unwrap();
            server.send_to(&query[..n], from).await.unwrap();
        };
        let (answer, ()) = tokio::join!(ask_servers(b"query", &servers), answering);
        assert_eq!(answer.as_deref(), Some(&b"query"[..]));
    }
}
