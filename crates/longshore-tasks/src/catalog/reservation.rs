//! The action that may fill the cache for a key, and until when.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The right to fill the cache for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its owner: `<namespace>/<name>` of a TaskAction.
    pub owner: String,
    /// How soon the owner means to extend it.
    pub heartbeat: Duration,
    /// When it ends, unless it is extended.
    pub expires_at: Timestamp,
}

/// How long a reservation may be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `cache_service.maxReservationHeartbeat`: the longest interval of an owner's heartbeat. Default: 10 s.
    pub max_heartbeat: Duration,
    /// `cache_service.heartbeatGracePeriodMultiplier`: so many intervals without a heartbeat end a reservation.
    /// Default: 3.
    pub grace: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_heartbeat: Duration::from_secs(10),
            grace: 3,
        }
    }
}

impl Reservation {
    /// Whether its owner has let it go.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}

/// The reservation that an owner gets when it asks for one; `None` where the current one stays.
pub(super) fn claim(
    current: Option<&Reservation>,
    owner: &str,
    heartbeat: Duration,
    now: Timestamp,
    limits: Limits,
) -> Option<Reservation> {
    if current.is_some_and(|it| it.owner != owner && !it.is_over(now)) {
        return None;
    }
    let is_sensible = !heartbeat.is_zero() && heartbeat < limits.max_heartbeat;
    let heartbeat = if is_sensible {
        heartbeat
    } else {
        limits.max_heartbeat
    };
    let left = SignedDuration::try_from(heartbeat.saturating_mul(limits.grace));
    let left = left.unwrap_or(SignedDuration::MAX);
    Some(Reservation {
        owner: owner.to_owned(),
        heartbeat,
        expires_at: now.saturating_add(left).unwrap_or(Timestamp::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_owner_extends_and_others_wait_until_it_is_over() {
        let held = claim(None, "a", s(5), at(100), Limits::default()).unwrap();
        assert_eq!((held.heartbeat, held.expires_at), (s(5), at(115)));
        let table = [
            ("a", 114, Some(129)),
            ("b", 114, None),
            ("b", 115, Some(130)),
            ("a", 200, Some(215)),
        ];
        for (owner, now, expected) in table {
            let claimed = claim(Some(&held), owner, s(5), at(now), Limits::default());
            assert!(claimed.as_ref().is_none_or(|it| it.owner == owner));
            let until = claimed.map(|it| it.expires_at);
            assert_eq!(until, expected.map(at), "{owner} at {now}");
        }
    }

    #[test]
    fn a_heartbeat_is_at_most_the_longest_one() {
        for (asked, expected) in [(0, 10), (1, 1), (10, 10), (3600, 10)] {
            let granted = claim(None, "a", s(asked), at(0), Limits::default()).unwrap();
            assert_eq!(granted.heartbeat, s(expected), "of {asked}");
            let end = i64::try_from(expected * 3).unwrap();
            assert_eq!(granted.expires_at, at(end));
        }
    }
}
