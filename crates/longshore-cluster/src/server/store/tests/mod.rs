//! One contract for every store, and what only a file can suffer.

mod contract;
mod crash;
mod damage;
mod disk;

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{Loaded, OpenError, Record, Store, StoreError, Stored, Undo};
use crate::server::hub::lock;

/// The simplest store that keeps its promises, and what the others are compared with: a log in
/// memory that outlives the server. It refuses the key `default/refused`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) records: Arc<Mutex<Vec<Record>>>,
    /// Events to keep of each collection; all when there is none.
    window: Option<usize>,
}

impl Store for Log {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        Ok(fold(&lock(&self.records), self.window))
    }

    fn append(&mut self, batch: &[Record]) -> Result<(), StoreError> {
        if let Some(record) = batch.iter().find(|it| it.key == "default/refused") {
            return Err(StoreError {
                revision: record.revision,
                message: "disk full".into(),
            });
        }
        lock(&self.records).extend_from_slice(batch);
        Ok(())
    }

    fn close(&mut self, _revision: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// What a store must give back after these writes.
fn fold(records: &[Record], window: Option<usize>) -> Loaded {
    let mut loaded = Loaded::default();
    for record in records {
        let (revision, key) = (record.revision, record.key.clone());
        let shelf = loaded.shelves.entry(record.collection.clone()).or_default();
        match record.json.clone() {
            Some(json) => shelf.objects.insert(key.clone(), Stored { revision, json }),
            None => shelf.objects.remove(&key),
        };
        let previous = record.previous.clone();
        shelf.events.push(Undo {
            revision,
            key,
            previous,
        });
        if Some(shelf.events.len()) > window.map(|length| length.max(1)) && window.is_some() {
            shelf.start = shelf.events.remove(0).revision;
        }
        loaded.revision = revision;
    }
    loaded
}

/// Makes records that follow from each other.
#[derive(Debug, Default)]
struct Writes {
    records: Vec<Record>,
    revision: u64,
}

impl Writes {
    /// The next write of an object; `None` deletes it. Deleting nothing creates instead.
    fn next(&mut self, collection: &str, key: &str, value: Option<u64>) -> Record {
        self.revision += 1;
        let newest = self
            .records
            .iter()
            .rev()
            .find(|it| it.collection == collection && it.key == key);
        let previous = newest.and_then(|it| {
            let (revision, json) = (it.revision, it.json.clone()?);
            Some(Stored { revision, json })
        });
        let json = match (value, &previous) {
            (None, Some(_)) => None,
            (value, _) => {
                let padding = "x".repeat(value.unwrap_or(7) as usize % 3000);
                Some(Bytes::from(format!(
                    r#"{{"n":{},"p":"{padding}"}}"#,
                    self.revision
                )))
            }
        };
        let record = Record {
            revision: self.revision,
            collection: collection.to_owned(),
            key: key.to_owned(),
            json,
            previous,
        };
        self.records.push(record.clone());
        record
    }
}
