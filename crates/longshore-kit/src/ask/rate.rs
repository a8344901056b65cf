//! Lets so many questions through at once, and so many in the long run. Pure: instants are passed in.

use std::time::Duration;

use tokio::time::Instant;

/// A limit on the rate of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// A second, in the long run; zero for no limit.
    pub per_second: u32,
    /// At once, after a pause.
    pub burst: u32,
}

/// How much of a rate is used up.
#[derive(Debug)]
pub(super) struct Rate {
    /// Between two questions in the long run; zero for no limit.
    interval: Duration,
    /// How far questions may be ahead of that.
    ahead: Duration,
    /// When the next question is due in the long run; `None` before the first one.
    due: Option<Instant>,
    /// The kind that had the last turn.
    last: &'static str,
}

impl Rate {
    pub(super) fn new(limit: RateLimit) -> Self {
        let interval = Duration::from_secs(1).checked_div(limit.per_second);
        let interval = interval.unwrap_or_default();
        Self {
            interval,
            ahead: interval.saturating_mul(limit.burst.saturating_sub(1)),
            due: None,
            last: "",
        }
    }

    /// From when on the next question may be sent; `None` where that is always so.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        // A clock does not reach before its beginning.
        self.due?.checked_sub(self.ahead)
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.opens_at().is_none_or(|at| at <= now)
    }

    /// The kind that had the last turn: the kinds that share the rate take turns.
    pub(super) fn last(&self) -> &'static str {
        self.last
    }

    /// A question of this kind is sent.
    pub(super) fn take(&mut self, kind: &'static str, now: Instant) {
        let own = self.due.map_or(now, |due| due.max(now));
        self.due = Some(own + self.interval);
        self.last = kind;
    }

    /// A question that was to be sent is not.
    pub(super) fn give_back(&mut self) {
        self.due = self.due.and_then(|due| due.checked_sub(self.interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after the first of `n` questions the last one is sent, where each is sent as soon as it may be.
    fn takes(per_second: u32, burst: u32, n: u32) -> Duration {
        let mut rate = Rate::new(RateLimit { per_second, burst });
        let began = Instant::now();
        let mut now = began;
        for _ in 0..n {
            now = rate.opens_at().map_or(now, |at| at.max(now));
            assert!(rate.is_open(now));
            rate.take("put", now);
        }
        now - began
    }

    #[test]
    fn a_burst_passes_and_the_rest_waits() {
        for (per_second, burst, n, expected) in [
            (10, 5, 5, 0),
            (10, 5, 6, 100),
            (10, 5, 25, 2000),
            (10, 0, 2, 100),
            (0, 0, 1000, 0),
        ] {
            let took = takes(per_second, burst, n);
            assert_eq!(took.as_millis(), expected, "{per_second} {burst} {n}");
        }
    }

    #[test]
    fn what_is_given_back_lets_another_one_through_and_no_more() {
        let mut rate = Rate::new(RateLimit {
            per_second: 1,
            burst: 2,
        });
        let now = Instant::now();
        rate.take("put", now);
        rate.take("put", now);
        assert!(!rate.is_open(now));
        rate.give_back();
        assert!(rate.is_open(now));
        rate.take("put", now);
        assert!(!rate.is_open(now));
        // After a pause that has filled the rate up, there is nothing to be given back.
        let later = now + Duration::from_secs(60);
        rate.give_back();
        rate.take("put", later);
        rate.take("put", later);
        assert!(!rate.is_open(later));
    }

    #[test]
    fn a_pause_allows_for_another_burst_and_no_more() {
        let mut rate = Rate::new(RateLimit {
            per_second: 1,
            burst: 2,
        });
        let began = Instant::now();
        let mut n_sent = |at: u64| {
            let now = began + Duration::from_secs(at);
            (0..9)
                .take_while(|_| {
                    let is_open = rate.is_open(now);
                    if is_open {
                        rate.take("put", now);
                    }
                    is_open
                })
                .count()
        };
        let sent = [0, 60, 61].map(&mut n_sent);
        assert_eq!(sent, [2, 2, 1]);
    }
}
