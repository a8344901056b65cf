//! When a child that keeps dying is started again.

use std::time::Duration;

use longshore_k8s::Backoff;

/// Counts the early ends of a child that should run for ever.
#[derive(Clone, Debug)]
pub struct Restarts {
    backoff: Backoff,
    /// A child that lived for so long was well: its end is not counted.
    steady: Duration,
    n_early: u32,
}

impl Restarts {
    /// `backoff` holds between starts; a life of `steady` or longer forgets the ends before.
    pub fn new(backoff: Backoff, steady: Duration) -> Self {
        Self {
            backoff,
            steady,
            n_early: 0,
        }
    }

    /// The child ended after it `lived` for so long: returns how long to wait before it is started again.
    /// The first early end costs nothing: something may have killed the child from outside.
    pub fn ended(&mut self, lived: Duration) -> Duration {
        if lived >= self.steady {
            self.n_early = 0;
            return Duration::ZERO;
        }
        let wait = self.backoff.wait(self.n_early);
        self.n_early = self.n_early.saturating_add(1);
        wait
    }
}

impl Default for Restarts {
    /// 1 s doubling to 60 s; 10 s of life are enough.
    fn default() -> Self {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60),
        };
        Self::new(backoff, Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_ends_wait_longer_each_time_until_one_life_was_long() {
        let mut restarts = Restarts::default();
        let waits: Vec<u64> = [0, 1, 0, 9, 0, 0, 0, 0, 0, 10, 0, 0]
            .into_iter()
            .map(|lived| restarts.ended(Duration::from_secs(lived)).as_secs())
            .collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60, 0, 0, 1]);
    }
}
