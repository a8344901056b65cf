//! Random numbers that a seed repeats.

/// SplitMix64: enough to pick moments, and short enough to need no crate.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (z ^ (z >> 31)) % (high - low + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_numbers_stay_in_their_bounds() {
        let roll = |seed| -> Vec<u64> {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| dice.between(3, 9)).collect()
        };
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        for n in 3..=9 {
            assert!(roll(1).contains(&n), "{n}");
        }
        assert!(roll(1).iter().all(|n| (3..=9).contains(n)));
    }
}
