//! Tasks whose outputs are cached.

use longshore_core::UnknownCause;
use longshore_plugins::CacheKey;

use super::*;
use crate::catalog::{Cached, CatalogCacheStatus, Entry, Held, decide::Claim};

const US: &str = "flyte/r-a";
const SUBMIT: &str = "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1";
const HIT: &str = "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 2 completed; label";

fn s(seconds: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(seconds)
}

/// The cache of a task of which nothing was asked yet.
pub(in crate::decide) fn uncached(is_serializable: bool) -> Cached {
    let key = CacheKey {
        org: String::new(),
        project: "p".to_owned(),
        domain: "d".to_owned(),
        key: "k".to_owned(),
    };
    Cached {
        entry: Entry {
            key,
            owner: US.to_owned(),
            is_serializable,
            output_prefix: "file:///out/1".to_owned(),
        },
        outputs: Seen::Absent,
        held: None,
        kept: None,
    }
}

impl World {
    /// Its outputs are cached.
    fn cached(self, change: impl FnOnce(&mut Cached)) -> Self {
        let mut cached = uncached(false);
        change(&mut cached);
        self.with(|it| it.cached = Seen::Present(cached))
    }

    /// They are, and only one runs at a time.
    fn serialized(self, change: impl FnOnce(&mut Cached)) -> Self {
        let mut cached = uncached(true);
        change(&mut cached);
        self.with(|it| it.cached = Seen::Present(cached))
    }
}

fn held_by(owner: &str, ago: i64) -> Option<Held> {
    let claim = Claim::HeldBy {
        owner: owner.to_owned(),
        heartbeat: Duration::from_secs(10),
    };
    let at = EPOCH - s(ago);
    Some(Held { at, claim })
}

fn not_held(ago: i64) -> Option<Held> {
    let claim = Claim::Failed("no answer".to_owned());
    let at = EPOCH - s(ago);
    Some(Held { at, claim })
}

fn check_all(table: Vec<(&str, World, String)>) {
    for (name, world, expected) in table {
        assert_eq!(words(&world.plan()), expected, "{name}");
    }
}

#[test]
fn the_cache_is_asked_before_the_launch() {
    let there = || Seen::Present(bytes::Bytes::from_static(b"o"));
    let down = || Seen::unknown(UnknownCause::Unreachable, "down");
    check_all(vec![
        (
            "cached",
            action().cached(|it| it.outputs = there()),
            format!("copy; {HIT}; await"),
        ),
        (
            "not cached",
            action().cached(|_| {}),
            format!("{SUBMIT}; after 10s"),
        ),
        (
            "not to be asked",
            action().cached(|it| it.outputs = down()),
            format!("{SUBMIT}; after 10s"),
        ),
    ]);
}

fn waiting(cache: u8, next: &str) -> String {
    format!(
        "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForCache.0 of 1 cache {cache}; after {next}"
    )
}

#[test]
fn a_launch_that_is_to_be_the_only_one_is_reserved() {
    let there = || Seen::Present(bytes::Bytes::from_static(b"o"));
    let down = || Seen::unknown(UnknownCause::Unreachable, "down");
    check_all(vec![
        (
            "its key is not known",
            action().with(|it| it.cached = Seen::unknown(UnknownCause::Unreachable, "no bucket")),
            waiting(4, "10s"),
        ),
        (
            "cached, and one at a time",
            action().serialized(|it| it.outputs = there()),
            format!("copy; give up; {HIT}; await"),
        ),
        (
            "cached by whom it waited for",
            action().serialized(|it| {
                it.outputs = there();
                it.held = held_by("flyte/r-b", 3);
            }),
            format!("copy; {HIT}; await"),
        ),
        (
            "not reserved",
            action().serialized(|_| {}),
            "reserve for 10s; after 0ns".to_owned(),
        ),
        (
            "reserved",
            action().serialized(|it| it.held = held_by(US, 1)),
            format!("{SUBMIT}; after 9s"),
        ),
        (
            "reserved long ago",
            action().serialized(|it| it.held = held_by(US, 10)),
            "reserve for 10s; after 0ns".to_owned(),
        ),
        (
            "somebody else's",
            action().serialized(|it| it.held = held_by("flyte/r-b", 3)),
            waiting(1, "7s"),
        ),
        (
            "not to be had",
            action().serialized(|it| it.held = not_held(3)),
            waiting(4, "7s"),
        ),
        (
            "not to be asked, and one at a time",
            action().serialized(|it| it.outputs = down()),
            waiting(4, "10s"),
        ),
    ]);
}

#[test]
fn who_waits_is_told_apart_from_what_was_told_before() {
    let by = |owner: &str| {
        let reason = format!("waiting for cache to be populated by reservation owner {owner:?}");
        let info = PhaseInfo::of(Phase::WaitingForCache, reason);
        let waiting = action().serialized(|it| it.held = held_by("flyte/r-b", 0));
        waiting.with(|it| {
            let published = words(&it.plan());
            assert!(published.starts_with("report"), "{published}");
            *it = it.clone().started(info.phase, 0, &info.reason);
            it.state = Ok(longshore_plugins::PluginState {
                k8s: info.to_k8s_state(),
                ..longshore_plugins::PluginState::default()
            });
            it.action.status.plugin_state = it.state.as_ref().unwrap().encode();
            it.action.status.cache_status = 1;
        })
    };
    check_all(vec![
        ("the same", by("flyte/r-b"), "after 10s".to_owned()),
        (
            "another one",
            by("flyte/r-c"),
            "report WAITING_FOR_RESOURCES.1 of 1; persist WaitingForCache.1 of 1 cache 1; after 10s"
                .to_owned(),
        ),
        (
            "a quota, where the receiver knows no difference",
            by("flyte/r-b")
                .serialized(|it| it.held = held_by(US, 0))
                .with(|it| it.obstacle = Some(ObstacleKind::OverQuota("full".to_owned()))),
            "report WAITING_FOR_RESOURCES.1 of 1; persist WaitingForResources.1 of 1; after 10s"
                .to_owned(),
        ),
    ]);
}

#[test]
fn what_runs_keeps_its_reservation() {
    let running = || {
        let world = action().started(Phase::Running, 0, "");
        world.pod(of(Phase::Running))
    };
    check_all(vec![
        (
            "alone",
            running().cached(|_| {}),
            "await".to_owned(),
        ),
        (
            "held",
            running().serialized(|it| it.held = held_by(US, 4)),
            "after 6s".to_owned(),
        ),
        (
            "held long ago",
            running().serialized(|it| it.held = held_by(US, 11)),
            "reserve for 10s; after 10s".to_owned(),
        ),
        (
            "after a restart",
            running().serialized(|_| {}),
            "reserve for 10s; after 10s".to_owned(),
        ),
        (
            "lost: the code runs",
            running().serialized(|it| it.held = held_by("flyte/r-b", 2)),
            "after 8s".to_owned(),
        ),
        (
            "not extended",
            running().serialized(|it| it.held = not_held(2)),
            "after 8s".to_owned(),
        ),
        (
            "created, and then the process ended",
            action().pod(of(Phase::Running)).serialized(|_| {}),
            "report QUEUED.0 of 1; report RUNNING.0 of 1; persist Running.0 of 1; reserve for 10s; after 10s"
                .to_owned(),
        ),
        (
            "being deleted",
            running().deleting().serialized(|_| {}),
            "delete r-a-0; reserve for 10s; after 10s".to_owned(),
        ),
    ]);
}

#[test]
fn outputs_are_cached_before_the_end_is_told_and_the_reservation_is_given_up() {
    let done = || {
        let world = action().started(Phase::Running, 0, "");
        let done = world.pod(of(Phase::Success));
        done.with(|it| it.outcome = Seen::Present(Outcome::Complete))
    };
    let end = |cache: u8| {
        format!(
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache {cache} completed; label; await"
        )
    };
    let populated = Some(CatalogCacheStatus::CachePopulated);
    check_all(vec![
        ("new", done().cached(|_| {}), "keep; after 0ns".to_owned()),
        ("kept", done().cached(|it| it.kept = populated), end(3)),
        (
            "not kept",
            done().cached(|it| it.kept = Some(CatalogCacheStatus::CachePutFailure)),
            end(5),
        ),
        (
            "one at a time",
            done().serialized(|it| it.kept = populated),
            format!("give up; {}", end(3)),
        ),
        (
            "under a key that is not known",
            done().with(|it| it.cached = Seen::unknown(UnknownCause::Unreachable, "no bucket")),
            end(5),
        ),
    ]);
}

#[test]
fn every_end_gives_the_reservation_up_and_another_attempt_keeps_it() {
    let failed = || {
        let world = action().started(Phase::Running, 0, "");
        world
            .pod(user("Error"))
            .serialized(|it| it.held = held_by(US, 4))
    };
    check_all(vec![
        (
            "the last attempt",
            failed(),
            "give up; report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await"
                .to_owned(),
        ),
        (
            "not the last attempt",
            failed().with(|it| it.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns".to_owned(),
        ),
        (
            "a pod that cannot be built",
            action()
                .serialized(|it| it.held = held_by(US, 0))
                .with(|it| it.builds = Err("NoImage")),
            "give up; report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: \
             Failed to build resource, caused by: no image; label; await"
                .to_owned(),
        ),
        (
            "an abort",
            action().deleting().serialized(|_| {}),
            "give up; report ABORTED.0 of 1; release r-a; await".to_owned(),
        ),
        (
            "an abort while it waits",
            action()
                .deleting()
                .serialized(|it| it.held = held_by("flyte/r-b", 1)),
            "report ABORTED.0 of 1; release r-a; await".to_owned(),
        ),
    ]);
}
