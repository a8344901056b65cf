//! An address for each pod: one of the loopback network for a pod that shares the host's network, because every
//! address of 127.0.0.0/8 can be bound without setting anything up; one of the pod network for a pod that has a network
//! of its own.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
};

use crate::network;

/// Where the address of a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The loopback network of the host. Pods that bind to their own address may use the same ports.
    Loopback,
    /// The network of the pods that have one of their own.
    PodNetwork,
}

/// The addresses of one node's pods.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    taken: Mutex<BTreeMap<Ipv4Addr, String>>,
}

impl Addresses {
    /// Assigns the address of a pod: the published one, else the first free one after a place that
    /// is derived from the uid. So a node that comes back assigns a pod the address that it had.
    pub(crate) fn assign(&self, pool: Pool, uid: &str, published: Option<Ipv4Addr>) -> Ipv4Addr {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |address: &Ipv4Addr, taken: &BTreeMap<Ipv4Addr, String>| {
            taken.get(address).is_none_or(|owner| owner == uid)
        };
        let published = published.filter(|it| pool.owns(*it) && is_free(it, &taken));
        let address = published.unwrap_or_else(|| {
            let (place, n_places) = (place(uid, pool.n_places()), pool.n_places());
            let mut candidates =
                (0..n_places).map(|offset| pool.address((place + offset) % n_places));
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

impl Pool {
    fn n_places(self) -> u32 {
        match self {
            // Third and fourth number run from 1 to 254, the second from 1 to 255: 127.0.x.y has other uses.
            Self::Loopback => 255 * 254 * 254,
            Self::PodNetwork => network::N_ADDRESSES,
        }
    }

    fn address(self, place: u32) -> Ipv4Addr {
        match self {
            Self::Loopback => {
                let number = |n: u32| u8::try_from(n + 1).unwrap_or(u8::MAX);
                let (low, rest) = (place % 254, place / 254);
                Ipv4Addr::new(127, number(rest / 254), number(rest % 254), number(low))
            }
            Self::PodNetwork => network::address(place),
        }
    }

    /// Whether the pool can have assigned this address.
    pub(crate) fn owns(self, address: Ipv4Addr) -> bool {
        match self {
            Self::Loopback => address.is_loopback() && address.octets()[1] != 0,
            Self::PodNetwork => network::is_of_a_pod(address),
        }
    }
}

/// The place that follows from a uid (FNV-1a).
fn place(uid: &str, n_places: u32) -> u32 {
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u32::try_from((hash >> 16) % u64::from(n_places)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pods_have_addresses_of_their_own_that_come_back() {
        for pool in [Pool::Loopback, Pool::PodNetwork] {
            let addresses = Addresses::default();
            let all: BTreeSet<Ipv4Addr> = (0..2000)
                .map(|i| addresses.assign(pool, &format!("uid-{i}"), None))
                .collect();
            assert_eq!(all.len(), 2000);
            assert!(all.iter().all(|it| pool.owns(*it)), "{pool:?}");
            let first = addresses.assign(pool, "uid-0", None);
            let after_restart = Addresses::default();
            assert_eq!(after_restart.assign(pool, "uid-0", None), first);
            assert_eq!(
                after_restart.assign(pool, "other", Some(first)),
                after_restart.assign(pool, "other", None)
            );
            assert_ne!(
                after_restart.assign(pool, "other", Some(first)),
                first,
                "it is taken"
            );
        }
    }

    #[test]
    fn a_published_address_is_kept_and_one_of_a_gone_pod_is_free() {
        for (pool, published, shared) in [
            (Pool::Loopback, "127.9.9.9", "127.0.0.1"),
            (Pool::PodNetwork, "10.244.9.9", "10.244.0.1"),
        ] {
            let addresses = Addresses::default();
            let published: Ipv4Addr = published.parse().unwrap();
            assert_eq!(addresses.assign(pool, "a", Some(published)), published);
            assert_ne!(addresses.assign(pool, "b", Some(published)), published);
            addresses.release("a");
            assert_eq!(addresses.assign(pool, "c", Some(published)), published);
            let shared: Ipv4Addr = shared.parse().unwrap();
            assert_ne!(
                addresses.assign(pool, "d", Some(shared)),
                shared,
                "an older node's, or the bridge's"
            );
        }
    }

    #[test]
    fn the_pools_share_no_address() {
        for (address, loopback, pod_network) in [
            ("127.1.2.3", true, false),
            ("127.0.0.1", false, false),
            ("10.244.0.2", false, true),
            ("10.244.255.254", false, true),
            ("10.244.255.255", false, false),
            ("10.244.0.0", false, false),
            ("10.245.1.1", false, false),
        ] {
            let address = address.parse().unwrap();
            let owns = (Pool::Loopback.owns(address), Pool::PodNetwork.owns(address));
            assert_eq!(owns, (loopback, pod_network), "{address}");
        }
    }
}
