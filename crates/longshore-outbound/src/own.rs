//! The addresses of this machine.

use std::{io, net::IpAddr};

use nix::ifaddrs::getifaddrs;

/// The addresses that the network interfaces of this machine have now; in a pod, those of the pod.
///
/// # Errors
/// The kernel does not list them.
pub(crate) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = getifaddrs()?;
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    Ok(addresses.collect())
}
