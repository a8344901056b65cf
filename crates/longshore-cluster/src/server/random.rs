//! Random numbers of one cluster, repeatable when it was given a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// A SplitMix64 sequence shared by all requests.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(AtomicU64::new(seed))
    }

    /// A sequence with a random seed, which cannot be repeated.
    pub(crate) fn from_entropy() -> Random {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        Random::seeded(high ^ low)
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub(crate) fn uuid(&self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes())
            .into_uuid()
            .to_string()
    }
}
