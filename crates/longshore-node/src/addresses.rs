//! An address of the loopback network for each pod: pods share the host's network, and every address
//! of 127.0.0.0/8 can be bound without setting anything up. Pods that bind to their own address may
//! use the same ports.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
};

/// The addresses of one node's pods.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    taken: Mutex<BTreeMap<Ipv4Addr, String>>,
}

impl Addresses {
    /// Assigns the address of a pod: the published one, else the first free one after a place that
    /// is derived from the uid. So a node that comes back assigns a pod the address that it had.
    pub(crate) fn assign(&self, uid: &str, published: Option<Ipv4Addr>) -> Ipv4Addr {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |address: &Ipv4Addr, taken: &BTreeMap<Ipv4Addr, String>| {
            taken.get(address).is_none_or(|owner| owner == uid)
        };
        let published = published.filter(|it| is_ours(*it) && is_free(it, &taken));
        let address = published.unwrap_or_else(|| {
            let place = place(uid);
            let mut candidates = (0..PLACES).map(|offset| address((place + offset) % PLACES));
            // There are far fewer pods than addresses.
            candidates
                .find(|it| is_free(it, &taken))
                .unwrap_or(Ipv4Addr::LOCALHOST)
        });
        taken.insert(address, uid.to_owned());
        address
    }

    /// Frees the address of a pod that no longer exists.
    pub(crate) fn release(&self, uid: &str) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, owner| owner != uid);
    }
}

/// Third and fourth number run from 1 to 254, the second from 1 to 255: 127.0.x.y has other uses.
const PLACES: u32 = 255 * 254 * 254;

fn address(place: u32) -> Ipv4Addr {
    let number = |n: u32| u8::try_from(n + 1).unwrap_or(u8::MAX);
    let (low, rest) = (place % 254, place / 254);
    Ipv4Addr::new(127, number(rest / 254), number(rest % 254), number(low))
}

fn is_ours(address: Ipv4Addr) -> bool {
    address.is_loopback() && address.octets()[1] != 0
}

/// The place that follows from a uid (FNV-1a).
fn place(uid: &str) -> u32 {
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u32::try_from((hash >> 16) % u64::from(PLACES)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pods_have_addresses_of_their_own_that_come_back() {
        let addresses = Addresses::default();
        let all: BTreeSet<Ipv4Addr> = (0..2000)
            .map(|i| addresses.assign(&format!("uid-{i}"), None))
            .collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|it| is_ours(*it) && it.octets()[3] != 0));
        let first = addresses.assign("uid-0", None);
        let after_restart = Addresses::default();
        assert_eq!(after_restart.assign("uid-0", None), first);
        assert_eq!(
            after_restart.assign("other", Some(first)),
            after_restart.assign("other", None)
        );
        assert_ne!(
            after_restart.assign("other", Some(first)),
            first,
            "it is taken"
        );
    }

    #[test]
    fn a_published_address_is_kept_and_one_of_a_gone_pod_is_free() {
        let addresses = Addresses::default();
        let published: Ipv4Addr = "127.9.9.9".parse().unwrap();
        assert_eq!(addresses.assign("a", Some(published)), published);
        assert_ne!(addresses.assign("b", Some(published)), published);
        addresses.release("a");
        assert_eq!(addresses.assign("c", Some(published)), published);
        let shared = Some(Ipv4Addr::LOCALHOST);
        assert_ne!(
            addresses.assign("d", shared),
            Ipv4Addr::LOCALHOST,
            "an older node's"
        );
    }
}
