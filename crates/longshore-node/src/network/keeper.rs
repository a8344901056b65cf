//! The keeper of pods' networks: a small process that owns the bridge and the network namespace of each pod, and makes
//! sockets in them for the node.
//!
//! A socket belongs to the namespace in which it was made, wherever it is used. So the node, which stays in the host's
//! network, accepts from pods and connects to them through sockets of the keeper. Like a shim, the keeper outlives a
//! node whose pods do, decides nothing, and has one thread: namespaces belong to threads.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    net::{Ipv4Addr, SocketAddrV4},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
        },
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns, unshare},
    sys::socket::{
        self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, setsockopt, sockopt,
    },
    unistd::{getegid, geteuid},
};

use super::{
    BRIDGE, PREFIX, SERVICES, SERVICES_PREFIX, channel,
    namespace::join_users_of,
    netlink,
    protocol::{Answer, Ask, Request},
};

const BRIDGE_LINK: &str = "br0";
const POD_LINK: &str = "eth0";
const LOOPBACK: u32 = 1;
/// The pair of links for packets to other networks.
const SINK: &str = "out0";
const SINK_END: &str = "out1";
/// The routing table in which all addresses are of this namespace, and the priority of the rules that lead there.
const ALL_TABLE: u8 = 100;
const RULES_PRIORITY: u32 = 100;
/// Connections that wait for the node to accept them.
const BACKLOG: i32 = 128;
/// A node that does not take an answer for this long counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The network namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Whether the keeper needs a user namespace to make networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Root,
    User,
}

/// One pod.
struct Attached {
    address: Ipv4Addr,
    namespace: File,
    /// The bridge's end of its pair.
    link: u32,
}

/// Serves the node at the socket that is standard input: until it is gone, or for as long as pods are attached.
/// `survivor` is a process of a pod whose keeper was killed.
pub(crate) fn keep(rights: Rights, stays: bool, survivor: Option<i32>) -> io::Result<()> {
    std::env::set_current_dir("/")?;
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    // A kernel that refuses is reported with each answer, so that the pods say why they wait.
    let mut networks = Networks::make(rights, survivor).map_err(|e| e.to_string());
    let mut node: Option<UnixStream> = None;
    let mut has_met_node = false;
    loop {
        let is_needed = match &networks {
            Ok(networks) => stays && !networks.pods.is_empty(),
            Err(_) => false,
        };
        if has_met_node && node.is_none() && !is_needed {
            return Ok(());
        }
        let (is_new, is_said) = wait(&listener, node.as_ref())?;
        if is_new && let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            (node, has_met_node) = (Some(stream), true);
            continue;
        }
        if is_said
            && let Some(stream) = &node
            && let Err(error) = serve(stream, &mut networks)
        {
            drop(writeln!(io::stderr(), "network: a node is gone: {error}"));
            node = None;
        }
        if networks.as_ref().is_ok_and(|networks| networks.is_lost) {
            return Err(io::Error::other("cannot return to the bridge"));
        }
    }
}

/// Waits until there is a new node, or the node says something.
fn wait(listener: &UnixListener, node: Option<&UnixStream>) -> io::Result<(bool, bool)> {
    let mut polled = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    polled.extend(node.map(|node| PollFd::new(node.as_fd(), PollFlags::POLLIN)));
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let mut ready = polled.iter().map(|it| it.any().unwrap_or(false));
    Ok((ready.next().unwrap_or(false), ready.next().unwrap_or(false)))
}

fn serve(node: &UnixStream, networks: &mut Result<Networks, String>) -> io::Result<()> {
    let (packet, _) = channel::receive(node)?;
    if packet.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let request: Request = serde_json::from_slice(&packet)?;
    let mut answer = Answer {
        id: request.id,
        ..Answer::default()
    };
    let made = match networks {
        Ok(networks) => networks.carry_out(request.ask, &mut answer),
        Err(why) => Err(io::Error::other(why.clone())),
    };
    let socket = made.unwrap_or_else(|error| {
        answer.error = Some(error.to_string());
        None
    });
    let socket = socket.as_ref().map(AsRawFd::as_raw_fd);
    channel::send(node, &serde_json::to_vec(&answer)?, socket)
}

/// The bridge and the pods at it.
struct Networks {
    /// The namespace of the bridge, where this process is between two requests.
    home: File,
    /// The number of the host's network namespace, which is no pod's.
    host: u64,
    bridge: u32,
    pods: BTreeMap<String, Attached>,
    /// What pods send to other networks is led to where it is seen.
    has_way_out: bool,
    /// This process is in another namespace, and cannot return.
    is_lost: bool,
}

impl Networks {
    fn make(rights: Rights, survivor: Option<i32>) -> io::Result<Self> {
        let host = fs::metadata(OWN)?.ino();
        if rights == Rights::User {
            enter_user_namespace(survivor)
                .map_err(|e| named("make a user namespace for networks", &e))?;
        }
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| named("make a network namespace", &e.into()))?;
        let home = File::open(OWN)?;
        // Links have one address. A kernel without IPv6 has no such file.
        drop(fs::write(
            "/proc/sys/net/ipv6/conf/default/disable_ipv6",
            "1",
        ));
        netlink::send(&netlink::up(LOOPBACK, None))?;
        let made = netlink::send(&netlink::bridge(BRIDGE_LINK));
        made.map_err(|e| named("make a bridge for pods", &e))?;
        let bridge = if_nametoindex(BRIDGE_LINK)?;
        netlink::send(&netlink::address(bridge, BRIDGE, PREFIX))?;
        netlink::send(&netlink::up(bridge, None))?;
        netlink::send(&netlink::own(SERVICES, SERVICES_PREFIX, LOOPBACK))?;
        Ok(Self {
            home,
            host,
            bridge,
            pods: BTreeMap::new(),
            has_way_out: false,
            is_lost: false,
        })
    }

    fn carry_out(&mut self, ask: Ask, answer: &mut Answer) -> io::Result<Option<OwnedFd>> {
        match ask {
            Ask::Attach {
                pod,
                address,
                has_way_out,
                holder,
            } => {
                let known = self.pods.get(&pod).filter(|it| it.address == address);
                if let Some(known) = known {
                    return Ok(Some(known.namespace.try_clone()?.into()));
                }
                self.detach(&pod);
                let namespace = match holder.and_then(|it| self.held(it)) {
                    Some(held) => held,
                    None => self.namespace()?,
                };
                self.attach(pod, namespace, address, has_way_out).map(Some)
            }
            Ask::Detach { pod } => {
                self.detach(&pod);
                Ok(None)
            }
            Ask::Listen { pod, address, port } => {
                let at = SocketAddrV4::new(address, port);
                self.inside(pod.as_deref(), || listener(at)).map(Some)
            }
            Ask::Socket { pod } => self.inside(pod.as_deref(), socket).map(Some),
            Ask::WayOut => self.way_out().map(Some),
            Ask::ListenForAll { port } => self.listen_for_all(port).map(Some),
            Ask::Datagrams { address, port } => {
                datagrams(SocketAddrV4::new(address, port)).map(Some)
            }
            Ask::Pods => {
                answer.pods = self.pods.keys().cloned().collect();
                Ok(None)
            }
        }
    }

    /// The namespace of a process of a pod; `None` where it has ended, or another process has its number.
    fn held(&self, holder: i32) -> Option<File> {
        let namespace = File::open(format!("/proc/{holder}/ns/net")).ok()?;
        let is_of_pod = namespace.metadata().ok()?.ino() != self.host;
        is_of_pod.then_some(namespace)
    }

    fn attach(
        &mut self,
        pod: String,
        namespace: File,
        address: Ipv4Addr,
        has_way_out: bool,
    ) -> io::Result<OwnedFd> {
        let name = link_name(address);
        if let Ok(leftover) = if_nametoindex(name.as_str()) {
            netlink::send(&netlink::delete(leftover))?;
        }
        // A namespace that was held has a link to a bridge that nobody serves any more.
        let emptied = self.within(&namespace, || match if_nametoindex(POD_LINK) {
            Ok(leftover) => netlink::send(&netlink::delete(leftover)),
            Err(_) => Ok(()),
        });
        emptied?;
        let pair = netlink::pair(&name, POD_LINK, namespace.as_raw_fd());
        netlink::send(&pair).map_err(|e| named("make a pair of links for a pod", &e))?;
        let link = if_nametoindex(name.as_str())?;
        let configured = self.within(&namespace, || configure(address, has_way_out));
        configured.map_err(|e| named("give a pod its address", &e))?;
        netlink::send(&netlink::up(link, Some(self.bridge)))?;
        let shared = namespace.try_clone()?.into();
        let attached = Attached {
            address,
            namespace,
            link,
        };
        self.pods.insert(pod, attached);
        Ok(shared)
    }

    /// Removes the network of a pod. One whose processes still run has none from now on.
    fn detach(&mut self, pod: &str) {
        if let Some(attached) = self.pods.remove(pod)
            && let Err(error) = netlink::send(&netlink::delete(attached.link))
        {
            // The kernel removes it with the last process of the pod.
            drop(writeln!(
                io::stderr(),
                "network: cannot remove a link: {error}"
            ));
        }
    }

    /// Leads what pods send to other networks into a pair of links that nobody reads. The answer sees it there.
    fn way_out(&mut self) -> io::Result<OwnedFd> {
        if !self.has_way_out {
            fs::write(
                format!("/proc/sys/net/ipv4/conf/{BRIDGE_LINK}/forwarding"),
                "1",
            )?;
            if let Ok(leftover) = if_nametoindex(SINK) {
                netlink::send(&netlink::delete(leftover))?;
            }
            netlink::send(&netlink::pair(SINK, SINK_END, self.home.as_raw_fd()))?;
            let sink = if_nametoindex(SINK)?;
            netlink::send(&netlink::up_without_neighbours(sink))?;
            netlink::send(&netlink::up(if_nametoindex(SINK_END)?, None))?;
            netlink::send(&netlink::default_route(sink))?;
            unless_there(netlink::send(&netlink::own_all(ALL_TABLE, LOOPBACK)))?;
            self.has_way_out = true;
        }
        watcher(if_nametoindex(SINK_END)?)
    }

    /// Takes connections to a port of any address, instead of leading them into nothing.
    fn listen_for_all(&mut self, port: u16) -> io::Result<OwnedFd> {
        let made = socket()?;
        setsockopt(&made, sockopt::ReusePort, &true)?;
        // Answers come from the address that the pod has connected to, which is none of this namespace.
        setsockopt(&made, sockopt::IpTransparent, &true)?;
        let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        socket::bind(made.as_raw_fd(), &SockaddrIn::from(at))?;
        socket::listen(&made, Backlog::new(BACKLOG)?)?;
        let rule = netlink::rule(port, BRIDGE_LINK, ALL_TABLE, RULES_PRIORITY);
        unless_there(netlink::send(&rule))?;
        Ok(made)
    }

    /// A network namespace with a loopback device.
    fn namespace(&mut self) -> io::Result<File> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = File::open(OWN).and_then(|namespace| {
            netlink::send(&netlink::up(LOOPBACK, None))?;
            Ok(namespace)
        });
        for (name, value) in [
            // As other container runtimes have it: no program needs a right for a low port.
            ("ipv4/ip_unprivileged_port_start", "0"),
            ("ipv6/conf/default/disable_ipv6", "1"),
        ] {
            // Where the kernel's settings are read-only, pods go without.
            drop(fs::write(format!("/proc/sys/net/{name}"), value));
        }
        self.return_home()?;
        made
    }

    fn inside<T>(
        &mut self,
        pod: Option<&str>,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(pod) = pod else { return make() };
        let Some(attached) = self.pods.get(pod) else {
            return Err(io::Error::other(format!("pod {pod} has no network")));
        };
        let namespace = attached.namespace.try_clone()?;
        self.within(&namespace, make)
    }

    fn within<T>(
        &mut self,
        namespace: &File,
        act: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        let result = act();
        self.return_home()?;
        result
    }

    fn return_home(&mut self) -> io::Result<()> {
        let returned = setns(&self.home, CloneFlags::CLONE_NEWNET);
        self.is_lost = returned.is_err();
        Ok(returned?)
    }
}

/// The inner end of a pod's pair of links.
fn configure(address: Ipv4Addr, has_way_out: bool) -> io::Result<()> {
    let link = if_nametoindex(POD_LINK)?;
    netlink::send(&netlink::address(link, address, PREFIX))?;
    netlink::send(&netlink::up(link, None))?;
    let (network, prefix) = if has_way_out {
        (Ipv4Addr::UNSPECIFIED, 0)
    } else {
        (SERVICES, SERVICES_PREFIX)
    };
    netlink::send(&netlink::route(network, prefix, BRIDGE, link))
}

/// Becomes root in a user namespace that has only this user. An ordinary user may make networks there. That of a survivor
/// has the rights over the networks that are left.
fn enter_user_namespace(survivor: Option<i32>) -> io::Result<()> {
    if survivor.is_some_and(|it| join_users_of(it).is_ok()) {
        return Ok(());
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    Ok(made)
}

fn listener(at: SocketAddrV4) -> io::Result<OwnedFd> {
    let made = socket()?;
    setsockopt(&made, sockopt::ReuseAddr, &true)?;
    // Beside one that listens for the port of all addresses.
    setsockopt(&made, sockopt::ReusePort, &true)?;
    let bound = socket::bind(made.as_raw_fd(), &SockaddrIn::from(at));
    bound.map_err(|e| named(&format!("listen at {at}"), &e.into()))?;
    socket::listen(&made, Backlog::new(BACKLOG)?)?;
    Ok(made)
}

fn datagrams(at: SocketAddrV4) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket::socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    socket::bind(made.as_raw_fd(), &SockaddrIn::from(at))?;
    Ok(made)
}

/// A socket that gets a copy of each IPv4 packet that comes in through a link.
fn watcher(link: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket::socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: u16::try_from(libc::ETH_P_IP).unwrap_or_default().to_be(),
        sll_ifindex: i32::try_from(link).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    #[expect(
        unsafe_code,
        reason = "nix makes no packet address from an index of a link"
    )]
    // SAFETY: `address` is a `struct sockaddr_ll` of the length passed and outlives the call; the kernel only reads it.
    let result = unsafe { libc::bind(made.as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(result)?;
    Ok(made)
}

/// What an earlier node has asked for is there.
fn unless_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// At most 15 bytes, and one for each address.
fn link_name(address: Ipv4Addr) -> String {
    format!("p{:08x}", u32::from(address))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
