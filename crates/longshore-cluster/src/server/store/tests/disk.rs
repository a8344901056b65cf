//! A disk that forgets what was not synced, and that fails on request.

use std::{
    io,
    sync::{Arc, Mutex},
};

use redb::StorageBackend;

use crate::server::{hub::lock, random::Random};

/// A change that the disk has taken and may forget.
#[derive(Debug, Clone)]
enum Change {
    Length(usize),
    Write(usize, Vec<u8>),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Length(length) => content.resize(*length, 0),
            Change::Write(offset, data) => {
                let end = offset + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(data);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// What survives in any case.
    synced: Vec<u8>,
    /// What a reader finds.
    content: Vec<u8>,
    unsynced: Vec<Change>,
    /// Changes and syncs until every further one fails.
    budget: Option<u64>,
    error: Option<io::ErrorKind>,
    n_syncs: u64,
}

/// Clones share the disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// Fails from the n-th change or sync on.
    pub(super) fn fail_after(&self, budget: u64, error: io::ErrorKind) {
        let mut state = lock(&self.0);
        state.budget = Some(budget);
        state.error = Some(error);
    }

    /// Works again.
    pub(super) fn repair(&self) {
        lock(&self.0).budget = None;
    }

    pub(super) fn n_syncs(&self) -> u64 {
        lock(&self.0).n_syncs
    }

    /// The disk after the power went: of what was not synced, each sector may be there or not.
    pub(super) fn after_power_cut(&self, random: &Random) -> Disk {
        const SECTOR: usize = 512;
        let state = lock(&self.0);
        let mut content = state.synced.clone();
        for change in &state.unsynced {
            match change {
                Change::Write(offset, data) => {
                    for (n, sector) in data.chunks(SECTOR).enumerate() {
                        if random.next().is_multiple_of(2) {
                            let offset = offset + n * SECTOR;
                            Change::Write(offset, sector.to_vec()).apply(&mut content);
                        }
                    }
                }
                // A file system keeps lengths in order: a shorter one would have been synced.
                Change::Length(length) if *length > content.len() => change.apply(&mut content),
                Change::Length(_) => {}
            }
        }
        Disk(Arc::new(Mutex::new(State {
            synced: content.clone(),
            content,
            ..State::default()
        })))
    }

    fn spend(state: &mut State) -> io::Result<()> {
        match state.budget {
            Some(0) => Err(state.error.unwrap_or(io::ErrorKind::Other).into()),
            Some(n) => {
                state.budget = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = lock(&self.0);
        Disk::spend(&mut state)?;
        change.apply(&mut state.content);
        state.unsynced.push(change);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.0);
        let from = offset as usize;
        let found = state.content.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Change::Length(length as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = lock(&self.0);
        Disk::spend(&mut state)?;
        let State {
            synced, unsynced, ..
        } = &mut *state;
        for change in unsynced.drain(..) {
            change.apply(synced);
        }
        state.n_syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Change::Write(offset as usize, data.to_vec()))
    }
}
