//! Packets with descriptors over a unix socket: both ends of the protocol.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    sys::socket::{
        self, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag,
        SockType, UnixAddr, recvmsg, sendmsg,
    },
};

use super::protocol::{MAX_DESCRIPTORS, MAX_PACKET};

/// Connections that wait for the keeper; there is one node.
const BACKLOG: i32 = 4;

/// A socket that takes connections of packets at a path.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = packets()?;
    socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    socket::listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(UnixListener::from(socket))
}

/// Connects to such a socket.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = packets()?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn packets() -> Result<OwnedFd, Errno> {
    socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
}

/// Sends one packet.
pub(super) fn send(
    socket: &impl AsRawFd,
    packet: &[u8],
    descriptor: Option<RawFd>,
) -> io::Result<()> {
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() {
        &[][..]
    } else {
        &rights[..]
    };
    let packet = [IoSlice::new(packet)];
    // A node that is gone must not end this process by a signal.
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_raw_fd(), &packet, control, flags, None)?;
    Ok(())
}

/// The next packet and its descriptors; an empty packet is the end of the connection.
pub(super) fn receive(socket: &impl AsRawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut packet = vec![0; MAX_PACKET];
    let mut control = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut packet)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            descriptors.extend(numbers.into_iter().map(owned));
        }
    }
    let n = received.bytes;
    packet.truncate(n);
    Ok((packet, descriptors))
}

fn owned(descriptor: RawFd) -> OwnedFd {
    #[expect(
        unsafe_code,
        reason = "descriptors that another process passes come as numbers"
    )]
    // SAFETY: the kernel has just made this descriptor for the packet, and nothing else has its number.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    owned
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn packets_keep_their_bounds_and_bring_their_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = listen(&path).unwrap();
        let node = connect(&path).unwrap();
        let (keeper, _) = listener.accept().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let open = File::open(&file).unwrap();
        send(&node, b"one", None).unwrap();
        send(&node, b"two", Some(open.as_raw_fd())).unwrap();
        let (packet, descriptors) = receive(&keeper).unwrap();
        assert_eq!((packet.as_slice(), descriptors.len()), (&b"one"[..], 0));
        let (packet, descriptors) = receive(&keeper).unwrap();
        assert_eq!(packet, b"two");
        let mut text = String::new();
        let received = descriptors.into_iter().next().expect("a descriptor");
        File::from(received).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        drop(node);
        assert_eq!(receive(&keeper).unwrap().0, b"");
        assert!(send(&keeper, b"late", None).is_err(), "and no signal");
    }
}
