//! The tables of the file, and what their rows mean.

use bytes::Bytes;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};

use super::Failure;
use crate::server::store::{Loaded, Record, Shelf, Stored, Undo, checksum::checksum};

/// Version of everything below.
pub(super) const FORMAT: u64 = 1;

/// Numbers about the file as a whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Collection and key.
type ObjectKey = (&'static str, &'static str);
/// Revision, checksum and JSON.
type ObjectRow = (u64, u32, &'static [u8]);
/// Collection and revision.
type EventKey = (&'static str, u64);
/// Key, and revision, checksum and JSON of what was there before; revision 0 when there was nothing.
type EventRow = (&'static str, u64, u32, &'static [u8]);

/// The current state.
const OBJECTS: TableDefinition<'_, ObjectKey, ObjectRow> = TableDefinition::new("objects");
/// The window: how to undo each of the newest writes.
const EVENTS: TableDefinition<'_, EventKey, EventRow> = TableDefinition::new("events");
/// Collection to the revision of its newest event that is not kept any more.
const STARTS: TableDefinition<'_, &str, u64> = TableDefinition::new("starts");

/// How the last process left the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    /// The newest revision that is stored.
    pub(super) revision: u64,
    /// See [`Loaded::floor`].
    pub(super) floor: u64,
    /// The last process closed the store.
    pub(super) is_closed: bool,
    /// The last process answered writes before it stored them.
    pub(super) is_relaxed: bool,
}

impl Session {
    pub(super) fn read(transaction: &ReadTransaction) -> Result<Session, Failure> {
        let meta = transaction.open_table(META)?;
        let number = |name: &str| match meta.get(name)? {
            Some(value) => Ok(value.value()),
            None => Err(Failure::Row(format!("it does not say its {name}"))),
        };
        // Before anything that another format may not have.
        match number("format")? {
            0 => return Err(Failure::Row("its format is 0".to_owned())),
            FORMAT => {}
            newer => return Err(Failure::NewerFormat(newer)),
        }
        Ok(Session {
            revision: number("revision")?,
            floor: number("floor")?,
            is_closed: number("closed")? != 0,
            is_relaxed: number("relaxed")? != 0,
        })
    }

    pub(super) fn write(self, database: &Database) -> Result<(), Failure> {
        let transaction = database.begin_write()?;
        self.put(&transaction)?;
        Ok(transaction.commit()?)
    }

    fn put(self, transaction: &WriteTransaction) -> Result<(), Failure> {
        let mut meta = transaction.open_table(META)?;
        for (name, number) in [
            ("format", FORMAT),
            ("revision", self.revision),
            ("floor", self.floor),
            ("closed", self.is_closed.into()),
            ("relaxed", self.is_relaxed.into()),
        ] {
            meta.insert(name, number)?;
        }
        Ok(())
    }
}

/// The tables inside a write transaction.
pub(super) struct Writer<'t> {
    meta: Table<'t, &'static str, u64>,
    objects: Table<'t, ObjectKey, ObjectRow>,
    events: Table<'t, EventKey, EventRow>,
    starts: Table<'t, &'static str, u64>,
}

impl<'t> Writer<'t> {
    /// Makes every table of an empty store.
    pub(super) fn initialise(database: &Database) -> Result<(), Failure> {
        let transaction = database.begin_write()?;
        Writer::new(&transaction)?;
        let session = Session {
            revision: 0,
            floor: 0,
            is_closed: true,
            is_relaxed: false,
        };
        session.put(&transaction)?;
        Ok(transaction.commit()?)
    }

    pub(super) fn new(transaction: &'t WriteTransaction) -> Result<Writer<'t>, redb::Error> {
        Ok(Writer {
            meta: transaction.open_table(META)?,
            objects: transaction.open_table(OBJECTS)?,
            events: transaction.open_table(EVENTS)?,
            starts: transaction.open_table(STARTS)?,
        })
    }

    /// Writes the new state of an object and how to get the old one back.
    pub(super) fn put(&mut self, record: &Record) -> Result<(), redb::Error> {
        let (collection, key) = (record.collection.as_str(), record.key.as_str());
        let revision = record.revision;
        match &record.json {
            Some(json) => {
                let sum = checksum(collection, key, [revision, 0], json);
                let row = (revision, sum, json.as_ref());
                self.objects.insert((collection, key), row)?;
            }
            None => {
                self.objects.remove((collection, key))?;
            }
        }
        let previous = record.previous.as_ref();
        let (before, json) = previous.map_or((0, &[][..]), |it| (it.revision, it.json.as_ref()));
        let sum = checksum(collection, key, [revision, before], json);
        self.events
            .insert((collection, revision), (key, before, sum, json))?;
        Ok(())
    }

    /// Forgets the oldest events of a collection; says how many.
    pub(super) fn prune(&mut self, collection: &str, n: usize) -> Result<usize, redb::Error> {
        let oldest = self
            .events
            .range((collection, 0)..=(collection, u64::MAX))?
            .take(n)
            .map(|row| row.map(|(key, _)| key.value().1))
            .collect::<Result<Vec<u64>, _>>()?;
        for revision in &oldest {
            self.events.remove((collection, *revision))?;
        }
        if let Some(last) = oldest.last() {
            self.starts.insert(collection, *last)?;
        }
        Ok(oldest.len())
    }

    pub(super) fn set_revision(&mut self, revision: u64) -> Result<(), redb::Error> {
        self.meta.insert("revision", revision)?;
        Ok(())
    }
}

/// The tables inside a read transaction.
pub(super) struct Reader {
    session: Session,
    objects: ReadOnlyTable<ObjectKey, ObjectRow>,
    events: ReadOnlyTable<EventKey, EventRow>,
    starts: ReadOnlyTable<&'static str, u64>,
}

impl Reader {
    pub(super) fn new(transaction: &ReadTransaction) -> Result<Reader, Failure> {
        Ok(Reader {
            session: Session::read(transaction)?,
            objects: transaction.open_table(OBJECTS)?,
            events: transaction.open_table(EVENTS)?,
            starts: transaction.open_table(STARTS)?,
        })
    }

    /// Reads and checks every row.
    pub(super) fn read(&self) -> Result<Loaded, Failure> {
        let mut loaded = Loaded {
            revision: self.session.revision,
            floor: self.session.floor,
            ..Loaded::default()
        };
        self.read_objects(&mut loaded)?;
        self.read_events(&mut loaded)?;
        for row in self.starts.iter()? {
            let (collection, start) = row?;
            let shelf = loaded.shelves.entry(collection.value().to_owned());
            shelf.or_default().start = start.value();
        }
        for (collection, shelf) in &loaded.shelves {
            check_chain(collection, shelf, loaded.revision)?;
        }
        Ok(loaded)
    }

    fn read_objects(&self, loaded: &mut Loaded) -> Result<(), Failure> {
        let mut n_rows = 0;
        for row in self.objects.iter()? {
            let (path, value) = row?;
            let ((collection, key), (revision, sum, json)) = (path.value(), value.value());
            if sum != checksum(collection, key, [revision, 0], json) {
                let what = format!("object {key:?} of {collection} at revision {revision}");
                return Err(Failure::Row(format!("{what} fails its checksum")));
            }
            let json = Bytes::copy_from_slice(json);
            let shelf = loaded.shelves.entry(collection.to_owned()).or_default();
            shelf
                .objects
                .insert(key.to_owned(), Stored { revision, json });
            n_rows += 1;
        }
        count("objects", n_rows, self.objects.len()?)
    }

    fn read_events(&self, loaded: &mut Loaded) -> Result<(), Failure> {
        let mut n_rows = 0;
        for row in self.events.iter()? {
            let (place, value) = row?;
            let ((collection, revision), (key, before, sum, json)) = (place.value(), value.value());
            if sum != checksum(collection, key, [revision, before], json) {
                let what = format!("event {revision} of {collection}");
                return Err(Failure::Row(format!("{what} fails its checksum")));
            }
            let previous = (before != 0).then(|| Stored {
                revision: before,
                json: Bytes::copy_from_slice(json),
            });
            let shelf = loaded.shelves.entry(collection.to_owned()).or_default();
            shelf.events.push(Undo {
                revision,
                key: key.to_owned(),
                previous,
            });
            n_rows += 1;
        }
        count("events", n_rows, self.events.len()?)
    }
}

fn count(table: &str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected {
        Ok(())
    } else {
        let what = format!("{table} has {found} rows, expected {expected}");
        Err(Failure::Row(what))
    }
}

/// Walks from the current state back through every event: each must have made what the next one
/// found. A row that is whole but is not the newest one of its object shows here.
fn check_chain(collection: &str, shelf: &Shelf, newest: u64) -> Result<(), Failure> {
    let wrong = |what: String| Err(Failure::Row(format!("{collection}: {what}")));
    let mut revisions: std::collections::BTreeMap<&str, u64> = shelf
        .objects
        .iter()
        .map(|(key, stored)| (key.as_str(), stored.revision))
        .collect();
    for event in shelf.events.iter().rev() {
        let (key, revision) = (event.key.as_str(), event.revision);
        let found = revisions.remove(key);
        if revision > newest {
            return wrong(format!(
                "event {revision} is newer than the store, {newest}"
            ));
        }
        match (found, &event.previous) {
            (Some(found), _) if found != revision => {
                let expected = format!("expected that of event {revision}");
                return wrong(format!("{key:?} has revision {found}, {expected}"));
            }
            (None, None) => return wrong(format!("event {revision} of {key:?} changed nothing")),
            (_, previous) => {
                revisions.extend(previous.as_ref().map(|it| (key, it.revision)));
            }
        }
    }
    match revisions.iter().find(|(_, it)| **it > shelf.start) {
        Some((key, revision)) => wrong(format!(
            "{key:?} has revision {revision}, but no such event is there"
        )),
        None => Ok(()),
    }
}
