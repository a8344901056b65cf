//! What a task's cache means for its attempts (task action spec §7.2, §7.3). Pure: facts in, the next step out.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use longshore_core::Seen;
use longshore_plugins::{Phase, PhaseInfo, ReasonInfo};

use super::{CatalogCacheStatus, CatalogError, Put};

/// What is known of a cached task whose attempt is to be launched, or goes on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Something of the attempt exists: the cache is not looked up any more.
    pub is_launched: bool,
    /// `metadata.cache_serializable`: of those that run at the same time one fills the cache for all.
    pub is_serializable: bool,
    /// The name under which this action reserves: `<namespace>/<name>`.
    pub owner: &'a str,
    /// What is cached, for an attempt that is to be launched.
    pub outputs: &'a Seen<Bytes>,
    /// Whether all answers to what is cached have failed for as long as a reservation holds.
    pub is_look_up_given_up: bool,
    /// What came of the reservation, if that was asked for a short while ago.
    pub claim: Option<&'a Claim>,
    /// Whether all requests for the reservation have failed for as long as it holds.
    pub is_reservation_given_up: bool,
}

/// What came of asking for a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// An action has it now.
    HeldBy {
        /// Who.
        owner: String,
        /// The catalog expects its owner again within this.
        heartbeat: Duration,
    },
    /// The catalog did not tell: why.
    Failed(String),
}

/// What is next for a cached task before its plugin is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Copy this to where the attempt's outputs belong; then it has succeeded, as [`hit`].
    Copy(Bytes),
    /// Ask for the reservation, or extend it.
    Reserve,
    /// Let the plugin go on.
    Run,
    /// Let the plugin wait.
    Wait(Wait),
}

/// What an attempt waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The owner of the reservation, which fills the cache.
    ForOwner(String),
    /// The cache cannot be asked: why.
    ForCache(String),
}

/// What is next.
///
/// A cache that cannot be asked keeps no task from running. Those that were promised that one runs at a time wait for as
/// long as a reservation holds without its owner; upstream lets these run at once. Then the reservation is asked for once
/// more: whoever can have it or hears of its owner keeps to it.
pub fn before(facts: &Facts<'_>) -> Before {
    let mut is_given_up = facts.is_reservation_given_up;
    if !facts.is_launched {
        match facts.outputs {
            Seen::Present(outputs) => return Before::Copy(outputs.clone()),
            Seen::Unknown(why) if facts.is_serializable && !facts.is_look_up_given_up => {
                return Before::Wait(Wait::ForCache(why.to_string()));
            }
            Seen::Unknown(_) => is_given_up = true,
            Seen::Absent => {}
        }
    }
    if !facts.is_serializable {
        return Before::Run;
    }
    match facts.claim {
        None => Before::Reserve,
        // Code that runs is not sent away when its reservation was lost: it would run on unseen.
        Some(_) if facts.is_launched => Before::Run,
        Some(Claim::HeldBy { owner, .. }) if owner == facts.owner => Before::Run,
        Some(Claim::HeldBy { owner, .. }) => Before::Wait(Wait::ForOwner(owner.clone())),
        Some(Claim::Failed(_)) if is_given_up => Before::Run,
        Some(Claim::Failed(why)) => Before::Wait(Wait::ForCache(why.to_string())),
    }
}

/// Whether outputs that were cached at this instant are of use; `max_age` zero means that all are.
pub fn is_young(updated_at: Option<Timestamp>, max_age: Duration, now: Timestamp) -> bool {
    let max_age = SignedDuration::try_from(max_age).unwrap_or(SignedDuration::MAX);
    max_age.is_zero() || updated_at.is_some_and(|at| now.duration_since(at) <= max_age)
}

/// The attempt of a task whose outputs were cached.
pub fn hit(now: Timestamp) -> PhaseInfo {
    PhaseInfo {
        reasons: vec![reason_info("cache hit", now)],
        ..PhaseInfo::of(Phase::Success, "")
    }
}

/// An attempt that waits; `version` is `status.pluginPhaseVersion`.
pub fn waiting(wait: &Wait, version: u32, now: Timestamp) -> PhaseInfo {
    let (reason, note) = match wait {
        Wait::ForOwner(owner) => (
            format!("waiting for cache to be populated by reservation owner {owner:?}"),
            "waiting for serialized cache owner",
        ),
        Wait::ForCache(why) => (
            format!("waiting for the cache, which cannot be asked: {why}"),
            "waiting for the cache",
        ),
    };
    PhaseInfo {
        version,
        reasons: vec![reason_info(note, now)],
        ..PhaseInfo::of(Phase::WaitingForCache, reason)
    }
}

/// What the status says of an attempt that waits.
pub fn status_of(wait: &Wait) -> CatalogCacheStatus {
    match wait {
        Wait::ForOwner(_) => CatalogCacheStatus::CacheMiss,
        Wait::ForCache(_) => CatalogCacheStatus::CacheLookupFailure,
    }
}

fn reason_info(reason: &str, now: Timestamp) -> ReasonInfo {
    ReasonInfo {
        reason: reason.to_owned(),
        occurred_at: now,
    }
}

/// What the status says of outputs that were to be cached. The task has succeeded in any case.
pub fn cache_status(put: &Result<Put, CatalogError>) -> CatalogCacheStatus {
    match put {
        // Upstream's executor takes the second for a failure, though the outputs of another action are there.
        Ok(Put::Stored | Put::AlreadyThere) => CatalogCacheStatus::CachePopulated,
        Err(_) => CatalogCacheStatus::CachePutFailure,
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::UnknownCause;

    use super::*;

    fn held_by(owner: &str) -> Claim {
        Claim::HeldBy {
            owner: owner.to_owned(),
            heartbeat: Duration::from_secs(10),
        }
    }

    #[test]
    fn before_the_launch_the_cache_is_asked_then_the_reservation() {
        let hit = Seen::Present(Bytes::from_static(b"outputs"));
        let (miss, failed) = (
            Seen::Absent,
            Seen::unknown(UnknownCause::Unreachable, "down"),
        );
        let (us, them) = (held_by("flyte/r-a"), held_by("flyte/r-b"));
        let lost = Claim::Failed("slow".to_owned());
        let copy = || Before::Copy(Bytes::from_static(b"outputs"));
        let wait_for_cache = |why: &str| Before::Wait(Wait::ForCache(why.to_owned()));
        let wait_for_them = || Before::Wait(Wait::ForOwner("flyte/r-b".to_owned()));
        // What is cached, the reservation, and what that means for one that is alone and for others.
        let table = [
            (&hit, None, copy(), copy()),
            (&hit, Some(&them), copy(), copy()),
            (&failed, None, wait_for_cache("down"), Before::Run),
            (&failed, Some(&us), wait_for_cache("down"), Before::Run),
            (&miss, None, Before::Reserve, Before::Run),
            (&miss, Some(&us), Before::Run, Before::Run),
            (&miss, Some(&them), wait_for_them(), Before::Run),
            (&miss, Some(&lost), wait_for_cache("slow"), Before::Run),
        ];
        for (outputs, claim, serialized, otherwise) in table {
            for (is_serializable, expected) in [(true, serialized), (false, otherwise)] {
                let facts = Facts {
                    is_launched: false,
                    is_serializable,
                    owner: "flyte/r-a",
                    outputs,
                    is_look_up_given_up: false,
                    claim,
                    is_reservation_given_up: false,
                };
                assert_eq!(before(&facts), expected, "{facts:?}");
            }
        }
    }

    #[test]
    fn a_serialized_task_waits_no_longer_for_a_cache_than_a_reservation_holds() {
        let down = Seen::unknown(UnknownCause::Unreachable, "down");
        let (us, them) = (held_by("flyte/r-a"), held_by("flyte/r-b"));
        let lost = Claim::Failed("slow".to_owned());
        let wait_for_cache = |why: &str| Before::Wait(Wait::ForCache(why.to_owned()));
        let wait_for_them = || Before::Wait(Wait::ForOwner("flyte/r-b".to_owned()));
        // What is cached, and whether that is given up; the reservation, and whether that is.
        let table = [
            (&down, false, None, true, wait_for_cache("down")),
            (&down, true, None, false, Before::Reserve),
            (&down, true, Some(&us), false, Before::Run),
            (&down, true, Some(&them), false, wait_for_them()),
            (&down, true, Some(&lost), false, Before::Run),
            (&Seen::Absent, false, None, true, Before::Reserve),
            (&Seen::Absent, false, Some(&them), true, wait_for_them()),
            (
                &Seen::Absent,
                false,
                Some(&lost),
                false,
                wait_for_cache("slow"),
            ),
            (&Seen::Absent, false, Some(&lost), true, Before::Run),
        ];
        for (outputs, is_look_up_given_up, claim, is_reservation_given_up, expected) in table {
            let facts = Facts {
                is_launched: false,
                is_serializable: true,
                owner: "flyte/r-a",
                outputs,
                is_look_up_given_up,
                claim,
                is_reservation_given_up,
            };
            assert_eq!(before(&facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn what_is_launched_only_extends_its_reservation() {
        let lost = Claim::Failed("slow".to_owned());
        for (claim, expected) in [
            (None, Before::Reserve),
            (Some(&held_by("flyte/r-a")), Before::Run),
            (Some(&held_by("flyte/r-b")), Before::Run),
            (Some(&lost), Before::Run),
        ] {
            let launched = Facts {
                is_launched: true,
                is_serializable: true,
                owner: "flyte/r-a",
                outputs: &Seen::Absent,
                is_look_up_given_up: false,
                claim,
                is_reservation_given_up: false,
            };
            assert_eq!(before(&launched), expected, "{claim:?}");
            let alone = Facts {
                is_serializable: false,
                ..launched
            };
            assert_eq!(before(&alone), Before::Run);
        }
    }

    #[test]
    fn outputs_of_somebody_else_are_as_good() {
        use CatalogCacheStatus::{CachePopulated, CachePutFailure};
        for (put, expected) in [
            (Ok(Put::Stored), CachePopulated),
            (Ok(Put::AlreadyThere), CachePopulated),
            (Err(CatalogError::NotWritten), CachePutFailure),
        ] {
            assert_eq!(cache_status(&put), expected, "{put:?}");
        }
    }

    #[test]
    fn outputs_grow_old_only_where_an_age_is_configured() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let hour = Duration::from_hours(1);
        for (updated_at, max_age, expected) in [
            (None, Duration::ZERO, true),
            (Some(at(0)), Duration::ZERO, true),
            (Some(at(6400)), hour, true),
            (Some(at(6399)), hour, false),
            (None, hour, false),
        ] {
            let found = is_young(updated_at, max_age, at(10_000));
            assert_eq!(found, expected, "{updated_at:?} {max_age:?}");
        }
    }

    #[test]
    fn what_is_published_says_what_it_waits_for() {
        let now = Timestamp::UNIX_EPOCH;
        for (wait, reason, status) in [
            (
                Wait::ForOwner("flyte/r-b".to_owned()),
                "waiting for cache to be populated by reservation owner \"flyte/r-b\"",
                CatalogCacheStatus::CacheMiss,
            ),
            (
                Wait::ForCache("it is down".to_owned()),
                "waiting for the cache, which cannot be asked: it is down",
                CatalogCacheStatus::CacheLookupFailure,
            ),
        ] {
            let info = waiting(&wait, 3, now);
            assert_eq!((info.version, info.reason.as_str()), (3, reason));
            assert_eq!(info.phase, Phase::WaitingForCache);
            assert_eq!(status_of(&wait), status);
        }
        assert_eq!(hit(now).phase, Phase::Success);
        assert_eq!(hit(now).reasons[0].reason, "cache hit");
    }
}
