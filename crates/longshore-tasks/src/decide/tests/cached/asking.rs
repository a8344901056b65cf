//! Which question of the cache leads to which, and who waits for its answer.

use super::*;

fn changed(is_serializable: bool, change: fn(&mut Cached)) -> World {
    let mut cached = new(is_serializable);
    change(&mut cached);
    action().cache(Cache::Keyed(Box::new(cached)))
}

fn under_way<T>() -> Asked<T> {
    Asked::UnderWay { since: EPOCH }
}

fn nothing(ago: i64) -> Asked<Option<Hit>> {
    Asked::Answered {
        at: EPOCH - s(ago),
        answer: None,
    }
}

fn file(it: &mut Cached) {
    it.found = now(Some(Hit::File("s3://b/outputs.pb".to_owned())));
}

fn submit() -> String {
    format!("{SUBMIT}; after 10s")
}

fn submit_without() -> String {
    format!("{SUBMIT_WITHOUT}; after 10s")
}

fn lost() -> Asked<Result<Bytes, String>> {
    now(Err("s3://b/outputs.pb is not there any more".to_owned()))
}

/// The file was found this long ago.
fn file_found(it: &mut Cached, ago: i64) {
    file(it);
    if let Asked::Answered { at, .. } = &mut it.found {
        *at = EPOCH - s(ago);
    }
}

fn wait() -> String {
    "await".to_owned()
}

#[test]
fn a_key_is_made_before_anything_is_looked_up() {
    check_all(vec![
        (
            "its key",
            action().cache(unkeyed(Asked::NotAsked)),
            "make key; await".to_owned(),
        ),
        (
            "its key, under way",
            action().cache(unkeyed(under_way())),
            wait(),
        ),
        (
            "its key, again",
            action().cache(unkeyed(failed("no bucket", 10))),
            "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForCache.0 of 1 cache 4; make key; after 10s"
                .to_owned(),
        ),
    ]);
}

#[test]
fn what_is_cached_is_looked_up_and_again_after_a_while() {
    check_all(vec![
        (
            "what is cached",
            changed(false, |_| {}),
            "look up; await".to_owned(),
        ),
        (
            "what is cached, under way",
            changed(false, |it| it.found = under_way()),
            wait(),
        ),
        (
            "what was cached a while ago",
            changed(false, |it| it.found = nothing(59)),
            submit(),
        ),
        (
            "what was cached long ago",
            changed(false, |it| it.found = nothing(60)),
            "look up; await".to_owned(),
        ),
        (
            "what was cached long ago, with the reservation",
            changed(true, |it| {
                it.found = nothing(60);
                it.reserved = held_by(US, 0);
            }),
            submit(),
        ),
        (
            "the reservation, under way: nothing is looked up meanwhile",
            changed(true, |it| it.reserved = under_way()),
            wait(),
        ),
        (
            "the reservation, once another action has given it up",
            changed(true, |it| {
                it.found = now(None);
                it.reserved = held_by("flyte/r-b", 1);
                it.is_freed = true;
            }),
            "use catalog_get; reserve for 10s; await".to_owned(),
        ),
    ]);
}

#[test]
fn the_file_that_is_cached_is_read_and_copied() {
    check_all(vec![
        (
            "what is in the file",
            changed(false, file),
            "read cached; await".to_owned(),
        ),
        (
            "what is in the file, under way",
            changed(false, |it| {
                file(it);
                it.read = under_way();
            }),
            wait(),
        ),
        (
            "what was in the file that was found before",
            changed(false, |it| {
                file(it);
                it.read = failed("down", 1);
            }),
            "read cached; await".to_owned(),
        ),
        (
            "the file is lost",
            changed(false, |it| {
                file(it);
                it.read = lost();
            }),
            submit_without(),
        ),
        (
            "the file cannot be read",
            changed(false, |it| {
                file(it);
                it.read = failed("down", 0);
            }),
            submit_without(),
        ),
        (
            "the copy, under way",
            changed(false, |it| {
                file(it);
                it.read = now(Ok(Bytes::from_static(b"o")));
                it.copied = under_way();
            }),
            wait(),
        ),
        (
            "the copy, again",
            changed(false, |it| {
                file(it);
                it.read = now(Ok(Bytes::from_static(b"o")));
                it.copied = failed("full", 0);
            }),
            format!(
                "warn {}; copy; await",
                longshore_api::flyte::REASON_OUTPUTS_NOT_COPIED
            ),
        ),
    ]);
}

/// A file that cannot be read is a cache that does not answer: it is read again for a while, and then the reservation is
/// asked for, once more before the task runs.
#[test]
fn one_that_is_to_run_alone_reads_the_file_again_and_then_runs_with_its_reservation() {
    check_all(vec![
        (
            "lost, refused or garbage: as if nothing were cached",
            changed(true, |it| {
                file(it);
                it.read = lost();
            }),
            "use catalog_get; reserve for 10s; await".to_owned(),
        ),
        (
            "lost, with the reservation",
            changed(true, |it| {
                file(it);
                it.read = lost();
                it.reserved = held_by(US, 1);
            }),
            format!("{SUBMIT_WITHOUT}; after 9s"),
        ),
        (
            "failed",
            changed(true, |it| {
                file_found(it, 4);
                it.read = failed("503", 3);
            }),
            waiting(4, "10s"),
        ),
        (
            "failed long ago: the catalog is asked again, too",
            changed(true, |it| {
                file_found(it, 11);
                it.read = failed("503", 10);
            }),
            "look up; await".to_owned(),
        ),
        (
            "found again",
            changed(true, |it| {
                file_found(it, 1);
                it.read = failed("503", 10);
            }),
            "read cached; await".to_owned(),
        ),
    ]);
}

/// A file that could not be read for long: the task runs without what is cached, and with its reservation where that can be
/// had.
#[test]
fn one_that_is_to_run_alone_and_has_given_the_file_up_still_asks_for_its_reservation() {
    check_all(vec![
        (
            "given up: what was found stays until the reservation is there",
            changed(true, |it| {
                file_found(it, 2);
                it.read = failed("503", 1);
                it.is_look_up_given_up = true;
            }),
            "reserve for 10s; await".to_owned(),
        ),
        (
            "given up, with the reservation, however long that took",
            changed(true, |it| {
                file_found(it, 60);
                it.read = failed("503", 55);
                it.is_look_up_given_up = true;
                it.reserved = held_by(US, 1);
            }),
            format!("{SUBMIT_WITHOUT}; after 9s"),
        ),
        (
            "given up, and reserved by another one",
            changed(true, |it| {
                file_found(it, 2);
                it.read = failed("503", 1);
                it.is_look_up_given_up = true;
                it.reserved = held_by("flyte/r-b", 0);
            }),
            waiting(1, "10s"),
        ),
        (
            "given up, and nobody says who has reserved",
            changed(true, |it| {
                file_found(it, 60);
                it.read = failed("503", 55);
                it.is_look_up_given_up = true;
                it.reserved = failed("down", 1);
            }),
            format!("{SUBMIT_WITHOUT}; after 9s"),
        ),
        (
            "given up, and the reservation is to be asked for again: first the file is",
            changed(true, |it| {
                file_found(it, 60);
                it.read = failed("503", 55);
                it.is_look_up_given_up = true;
                it.reserved = held_by("flyte/r-b", 10);
            }),
            "look up; await".to_owned(),
        ),
    ]);
}

#[test]
fn one_that_is_to_run_alone_asks_a_catalog_once_more_before_it_runs_without_it() {
    check_all(vec![
        (
            "one look-up failed, however long it took",
            changed(true, |it| it.found = failed("slow", 0)),
            waiting(4, "10s"),
        ),
        (
            "the look-up is given up",
            changed(true, |it| {
                it.found = failed("slow", 0);
                it.is_look_up_given_up = true;
            }),
            "reserve for 10s; await".to_owned(),
        ),
        (
            "the look-up is given up, and the reservation fails",
            changed(true, |it| {
                it.found = failed("slow", 6);
                it.is_look_up_given_up = true;
                it.reserved = failed("slow", 0);
            }),
            format!("{SUBMIT_WITHOUT}; after 10s"),
        ),
        (
            "the look-up is given up, and another one has the reservation",
            changed(true, |it| {
                it.found = failed("slow", 6);
                it.is_look_up_given_up = true;
                it.reserved = held_by("flyte/r-b", 0);
            }),
            waiting(1, "10s"),
        ),
        (
            "one request for the reservation failed",
            changed(true, |it| {
                it.found = now(None);
                it.reserved = failed("slow", 0);
            }),
            waiting(4, "10s"),
        ),
        (
            "the reservation is given up",
            changed(true, |it| {
                it.found = now(None);
                it.reserved = failed("slow", 0);
                it.is_reservation_given_up = true;
            }),
            format!("{SUBMIT_WITHOUT}; after 10s"),
        ),
        (
            "the reservation is given up, and is asked for once more",
            changed(true, |it| {
                it.found = now(None);
                it.reserved = failed("slow", 10);
                it.is_reservation_given_up = true;
            }),
            "use catalog_get; reserve for 10s; await".to_owned(),
        ),
    ]);
}

/// A job of a connector requests its slot only then.
#[test]
fn an_attempt_may_begin_where_its_cache_keeps_it_from_nothing() {
    let read = |is_serializable, read: Asked<Result<Bytes, String>>, change: fn(&mut Cached)| {
        let mut cached = new(is_serializable);
        file(&mut cached);
        cached.read = read;
        change(&mut cached);
        Cache::Keyed(Box::new(cached))
    };
    let given_up = |it: &mut Cached| {
        it.is_look_up_given_up = true;
        it.reserved = held_by(US, 1);
    };
    let content = || now(Ok(Bytes::from_static(b"o")));
    for (name, cache, expected) in [
        ("to be copied", read(false, content(), |_| {}), false),
        ("under way", read(false, under_way(), |_| {}), false),
        ("lost", read(false, lost(), |_| {}), true),
        ("not read", read(false, failed("503", 0), |_| {}), true),
        (
            "not read, one at a time",
            read(true, failed("503", 0), |_| {}),
            false,
        ),
        ("given up", read(true, failed("503", 0), given_up), true),
    ] {
        assert_eq!(may_begin(&cache), expected, "{name}");
    }
}

/// The time limit of a request for the reservation, by what is known of it.
#[test]
fn a_heartbeat_is_asked_again_while_the_reservation_holds() {
    let timeout_of = |reserved: Asked<Holder>| {
        let mut cached = new(true);
        cached.found = now(None);
        cached.reserved = reserved;
        let world = action().started(Phase::Running, 0, "");
        let world = world.pod(of(Phase::Running));
        let plan = world.cache(Cache::Keyed(Box::new(cached))).plan();
        plan.actions.iter().find_map(|step| {
            if let Do::Ask(TaskQuestion::Reserve { timeout, .. }) = step {
                Some(*timeout)
            } else {
                None
            }
        })
    };
    let granted = |heartbeat, ago| Asked::Answered {
        at: EPOCH - s(ago),
        answer: Holder {
            owner: US.to_owned(),
            heartbeat: Duration::from_millis(heartbeat),
        },
    };
    for (reserved, expected) in [
        (Asked::NotAsked, 5000),
        (granted(10_000, 10), 5000),
        (granted(4000, 4), 2000),
        // A catalog that grants more than the peer's: half of what is asked for.
        (granted(60_000, 10), 5000),
        (granted(0, 10), 5000),
        (granted(100, 1), 500),
        (held_by("flyte/r-b", 10), 5000),
        (failed("slow", 3), 5000),
    ] {
        let expected = Some(Duration::from_millis(expected));
        assert_eq!(timeout_of(reserved.clone()), expected, "{reserved:?}");
    }
}

#[test]
fn what_runs_waits_for_no_answer_of_the_catalog() {
    let running = |is_serializable: bool, change: fn(&mut Cached)| {
        let mut cached = new(is_serializable);
        change(&mut cached);
        let world = action().started(Phase::Running, 0, "");
        let world = world.pod(of(Phase::Running));
        world.cache(Cache::Keyed(Box::new(cached)))
    };
    let unkeyed = |key| {
        let world = action().started(Phase::Running, 0, "");
        world.pod(of(Phase::Running)).cache(unkeyed(key))
    };
    check_all(vec![
        (
            "nothing was asked",
            running(false, |_| {}),
            "await".to_owned(),
        ),
        (
            "it is extended",
            running(true, |it| it.reserved = Asked::UnderWay { since: EPOCH }),
            "await".to_owned(),
        ),
        (
            "it is extended, and was held before",
            running(true, |it| {
                it.reserved = Asked::UnderWay { since: EPOCH };
                it.reserved_before = held_by(US, 10);
            }),
            "await".to_owned(),
        ),
        (
            "after a restart",
            unkeyed(Asked::NotAsked),
            "make key; await".to_owned(),
        ),
        (
            "its key is under way",
            unkeyed(Asked::UnderWay { since: EPOCH }),
            "await".to_owned(),
        ),
    ]);
}
