//! Tasks whose outputs are cached.

mod asking;

use bytes::Bytes;
use longshore_core::{Asked, NoAnswer, UnknownCause};
use longshore_plugins::CacheKey;

use super::*;
use crate::{
    catalog::{Cache, Cached, CatalogCacheStatus, Entry, Hit, Unkeyed},
    questions::Holder,
};

const US: &str = "flyte/r-a";
const SUBMIT: &str = "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1";
const SUBMIT_WITHOUT: &str =
    "create r-a-0 as u/1/0; warn RunsWithoutCache; report QUEUED.0 of 1; persist Queued.0 of 1";
const HIT: &str = "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 2 completed; label";

fn s(seconds: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(seconds)
}

/// What is known of the cache of a task.
#[derive(Clone, Debug)]
pub(in crate::decide) struct CacheFixture {
    pub(in crate::decide) is_serializable: bool,
    /// What came of looking them up.
    pub(in crate::decide) outputs: Seen<Bytes>,
    pub(in crate::decide) is_copied: bool,
    pub(in crate::decide) held: Asked<Holder>,
    pub(in crate::decide) exists: Seen<bool>,
    pub(in crate::decide) kept: Option<CatalogCacheStatus>,
    pub(in crate::decide) is_released: bool,
}

/// A task whose cache was looked up just now, and has nothing.
pub(in crate::decide) fn uncached(is_serializable: bool) -> CacheFixture {
    CacheFixture {
        is_serializable,
        outputs: Seen::Absent,
        is_copied: false,
        held: Asked::NotAsked,
        exists: Seen::Absent,
        kept: None,
        is_released: false,
    }
}

/// A task of which nothing was asked.
fn new(is_serializable: bool) -> Cached {
    let key = CacheKey {
        org: String::new(),
        project: "p".to_owned(),
        domain: "d".to_owned(),
        key: "k".to_owned(),
    };
    let entry = Entry {
        key,
        owner: US.to_owned(),
        is_serializable,
        output_prefix: "file:///out/1".to_owned(),
    };
    Cached {
        entry,
        uid: "u".to_owned(),
        found: Asked::NotAsked,
        read: Asked::NotAsked,
        is_look_up_given_up: false,
        copied: Asked::NotAsked,
        reserved: Asked::NotAsked,
        reserved_before: Asked::NotAsked,
        is_reservation_given_up: false,
        is_freed: false,
        exists: Asked::NotAsked,
        put: Asked::NotAsked,
        released: Asked::NotAsked,
    }
}

fn now<T>(answer: T) -> Asked<T> {
    Asked::Answered { at: EPOCH, answer }
}

impl CacheFixture {
    pub(in crate::decide) fn cache(self) -> Cache {
        let mut cached = new(self.is_serializable);
        cached.found = match self.outputs {
            Seen::Absent => now(None),
            Seen::Present(outputs) => now(Some(Hit::Literals(outputs))),
            Seen::Unknown(why) => failed(&why.message, 0),
        };
        if self.is_copied {
            cached.copied = now(());
        }
        cached.reserved = self.held;
        cached.exists = world::asked(&self.exists, EPOCH);
        if let Some(status) = self.kept {
            cached.exists = now(true);
            cached.put = now(status);
        }
        if self.is_released {
            cached.released = now(());
        }
        Cache::Keyed(Box::new(cached))
    }
}

/// A serialized task whose key is not known.
fn unkeyed(key: Asked<()>) -> Cache {
    Cache::Unkeyed(Unkeyed {
        url: "file:///in".to_owned(),
        is_serializable: true,
        key,
    })
}

impl World {
    /// Its outputs are cached.
    fn cached(self, change: impl FnOnce(&mut CacheFixture)) -> Self {
        let mut known = uncached(false);
        change(&mut known);
        self.with(|it| it.cache = known.cache())
    }

    /// They are, and only one runs at a time.
    fn serialized(self, change: impl FnOnce(&mut CacheFixture)) -> Self {
        let mut known = uncached(true);
        change(&mut known);
        self.with(|it| it.cache = known.cache())
    }

    fn cache(self, cache: Cache) -> Self {
        self.with(|it| it.cache = cache)
    }
}

pub(in crate::decide) fn held_by(owner: &str, ago: i64) -> Asked<Holder> {
    Asked::Answered {
        at: EPOCH - s(ago),
        answer: Holder {
            owner: owner.to_owned(),
            heartbeat: Duration::from_secs(10),
        },
    }
}

pub(in crate::decide) fn failed<T>(message: &str, ago: i64) -> Asked<T> {
    Asked::Failed {
        at: EPOCH - s(ago),
        why: NoAnswer::Unreachable,
        message: message.to_owned(),
    }
}

fn not_held(ago: i64) -> Asked<Holder> {
    failed("no answer", ago)
}

fn check_all(table: Vec<(&str, World, String)>) {
    for (name, world, expected) in table {
        assert_eq!(words(&world.plan()), expected, "{name}");
    }
}

#[test]
fn the_cache_is_asked_before_the_launch() {
    let there = || Seen::Present(Bytes::from_static(b"o"));
    let down = || Seen::unknown(UnknownCause::Unreachable, "down");
    check_all(vec![
        (
            "cached",
            action().cached(|it| it.outputs = there()),
            "copy; await".to_owned(),
        ),
        (
            "copied",
            action().cached(|it| {
                it.outputs = there();
                it.is_copied = true;
            }),
            format!("{HIT}; await"),
        ),
        (
            "not cached",
            action().cached(|_| {}),
            format!("{SUBMIT}; after 10s"),
        ),
        (
            "not to be asked",
            action().cached(|it| it.outputs = down()),
            format!("{SUBMIT_WITHOUT}; after 10s"),
        ),
    ]);
}

fn waiting(cache: u8, next: &str) -> String {
    format!(
        "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForCache.0 of 1 cache {cache}; after {next}"
    )
}

#[test]
fn a_launch_that_is_to_be_the_only_one_and_is_cached_is_not_made() {
    let there = || Seen::Present(Bytes::from_static(b"o"));
    check_all(vec![
        (
            "its key is not known",
            action().cache(unkeyed(failed("no bucket", 0))),
            waiting(4, "10s"),
        ),
        (
            "cached, and one at a time",
            action().serialized(|it| it.outputs = there()),
            "copy; await".to_owned(),
        ),
        (
            "cached and copied, and one at a time",
            action().serialized(|it| {
                it.outputs = there();
                it.is_copied = true;
            }),
            "give up; await".to_owned(),
        ),
        (
            "cached, copied and given up",
            action().serialized(|it| {
                it.outputs = there();
                it.is_copied = true;
                it.is_released = true;
            }),
            format!("{HIT}; await"),
        ),
        (
            "cached by whom it waited for",
            action().serialized(|it| {
                it.outputs = there();
                it.is_copied = true;
                it.held = held_by("flyte/r-b", 3);
            }),
            format!("{HIT}; await"),
        ),
    ]);
}

#[test]
fn a_launch_that_is_to_be_the_only_one_and_is_not_cached_is_reserved() {
    let down = || Seen::unknown(UnknownCause::Unreachable, "down");
    check_all(vec![
        (
            "not reserved",
            action().serialized(|_| {}),
            "use catalog_get; reserve for 10s; await".to_owned(),
        ),
        (
            "reserved",
            action().serialized(|it| it.held = held_by(US, 1)),
            format!("{SUBMIT}; after 9s"),
        ),
        (
            "reserved a heartbeat ago: nobody else can have filled the cache",
            action().serialized(|it| it.held = held_by(US, 10)),
            "reserve for 10s; await".to_owned(),
        ),
        (
            "reserved long ago",
            action().serialized(|it| it.held = held_by(US, 20)),
            "use catalog_get; reserve for 10s; await".to_owned(),
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
                .with(|it| it.blocked = Some(CreateFailure::OverQuota("full".to_owned()))),
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
            "after 500ms".to_owned(),
        ),
        (
            "not extended, and again in time",
            running().serialized(|it| it.held = not_held(3)),
            "reserve for 10s; after 10s".to_owned(),
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
        (
            "new",
            done().cached(|_| {}),
            "check outputs; await".to_owned(),
        ),
        (
            "there",
            done().cached(|it| it.exists = Seen::Present(true)),
            "keep; await".to_owned(),
        ),
        (
            "not there",
            done().cached(|it| it.exists = Seen::Present(false)),
            end(5),
        ),
        ("kept", done().cached(|it| it.kept = populated), end(3)),
        (
            "not kept",
            done().cached(|it| it.kept = Some(CatalogCacheStatus::CachePutFailure)),
            end(5),
        ),
        (
            "one at a time",
            done().serialized(|it| it.kept = populated),
            "give up; await".to_owned(),
        ),
        (
            "given up",
            done().serialized(|it| {
                it.kept = populated;
                it.is_released = true;
            }),
            end(3),
        ),
        (
            "under a key that is not known",
            done().cache(unkeyed(failed("no bucket", 0))),
            end(5),
        ),
        (
            "under a key that was not asked for, after a restart",
            done().cache(unkeyed(Asked::NotAsked)),
            "make key; await".to_owned(),
        ),
    ]);
}

#[test]
fn every_end_gives_the_reservation_up_and_another_attempt_keeps_it() {
    let failed = |is_released: bool| {
        let world = action().started(Phase::Running, 0, "");
        world.pod(user("Error")).serialized(|it| {
            it.held = held_by(US, 4);
            it.is_released = is_released;
        })
    };
    let not_built = |is_released: bool| {
        let world = action().serialized(|it| {
            it.held = held_by(US, 0);
            it.is_released = is_released;
        });
        world.with(|it| it.builds = Err("NoImage"))
    };
    let aborted = "report ABORTED.0 of 1; release r-a; await";
    let given_up = || "give up; await".to_owned();
    check_all(vec![
        ("the last attempt", failed(false), given_up()),
        (
            "the last attempt, without a reservation",
            failed(true),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await"
                .to_owned(),
        ),
        (
            "not the last attempt",
            failed(false).with(|it| it.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns".to_owned(),
        ),
        ("a pod that cannot be built", not_built(false), given_up()),
        (
            "a pod that cannot be built, without a reservation",
            not_built(true),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: \
             Failed to build resource, caused by: no image; label; await"
                .to_owned(),
        ),
        (
            "an abort",
            action().deleting().serialized(|_| {}),
            given_up(),
        ),
        (
            "an abort, without a reservation",
            action().deleting().serialized(|it| it.is_released = true),
            aborted.to_owned(),
        ),
        (
            "an abort while it waits",
            action()
                .deleting()
                .serialized(|it| it.held = held_by("flyte/r-b", 1)),
            aborted.to_owned(),
        ),
        (
            "an abort before its key is known",
            action().deleting().cache(unkeyed(Asked::NotAsked)),
            "make key; await".to_owned(),
        ),
        (
            "an abort while the reservation is asked for",
            action()
                .deleting()
                .serialized(|it| it.held = Asked::UnderWay { since: EPOCH }),
            "await".to_owned(),
        ),
    ]);
}
