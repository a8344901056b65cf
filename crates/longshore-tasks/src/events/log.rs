//! Events in files of this machine, for a machine without the peer's events service: one line of JSON each.
//!
//! What was acknowledged is on disk. The last line may be half written when the machine stops; it was not acknowledged
//! then, and the next start cuts it off. When the newest file is full another one is begun, and the oldest removed.

mod line;
mod read;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use super::{ActionEvent, EventSink, NotRecorded};

pub use line::{LoggedError, LoggedEvent, LoggedLink, LoggedReason};
pub use read::Wanted;

const PREFIX: &str = "events-";
const SUFFIX: &str = ".jsonl";

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A file is full with so many bytes. Default: 16 MiB.
    pub max_file: u64,
    /// So many files are kept. Default: 16.
    pub max_files: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            max_file: 16 * 1024 * 1024,
            max_files: 16,
        }
    }
}

/// Events in files of this machine. Only one process writes them; any may [`read`](EventLog::read).
#[derive(Clone, Debug)]
pub struct EventLog {
    newest: Arc<Mutex<Newest>>,
}

/// The event log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the event log {path} cannot be {action}")]
pub struct LogError {
    path: PathBuf,
    action: &'static str,
    source: io::Error,
}

/// The file that is written.
#[derive(Debug)]
struct Newest {
    directory: PathBuf,
    limits: LogLimits,
    number: u64,
    file: File,
    /// What is acknowledged of it.
    length: u64,
    /// More than that may be in it, after a write that failed.
    is_torn: bool,
}

impl EventLog {
    /// Opens the log in a directory, which is made where there is none.
    ///
    /// # Errors
    /// Where that cannot be read or written.
    pub fn open(directory: &Path, limits: LogLimits) -> Result<Self, LogError> {
        let opened = Newest::open(directory, limits).map_err(|source| LogError {
            path: directory.to_owned(),
            action: "opened",
            source,
        })?;
        Ok(Self {
            newest: Arc::new(Mutex::new(opened)),
        })
    }

    /// The events that are wanted, oldest first, each once. Lines that cannot be read are passed over.
    ///
    /// # Errors
    /// Where the directory or a file in it cannot be read.
    pub fn read(directory: &Path, wanted: &Wanted<'_>) -> Result<Vec<LoggedEvent>, LogError> {
        read::read(directory, wanted).map_err(|source| LogError {
            path: directory.to_owned(),
            action: "read",
            source,
        })
    }
}

#[async_trait]
impl EventSink for EventLog {
    async fn record(&self, events: &[ActionEvent]) -> Result<(), NotRecorded> {
        let mut lines = Vec::new();
        for event in events {
            let line = serde_json::to_vec(&LoggedEvent::of(event));
            lines.extend(line.map_err(|error| NotRecorded::Refused(error.to_string()))?);
            lines.push(b'\n');
        }
        let newest = Arc::clone(&self.newest);
        let write = move || {
            let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
            newest.append(&lines)
        };
        let failed = |error: &dyn std::error::Error| {
            NotRecorded::Failed(format!("the event log is not written: {error}"))
        };
        let written = spawn_blocking(write)
            .await
            .map_err(|error| failed(&error))?;
        written.map_err(|error| failed(&error))
    }
}

impl Newest {
    fn open(directory: &Path, limits: LogLimits) -> io::Result<Self> {
        // What it holds, inputs of tasks among it, is for this user alone.
        longshore_files::make_directories(directory, 0o700)?;
        let number = files(directory)?.last().map_or(1, |(number, _)| *number);
        let mut file = begin(directory, number)?;
        let length = whole_lines(&mut file)?;
        file.set_len(length)?;
        file.sync_all()?;
        Ok(Self {
            directory: directory.to_owned(),
            limits,
            number,
            file,
            length,
            is_torn: false,
        })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        if self.length > 0 && self.length + lines.len() as u64 > self.limits.max_file {
            self.turn_over()?;
        }
        self.is_torn = true;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.is_torn = false;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Begins the next file, and removes those that are too many.
    fn turn_over(&mut self) -> io::Result<()> {
        self.file = begin(&self.directory, self.number + 1)?;
        self.file.set_len(0)?;
        self.number += 1;
        self.length = 0;
        let files = files(&self.directory)?;
        let n_too_many = files.len().saturating_sub(self.limits.max_files.max(1));
        for (_, path) in files.iter().take(n_too_many) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The files of a log, oldest first.
fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file of the log, which is made where there is none, and whose name outlives a crash.
fn begin(directory: &Path, number: u64) -> io::Result<File> {
    let path = directory.join(format!("{PREFIX}{number:010}{SUFFIX}"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    let file = options.open(path)?;
    longshore_files::sync_directory(directory)?;
    Ok(file)
}

/// How long a file is without a last line that was not finished.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let end = content.iter().rposition(|byte| *byte == b'\n');
    Ok(end.map_or(0, |at| at as u64 + 1))
}
