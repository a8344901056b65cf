//! When to fetch again. Pure.

use std::time::Duration;

use longshore_k8s::Backoff;

use super::error::{Class, GitError};

/// How often a repository is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshPace {
    /// The wait after a success, and the longest one after failures; default 300 s (`[dag_processor] refresh_interval`,
    /// or the bundle's own).
    pub interval: Duration,
    /// The wait after the first failure, which doubles with each further one; default 5 s.
    pub first_retry: Duration,
}

impl Default for RefreshPace {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(300),
            first_retry: Duration::from_secs(5),
        }
    }
}

impl RefreshPace {
    /// How long to wait after a refresh. `n_failures` counts those in a row that failed, this one included.
    #[must_use]
    pub fn wait(&self, error: Option<&GitError>, n_failures: u32) -> Duration {
        let backoff = Backoff {
            first: self.first_retry,
            max: self.interval,
        };
        match error.map(GitError::class) {
            Some(Class::Retry) => backoff.wait(n_failures.max(1)),
            // Somebody has to change something first.
            Some(Class::Invalid) | None => self.interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_may_pass_are_retried_soon_and_then_later() {
        let pace = RefreshPace::default();
        let gone = GitError::Gone {
            remote: String::new(),
            said: String::new(),
        };
        let wrong = GitError::RefMissing {
            tracking_ref: String::new(),
        };
        let waits = |error: Option<&GitError>| {
            let waits = (0..8).map(|n| pace.wait(error, n).as_secs());
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(Some(&gone)), [5, 5, 10, 20, 40, 80, 160, 300]);
        assert_eq!(waits(Some(&wrong)), [300; 8]);
        assert_eq!(waits(None), [300; 8]);
    }
}
