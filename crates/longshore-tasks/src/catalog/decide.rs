//! What a task's cache means for its attempts (task action spec §7.2, §7.3). Pure: facts in, the next step out.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_plugins::{Happening, Phase, PhaseInfo};

use super::{CatalogCacheStatus, CatalogError, Put};

/// What is known of a cached task whose attempt is to be started or to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `status.pluginPhase` is `PhaseRunning`: the cache is not asked any more.
    pub is_running: bool,
    /// `metadata.cache_serializable`: of those that run at the same time one fills the cache for all.
    pub is_serializable: bool,
    /// The name under which this action reserves: `<namespace>/<name>`.
    pub owner: String,
    /// What the catalog said; `None` before it was asked.
    pub lookup: Option<Lookup>,
    /// Who has the reservation; `None` before it was asked for.
    pub holder: Option<String>,
}

/// What a catalog said of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// There are outputs, and they are young enough.
    Hit,
    /// There are none of use.
    Miss,
    /// It could not be asked. A cache that is down keeps nobody from running.
    Failed,
}

/// What is next for a cached task before its plugin is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Ask what is cached.
    LookUp,
    /// Copy what is cached to where the attempt's outputs belong; then it has succeeded, as [`hit`].
    Copy,
    /// Ask for the reservation, or extend it.
    Reserve,
    /// Let the plugin go on.
    Run,
    /// Let the plugin wait: somebody else fills the cache.
    Wait {
        /// Who.
        holder: String,
    },
}

/// What is next.
pub fn before(facts: &Facts) -> Before {
    if !facts.is_running {
        match facts.lookup {
            None => return Before::LookUp,
            Some(Lookup::Hit) => return Before::Copy,
            Some(Lookup::Failed) => return Before::Run,
            Some(Lookup::Miss) => {}
        }
    }
    if !facts.is_serializable {
        return Before::Run;
    }
    match &facts.holder {
        None => Before::Reserve,
        // Code that runs is not sent away when its reservation was lost: it would run on unseen.
        Some(holder) if *holder == facts.owner || facts.is_running => Before::Run,
        Some(holder) => Before::Wait {
            holder: holder.clone(),
        },
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
        happenings: vec![happening("cache hit", now)],
        ..PhaseInfo::of(Phase::Success, "")
    }
}

/// An attempt that waits for `holder` to fill the cache; `version` is `status.pluginPhaseVersion`.
pub fn waiting(holder: &str, version: u32, now: Timestamp) -> PhaseInfo {
    let reason = format!("waiting for cache to be populated by reservation owner {holder:?}");
    PhaseInfo {
        version,
        happenings: vec![happening("waiting for serialized cache owner", now)],
        ..PhaseInfo::of(Phase::WaitingForCache, reason)
    }
}

fn happening(reason: &str, now: Timestamp) -> Happening {
    Happening {
        reason: reason.to_owned(),
        occurred_at: now,
    }
}

/// What is to be done for the cache once the plugin has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Cache the outputs.
    pub puts: bool,
    /// Give the reservation up.
    pub releases: bool,
}

/// What is to be done once an attempt is in this phase.
///
/// Every failure gives the reservation up, whoever found it: an attempt that the controller gives up on, too.
pub fn after(phase: Phase, is_serializable: bool) -> After {
    let is_over = match phase {
        Phase::Success | Phase::RetryableFailure | Phase::PermanentFailure | Phase::Aborted => true,
        Phase::Undefined
        | Phase::NotReady
        | Phase::WaitingForResources
        | Phase::Queued
        | Phase::Initializing
        | Phase::Running
        | Phase::WaitingForCache => false,
    };
    After {
        puts: phase == Phase::Success,
        releases: is_serializable && is_over,
    }
}

/// What the status says of outputs that were to be cached. The task has succeeded in any case.
pub fn cache_status(put: &Result<Put, CatalogError>) -> CatalogCacheStatus {
    match put {
        // Upstream's executor takes the second for a failure, though the outputs of somebody else are there.
        Ok(Put::Stored | Put::AlreadyThere) => CatalogCacheStatus::CachePopulated,
        Err(_) => CatalogCacheStatus::CachePutFailure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lookup: Option<Lookup>, holder: Option<&str>) -> Facts {
        Facts {
            is_running: false,
            is_serializable: true,
            owner: "flyte/r-a".to_owned(),
            lookup,
            holder: holder.map(str::to_owned),
        }
    }

    fn wait(holder: &str) -> Before {
        Before::Wait {
            holder: holder.to_owned(),
        }
    }

    #[test]
    fn a_serialized_task_asks_the_cache_then_for_the_reservation() {
        let (hit, miss, failed) = (Some(Lookup::Hit), Some(Lookup::Miss), Some(Lookup::Failed));
        let (us, them) = (Some("flyte/r-a"), Some("flyte/r-b"));
        for (lookup, holder, expected) in [
            (None, None, Before::LookUp),
            (hit, None, Before::Copy),
            (hit, them, Before::Copy),
            (failed, None, Before::Run),
            (failed, them, Before::Run),
            (miss, None, Before::Reserve),
            (miss, us, Before::Run),
            (miss, them, wait("flyte/r-b")),
        ] {
            let found = before(&facts(lookup, holder));
            assert_eq!(found, expected, "{lookup:?} {holder:?}");
        }
    }

    #[test]
    fn a_running_task_only_extends_its_reservation() {
        for (holder, expected) in [
            (None, Before::Reserve),
            (Some("flyte/r-a"), Before::Run),
            (Some("flyte/r-b"), Before::Run),
        ] {
            let running = Facts {
                is_running: true,
                ..facts(None, holder)
            };
            assert_eq!(before(&running), expected, "{holder:?}");
            let alone = Facts {
                is_serializable: false,
                ..running
            };
            assert_eq!(before(&alone), Before::Run);
        }
    }

    #[test]
    fn a_task_that_is_not_serialized_reserves_nothing() {
        for (lookup, expected) in [
            (None, Before::LookUp),
            (Some(Lookup::Hit), Before::Copy),
            (Some(Lookup::Miss), Before::Run),
            (Some(Lookup::Failed), Before::Run),
        ] {
            let alone = Facts {
                is_serializable: false,
                ..facts(lookup, None)
            };
            assert_eq!(before(&alone), expected, "{lookup:?}");
        }
    }

    #[test]
    fn every_end_gives_the_reservation_up_and_success_fills_the_cache() {
        for phase in Phase::ALL {
            let is_over = phase.is_terminal() || phase == Phase::RetryableFailure;
            for is_serializable in [true, false] {
                let expected = After {
                    puts: phase == Phase::Success,
                    releases: is_over && is_serializable,
                };
                assert_eq!(after(phase, is_serializable), expected, "{phase:?}");
            }
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
    fn what_is_published_says_whom_it_waits_for() {
        let now = Timestamp::UNIX_EPOCH;
        let info = waiting("flyte/r-b", 3, now);
        let reason = "waiting for cache to be populated by reservation owner \"flyte/r-b\"";
        assert_eq!((info.version, info.reason.as_str()), (3, reason));
        assert_eq!(info.phase, Phase::WaitingForCache);
        assert_eq!(hit(now).phase, Phase::Success);
        assert_eq!(hit(now).happenings[0].reason, "cache hit");
    }
}
