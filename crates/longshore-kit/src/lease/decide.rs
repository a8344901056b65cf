//! What an elector does next: a pure function of what it saw and how much time has passed.
//!
//! Instants are times since the elector's start, on its own monotonic clock.

use std::time::Duration;

use super::{Terms, record::Record};

/// The lease as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// What it says.
    pub(super) record: Record,
    /// When it was first seen to say so. What its holder's clock says is of no interest: it may be wrong.
    pub(super) seen_at: Duration,
}

impl Sighting {
    /// The lease as it is seen now; the earlier sighting, where it still says the same.
    pub(super) fn of(record: Record, now: Duration, before: Option<Self>) -> Self {
        match before {
            Some(before) if before.record.says_the_same(&record) => Self {
                record,
                seen_at: before.seen_at,
            },
            Some(_) | None => Self {
                record,
                seen_at: now,
            },
        }
    }

    /// Until when others have to wait. The holder's own promise counts, which may be longer than ours.
    fn expires_at(&self) -> Duration {
        self.seen_at + self.record.duration
    }

    /// Whether a process holds it.
    pub(super) fn is_held(&self, now: Duration) -> bool {
        self.record.holder.is_some() && now < self.expires_at()
    }
}

/// All that a step is decided upon.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The lease; `None` where there is none.
    pub(super) lease: Option<Sighting>,
    /// When the last successful renewal was sent; `None` while we do not hold the lease.
    pub(super) renewed_at: Option<Duration>,
    /// When a renewal was last tried.
    pub(super) tried_at: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create the lease, with us as its holder.
    Create,
    /// Write us into the lease as its holder, and how many times the holder has changed.
    Take {
        /// `leaseTransitions`.
        transitions: i64,
    },
    /// Write a new renew time.
    Renew,
    /// Look again after this time.
    Wait(Duration),
    /// Stop acting: the lease is another's, or may become so before we can renew it.
    Resign,
}

/// Decides one step of `me`.
pub(super) fn decide(me: &str, terms: &Terms, view: &View, now: Duration) -> Step {
    match view.renewed_at {
        Some(renewed_at) => decide_holder(me, terms, view, renewed_at, now),
        None => decide_candidate(me, terms, view.lease.as_ref(), now),
    }
}

fn decide_holder(
    me: &str,
    terms: &Terms,
    view: &View,
    renewed_at: Duration,
    now: Duration,
) -> Step {
    let is_ours = view
        .lease
        .as_ref()
        .is_some_and(|lease| lease.record.holder.as_deref() == Some(me));
    if !is_ours || now >= renewed_at + terms.renew_deadline {
        return Step::Resign;
    }
    let due = renewed_at.max(view.tried_at.unwrap_or_default()) + terms.retry_period;
    if now >= due {
        return Step::Renew;
    }
    let deadline = renewed_at + terms.renew_deadline;
    Step::Wait(due.min(deadline) - now)
}

fn decide_candidate(me: &str, terms: &Terms, lease: Option<&Sighting>, now: Duration) -> Step {
    let Some(lease) = lease else {
        return Step::Create;
    };
    let transitions = lease.record.transitions;
    match lease.record.holder.as_deref() {
        // A take of ours whose answer was lost.
        Some(holder) if holder == me => Step::Take { transitions },
        Some(_) if lease.is_held(now) => {
            Step::Wait(terms.retry_period.min(lease.expires_at() - now))
        }
        Some(_) | None => Step::Take {
            transitions: transitions.saturating_add(1),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(holder: Option<&str>) -> Record {
        Record {
            holder: holder.map(str::to_owned),
            duration: s(15),
            renew_time: "2026-01-01T00:00:00.000000Z".to_owned(),
            transitions: 3,
            resource_version: "7".to_owned(),
        }
    }

    fn seen(holder: Option<&str>, seen_at: u64) -> Option<Sighting> {
        let record = record(holder);
        let seen_at = s(seen_at);
        Some(Sighting { record, seen_at })
    }

    #[test]
    fn who_does_not_hold_the_lease_takes_it_when_it_is_free_or_expired() {
        let terms = Terms::default();
        for (what, lease, now, expected) in [
            ("none", None, 100, Step::Create),
            (
                "released",
                seen(None, 99),
                100,
                Step::Take { transitions: 4 },
            ),
            (
                "ours",
                seen(Some("me"), 99),
                100,
                Step::Take { transitions: 3 },
            ),
            ("fresh", seen(Some("you"), 100), 100, Step::Wait(s(2))),
            (
                "nearly expired",
                seen(Some("you"), 86),
                100,
                Step::Wait(s(1)),
            ),
            (
                "expired",
                seen(Some("you"), 85),
                100,
                Step::Take { transitions: 4 },
            ),
        ] {
            let (renewed_at, tried_at) = (None, None);
            let view = View {
                lease,
                renewed_at,
                tried_at,
            };
            assert_eq!(decide("me", &terms, &view, s(now)), expected, "{what}");
        }
    }

    #[test]
    fn the_holder_renews_in_time_or_steps_down() {
        let terms = Terms::default();
        for (what, lease, tried_at, now, expected) in [
            (
                "just renewed",
                seen(Some("me"), 0),
                None,
                100,
                Step::Wait(s(2)),
            ),
            ("due", seen(Some("me"), 0), None, 102, Step::Renew),
            (
                "just tried",
                seen(Some("me"), 0),
                Some(102),
                103,
                Step::Wait(s(1)),
            ),
            (
                "tried before",
                seen(Some("me"), 0),
                Some(102),
                104,
                Step::Renew,
            ),
            (
                "tried at the end",
                seen(Some("me"), 0),
                Some(109),
                109,
                Step::Wait(s(1)),
            ),
            (
                "at the deadline",
                seen(Some("me"), 0),
                Some(109),
                110,
                Step::Resign,
            ),
            (
                "after a pause",
                seen(Some("me"), 0),
                None,
                500,
                Step::Resign,
            ),
            ("another's", seen(Some("you"), 101), None, 101, Step::Resign),
            ("released by hand", seen(None, 101), None, 101, Step::Resign),
            ("deleted", None, None, 101, Step::Resign),
        ] {
            let (renewed_at, tried_at) = (Some(s(100)), tried_at.map(s));
            let view = View {
                lease,
                renewed_at,
                tried_at,
            };
            assert_eq!(decide("me", &terms, &view, s(now)), expected, "{what}");
        }
    }

    #[test]
    fn only_a_change_of_what_the_lease_says_counts_as_a_renewal() {
        let first = Sighting::of(record(Some("you")), s(5), None);
        assert_eq!(first.seen_at, s(5));
        let mut labelled = record(Some("you"));
        labelled.resource_version = "8".to_owned();
        let same = Sighting::of(labelled, s(9), Some(first));
        assert_eq!(
            (same.seen_at, same.record.resource_version.as_str()),
            (s(5), "8")
        );
        let mut renewed = record(Some("you"));
        renewed.renew_time = "1999-01-01T00:00:00.000000Z".to_owned();
        let renewed = Sighting::of(renewed, s(11), Some(same));
        assert_eq!(
            renewed.seen_at,
            s(11),
            "whatever time its holder believes it is"
        );
    }

    #[test]
    fn a_lease_is_held_for_as_long_as_it_says_from_when_it_was_seen_to_change() {
        for (what, lease, now, expected) in [
            ("fresh", seen(Some("you"), 100), 100, true),
            ("nearly expired", seen(Some("you"), 86), 100, true),
            ("expired", seen(Some("you"), 85), 100, false),
            ("released", seen(None, 100), 100, false),
        ] {
            assert_eq!(lease.unwrap().is_held(s(now)), expected, "{what}");
        }
    }

    /// The rule behind it all: whenever a candidate may take the lease, the holder has stopped acting.
    #[test]
    fn the_holder_has_always_stopped_before_somebody_else_takes_over() {
        let terms = Terms::default();
        for sent_at in 0..50 {
            // The candidate sees the renewal at once, or later.
            for seen_at in sent_at..sent_at + 5 {
                for now in sent_at..sent_at + 60 {
                    let candidate = View {
                        lease: seen(Some("holder"), seen_at),
                        renewed_at: None,
                        tried_at: None,
                    };
                    let takes = decide("other", &terms, &candidate, s(now));
                    let holds = s(now) < s(sent_at) + terms.renew_deadline;
                    let is_taken = matches!(takes, Step::Take { .. });
                    assert!(!(is_taken && holds), "{sent_at} {seen_at} {now}");
                }
            }
        }
    }
}
