//! Lets so much through at once, and so much in the long run.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use longshore_plugins::Limit;
use tokio::time::Instant;

/// A limit of requests. Those that it holds back go in the order in which they came.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// Between two requests in the long run; zero for no limit.
    interval: Duration,
    /// How far requests may be ahead of that.
    ahead: Duration,
    /// When the next request is due; `None` before the first one.
    due: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub(super) fn new(limit: Limit) -> Self {
        let interval = Duration::from_secs(1)
            .checked_div(limit.per_second)
            .unwrap_or_default();
        Self {
            interval,
            ahead: interval.saturating_mul(limit.burst.saturating_sub(1)),
            due: Mutex::new(None),
        }
    }

    /// Waits for its turn.
    pub(super) async fn take(&self) {
        tokio::time::sleep_until(self.turn(Instant::now())).await;
    }

    fn turn(&self, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let own = due.map_or(now, |due| due.max(now));
        *due = Some(own + self.interval);
        // A clock does not reach before its beginning.
        own.checked_sub(self.ahead)
            .map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn took(per_second: u32, burst: u32, n: u32) -> Duration {
        let limit = RateLimit::new(Limit { per_second, burst });
        let began = Instant::now();
        for _ in 0..n {
            limit.take().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_waits() {
        assert_eq!(took(10, 5, 5).await, Duration::ZERO);
        assert_eq!(took(10, 5, 6).await, Duration::from_millis(100));
        assert_eq!(took(10, 5, 25).await, Duration::from_secs(2));
        assert_eq!(took(10, 0, 2).await, Duration::from_millis(100));
        assert_eq!(took(0, 0, 1000).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_allows_for_another_burst_and_no_more() {
        let limit = RateLimit::new(Limit {
            per_second: 1,
            burst: 2,
        });
        for _ in 0..2 {
            limit.take().await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        for _ in 0..3 {
            limit.take().await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
