//! Power cuts at random moments: what is found afterwards is what was written up to some moment
//! after the last acknowledged batch.

use std::io;

use proptest::{collection::vec, prelude::*};

use super::{Writes, disk::Disk, fold};
use crate::server::{
    random::Random,
    store::{FileStore, Loaded, MAX_UNSTORED, Record, Store},
};

const WINDOW: usize = 6;

/// One write: collection, key, and its value or none to delete.
type Write = (u8, u8, Option<u64>);

/// The batches of one life, and after how many changes of the disk it ends.
#[derive(Debug, Clone)]
struct Life {
    batches: Vec<Vec<Write>>,
    budget: u64,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let write = (
        0..2_u8,
        0..5_u8,
        proptest::option::weighted(0.7, 0..3000_u64),
    );
    let batches = vec(vec(write, 1..6), 1..8);
    let life = (batches, 0..120_u64).prop_map(|(batches, budget)| Life { batches, budget });
    vec(life, 1..5)
}

fn next(writes: &mut Writes, batch: &[Write]) -> Vec<Record> {
    let record = |(collection, key, value): &Write| {
        writes.next(
            ["core/pods", "core/secrets"][usize::from(*collection)],
            &format!("a/{key}"),
            *value,
        )
    };
    batch.iter().map(record).collect()
}

/// A store on a disk that has worked so far, or on a new one.
fn open(disk: &Disk, is_new: bool) -> (FileStore, Loaded) {
    let mut store = FileStore::on_medium(disk.clone(), is_new, WINDOW).unwrap();
    let loaded = store.load().unwrap();
    (store, loaded)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_loses_the_end_of_what_was_not_acknowledged(lives in lives(), seed: u64) {
        let random = Random::seeded(seed);
        let mut disk = Disk::default();
        let mut writes = Writes::default();
        let mut given_out = 0;
        drop(open(&disk, true));
        for life in lives {
            let (mut store, loaded) = open(&disk, false);
            prop_assert!(loaded.revision >= given_out, "{} of {given_out}", loaded.revision);
            writes.revision = loaded.revision;
            let mut acknowledged = writes.records.len();
            disk.fail_after(life.budget, io::ErrorKind::Other);
            for batch in &life.batches {
                let batch = next(&mut writes, batch);
                if store.append(&batch).is_err() {
                    break;
                }
                acknowledged = writes.records.len();
            }
            given_out = writes.revision;
            disk = disk.after_power_cut(&random);
            drop(store);

            let (store, found) = open(&disk, false);
            prop_assert!(found.revision - given_out <= 2 * MAX_UNSTORED);
            let whole = fold(&writes.records, Some(WINDOW)).shelves;
            if found.shelves != whole {
                writes.records.truncate(acknowledged);
                prop_assert_eq!(&found.shelves, &fold(&writes.records, Some(WINDOW)).shelves);
            }
            given_out = found.revision;
            drop(store);
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written() {
    let disk = Disk::default();
    let (mut store, loaded) = open(&disk, true);
    let mut writes = Writes {
        revision: loaded.revision,
        ..Writes::default()
    };
    store
        .append(&next(&mut writes, &[(0, 0, Some(1))]))
        .unwrap();
    let kept = fold(&writes.records, Some(WINDOW)).shelves;

    disk.fail_after(0, io::ErrorKind::StorageFull);
    let error = store
        .append(&next(&mut writes, &[(0, 1, Some(2))]))
        .unwrap_err();
    assert_eq!(error.revision, writes.revision);
    assert!(error.message.contains("no storage space"), "{error}");

    disk.repair();
    let n_syncs = disk.n_syncs();
    let error = store
        .append(&next(&mut writes, &[(0, 2, Some(3))]))
        .unwrap_err();
    assert!(
        error.message.starts_with("the store has stopped"),
        "{error}"
    );
    assert!(store.close(writes.revision).is_err());
    assert_eq!(disk.n_syncs(), n_syncs);
    drop(store);

    let (_, loaded) = open(&disk.after_power_cut(&Random::seeded(1)), false);
    assert_eq!(loaded.shelves, kept);
    assert!(loaded.revision >= writes.revision);
}
