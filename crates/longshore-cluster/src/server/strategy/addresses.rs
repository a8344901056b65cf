//! Upstream's complaints about addresses that lead nowhere, or not to one place.

use std::net::IpAddr;

use super::NO_ADDRESS;

/// Whether an address of the loopback range will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loopback {
    /// Pods without a network of their own have one.
    Accepted,
    Refused,
}

/// What is wrong with a text that is to be an address.
pub(super) fn complaint(text: &str, loopback: Loopback) -> Option<String> {
    match text.parse() {
        Ok(address) => special(address, text, loopback),
        Err(_) => Some(NO_ADDRESS.to_owned()),
    }
}

/// What is wrong with an address, which was read from the text.
pub(super) fn special(address: IpAddr, text: &str, loopback: Loopback) -> Option<String> {
    if address.is_unspecified() {
        return Some(format!("may not be unspecified ({text})"));
    }
    let is_multicast = match address {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            [first, second, third] == [224, 0, 0]
        }
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    };
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let range = if loopback == Loopback::Refused && address.is_loopback() {
        "loopback range (127.0.0.0/8, ::1/128)"
    } else if is_link_local {
        "link-local range (169.254.0.0/16, fe80::/10)"
    } else if is_multicast {
        "link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return None;
    };
    Some(format!("may not be in the {range}"))
}
