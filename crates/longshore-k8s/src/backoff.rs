//! How long to wait after a failure.

use std::time::Duration;

/// Exponential back-off without hidden state: the wait is a function of how many failures came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// No wait is longer than this.
    pub max: Duration,
}

impl Backoff {
    /// The kit's default for retries: 100 ms doubling to 30 s.
    pub const RETRY: Self = Self {
        first: Duration::from_millis(100),
        max: Duration::from_secs(30),
    };

    /// The wait after `n_failures` failures in a row; zero for none.
    pub fn wait(&self, n_failures: u32) -> Duration {
        let Some(doublings) = n_failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let backoff = Backoff {
            first: Duration::from_secs(10),
            max: Duration::from_secs(300),
        };
        let waits: Vec<u64> = (0..8).map(|n| backoff.wait(n).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.wait(u32::MAX), backoff.max);
    }
}
