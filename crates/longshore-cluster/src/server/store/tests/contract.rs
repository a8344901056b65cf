//! What every store promises, on the log in memory and on a file.

use tempfile::TempDir;

use super::{Log, Writes, fold};
use crate::server::store::{Durability, FileStore, Loaded, Store};

const WINDOW: usize = 4;

/// A place that a store can be opened at again and again.
trait Place {
    fn open(&self) -> Box<dyn Store>;
}

impl Place for Log {
    fn open(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }
}

impl Place for TempDir {
    fn open(&self) -> Box<dyn Store> {
        Box::new(FileStore::open(self.path(), Durability::Strict, WINDOW).unwrap())
    }
}

fn on_every_store(check: impl Fn(&dyn Place)) {
    let log = Log {
        window: Some(WINDOW),
        ..Log::default()
    };
    check(&log);
    check(&tempfile::tempdir().unwrap());
}

/// Appends one batch for each slice and closes.
fn fill(place: &dyn Place, writes: &Writes, batch: usize) {
    let mut store = place.open();
    store.load().unwrap();
    for batch in writes.records.chunks(batch) {
        store.append(batch).unwrap();
    }
    store.close(writes.revision).unwrap();
}

fn reload(place: &dyn Place) -> Loaded {
    place.open().load().unwrap()
}

#[test]
fn a_new_store_is_empty() {
    on_every_store(|place| {
        let loaded = reload(place);
        assert!(loaded.shelves.is_empty());
        assert_eq!(loaded.floor, 0);
    });
}

#[test]
fn a_store_gives_back_objects_and_events() {
    let mut writes = Writes::default();
    writes.next("core/pods", "a/x", Some(1));
    writes.next("core/pods", "a/y", Some(2));
    writes.next("apps/deployments", "a/x", Some(3));
    writes.next("core/pods", "a/x", Some(4));
    writes.next("core/pods", "a/y", None);
    for batch in [1, 2, 5] {
        on_every_store(|place| {
            fill(place, &writes, batch);
            let loaded = reload(place);
            assert_eq!(loaded.shelves, fold(&writes.records, Some(WINDOW)).shelves);
            assert_eq!(loaded.revision, 5);
            let pods = &loaded.shelves["core/pods"];
            assert_eq!(pods.objects.keys().collect::<Vec<_>>(), ["a/x"]);
            assert_eq!(pods.events.len(), 4);
        });
    }
}

#[test]
fn a_store_keeps_the_newest_events_of_each_collection() {
    let mut writes = Writes::default();
    writes.next("core/secrets", "a/x", Some(1));
    for n in 0..10 {
        writes.next("core/pods", "a/x", Some(n));
    }
    for batch in [1, 3, 11] {
        on_every_store(|place| {
            fill(place, &writes, batch);
            let loaded = reload(place);
            let revisions = |collection: &str| {
                let shelf = &loaded.shelves[collection];
                let events: Vec<u64> = shelf.events.iter().map(|it| it.revision).collect();
                (shelf.start, events)
            };
            assert_eq!(revisions("core/pods"), (7, vec![8, 9, 10, 11]));
            assert_eq!(revisions("core/secrets"), (0, vec![1]));
        });
    }
}

#[test]
fn a_store_goes_on_where_it_was_closed() {
    on_every_store(|place| {
        let mut writes = Writes::default();
        for life in 1..4 {
            let mut store = place.open();
            let loaded = store.load().unwrap();
            assert_eq!(loaded.shelves, fold(&writes.records, Some(WINDOW)).shelves);
            assert_eq!(loaded.revision, writes.revision);
            let record = writes.next("core/pods", &format!("a/{life}"), Some(life));
            store.append(&[record]).unwrap();
            store.close(writes.revision).unwrap();
        }
    });
}

#[test]
fn a_shorter_window_forgets_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut writes = Writes::default();
    for n in 0..4 {
        writes.next("core/pods", "a/x", Some(n));
    }
    fill(&directory, &writes, 1);
    for expected in [2, 2] {
        let mut store = FileStore::open(directory.path(), Durability::Strict, 2).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!(loaded.shelves["core/pods"].events.len(), expected);
        assert_eq!(loaded.shelves["core/pods"].start, 2);
        store.close(4).unwrap();
    }
}

#[test]
fn a_crash_of_a_relaxed_store_ends_every_watch() {
    let directory = tempfile::tempdir().unwrap();
    let open = |durability| FileStore::open(directory.path(), durability, WINDOW).unwrap();
    let mut relaxed = open(Durability::Relaxed);
    relaxed.load().unwrap();
    relaxed
        .append(&[Writes::default().next("core/pods", "a/x", Some(1))])
        .unwrap();
    drop(relaxed);
    let mut strict = open(Durability::Strict);
    let floor = strict.load().unwrap().floor;
    assert!(
        floor > 1,
        "a revision that was seen and lost is above {floor}"
    );
    drop(strict);
    // A strict store loses nothing that was seen.
    assert_eq!(open(Durability::Strict).load().unwrap().floor, floor);
}
