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
                it.read = now(None);
            }),
            submit(),
        ),
        (
            "the file cannot be read",
            changed(false, |it| {
                file(it);
                it.read = failed("down", 0);
            }),
            submit(),
        ),
        (
            "the copy, under way",
            changed(false, |it| {
                file(it);
                it.read = now(Some(Bytes::from_static(b"o")));
                it.copied = under_way();
            }),
            wait(),
        ),
        (
            "the copy, again",
            changed(false, |it| {
                file(it);
                it.read = now(Some(Bytes::from_static(b"o")));
                it.copied = failed("full", 0);
            }),
            format!(
                "warn {}; copy; await",
                longshore_api::flyte::REASON_OUTPUTS_NOT_COPIED
            ),
        ),
    ]);
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
