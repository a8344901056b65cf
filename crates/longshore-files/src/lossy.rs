//! A disk in memory that loses with the power all that was not synced, for tests.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::disk::Disk;

/// A disk that keeps only what was synced once the power is lost. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LossyDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The content of each file, as written and as synced.
    contents: Vec<Content>,
    /// What the names mean now, and what they will mean after a loss of power.
    names: BTreeMap<PathBuf, Entry>,
    durable_names: BTreeMap<PathBuf, Entry>,
    /// The number of operations that still succeed; `None` while the power lasts.
    n_left: Option<usize>,
}

#[derive(Debug, Default)]
struct Content {
    written: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    /// The place of its content.
    File(usize),
}

impl LossyDisk {
    /// Loses the power after so many more operations: each later one fails.
    pub fn lose_power_after(&self, n_operations: usize) {
        self.state().n_left = Some(n_operations);
    }

    /// Starts the machine again: what was not synced is gone.
    pub fn restore_power(&self) {
        let mut state = self.state();
        state.n_left = None;
        let durable = state.durable_names.clone();
        // A directory that is lost takes what is in it along.
        let is_kept = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.all(|it| it.parent().is_none() || durable.contains_key(it))
        };
        state.names = durable
            .iter()
            .filter(|(path, _)| is_kept(path))
            .map(|(path, entry)| (path.clone(), *entry))
            .collect();
        state.durable_names = state.names.clone();
        for content in &mut state.contents {
            content.written = content.durable.clone();
        }
    }

    /// What is in a file, `None` where there is none.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        match state.names.get(path)? {
            Entry::File(at) => Some(state.contents.get(*at)?.written.clone()),
            Entry::Directory => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the power lasts for one more operation.
    fn operate(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        match &mut state.n_left {
            Some(0) => return Err(io::Error::other("the power is lost")),
            Some(n_left) => *n_left -= 1,
            None => {}
        }
        Ok(state)
    }
}

impl State {
    fn add(&mut self, path: &Path, entry: Entry) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        if !self.has_directory(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.names.insert(path.to_owned(), entry);
        Ok(())
    }

    fn has_directory(&self, path: &Path) -> bool {
        path.parent().is_none() || self.names.get(path) == Some(&Entry::Directory)
    }
}

impl Disk for LossyDisk {
    type File = LossyFile;

    fn create(&self, path: &Path, _mode: u32) -> io::Result<LossyFile> {
        let mut state = self.operate()?;
        let at = state.contents.len();
        state.add(path, Entry::File(at))?;
        state.contents.push(Content::default());
        Ok(LossyFile {
            disk: self.clone(),
            at,
        })
    }

    fn sync(&self, file: &LossyFile) -> io::Result<()> {
        let mut state = self.operate()?;
        let content = state.contents.get_mut(file.at);
        let content = content.ok_or(io::ErrorKind::NotFound)?;
        content.durable = content.written.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let entry = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), entry);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate()?.names.remove(path);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let is_in = |it: &Path| it.parent() == Some(path);
        state.durable_names.retain(|it, _| !is_in(it));
        let names = state.names.clone().into_iter();
        state
            .durable_names
            .extend(names.filter(|(it, _)| is_in(it)));
        Ok(())
    }

    fn create_directory(&self, path: &Path, _mode: u32) -> io::Result<()> {
        self.operate()?.add(path, Entry::Directory)
    }

    fn has_directory(&self, path: &Path) -> bool {
        self.state().has_directory(path)
    }
}

/// An open file of a [`LossyDisk`].
#[derive(Debug)]
pub struct LossyFile {
    disk: LossyDisk,
    at: usize,
}

impl Write for LossyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.operate()?;
        let content = state.contents.get_mut(self.at);
        let content = content.ok_or(io::ErrorKind::NotFound)?;
        content.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
