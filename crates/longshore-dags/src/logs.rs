//! Where the logs of ended pods are kept: Airflow's log path under one root, written before the pod is deleted.

use std::{io, path::PathBuf, pin::Pin};

use async_trait::async_trait;
use futures::AsyncBufRead;
use longshore_files::{Disk, Draft, System};
use longshore_store::{TaskInstance, TaskKey};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// As many bytes of a log are written at one go. A shorter log is stored at one go: each step on its own would have to
/// wait for a thread.
const CHUNK: usize = 64 * 1024;

/// The log of one pod, as the API server streams it.
pub type LogStream = Pin<Box<dyn AsyncBufRead + Send>>;

/// Keeps logs beyond the life of their pods. Storing the same log again replaces it.
#[async_trait]
pub trait LogArchive: Send + Sync + 'static {
    /// Stores the whole log of one try durably.
    async fn store(&self, path: &LogPath, log: LogStream) -> io::Result<()>;
}

/// Airflow's `log_path`: `dag_id=<d>/run_id=<r>/task_id=<t>/[map_index=<m>/]attempt=<try>.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPath(String);

impl LogPath {
    /// The path of a task instance's current try.
    pub fn of(task_instance: &TaskInstance) -> Self {
        Self::of_try(&task_instance.key, task_instance.try_number)
    }

    /// The path of one try of a task.
    pub fn of_try(key: &TaskKey, try_number: u32) -> Self {
        let mut path = format!(
            "dag_id={}/run_id={}/task_id={}/",
            component(&key.run.dag_id),
            component(&key.run.run_id),
            component(&key.task_id)
        );
        if key.map_index >= 0 {
            path.push_str(&format!("map_index={}/", key.map_index));
        }
        path.push_str(&format!("attempt={try_number}.log"));
        Self(path)
    }

    /// The path below the archive's root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A user's name as one path component: what could leave the component is percent-encoded.
fn component(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'~' | b':' | b'+' | b'-' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Logs in a directory.
#[derive(Clone, Debug)]
pub struct LogDirectory<D: Disk = System> {
    disk: D,
    root: PathBuf,
}

impl LogDirectory {
    /// Logs below `root`, which is created with the first log.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::on(System, root)
    }
}

impl<D: Disk> LogDirectory<D> {
    /// The same on another disk.
    pub fn on(disk: D, root: impl Into<PathBuf>) -> Self {
        Self {
            disk,
            root: root.into(),
        }
    }

    /// Where the log of a try is, or will be.
    pub fn file(&self, path: &LogPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    /// Begins the new content of a log. Whole or not at all: a crash leaves the draft, which the repeat replaces.
    fn begin(&self, path: &LogPath) -> impl FnOnce() -> io::Result<Draft<D>> + Send + use<D> {
        let (disk, file) = (self.disk.clone(), self.file(path));
        move || Draft::begin_in_new_directory(disk, &file, 0o600, 0o700)
    }
}

#[async_trait]
impl<D: Disk> LogArchive for LogDirectory<D> {
    async fn store(&self, path: &LogPath, log: LogStream) -> io::Result<()> {
        let begin = self.begin(path);
        let mut log = log.compat();
        let mut chunk = read_chunk(&mut log).await?;
        if chunk.len() < CHUNK {
            return blocking(move || begin()?.with(&chunk)?.commit()).await;
        }
        let mut draft = blocking(begin).await?;
        while !chunk.is_empty() {
            draft = blocking(move || draft.with(&chunk)).await?;
            chunk = read_chunk(&mut log).await?;
        }
        blocking(move || draft.commit()).await
    }
}

/// The next bytes of a log, [`CHUNK`] of them unless it ends.
async fn read_chunk(log: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::new();
    log.take(CHUNK as u64).read_to_end(&mut chunk).await?;
    Ok(chunk)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// Keeps no logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLogArchive;

#[async_trait]
impl LogArchive for NoLogArchive {
    async fn store(&self, _path: &LogPath, _log: LogStream) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::{TryStreamExt, stream};
    use longshore_files::lossy::LossyDisk;

    use super::*;

    fn log_of(length: usize) -> (Vec<u8>, LogStream) {
        let log: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let chunks: Vec<_> = log.chunks(1_000).map(|chunk| Ok(chunk.to_vec())).collect();
        (log, Box::pin(stream::iter(chunks).into_async_read()))
    }

    #[tokio::test]
    async fn a_stored_log_survives_a_loss_of_power() {
        for length in [0, 1, CHUNK, 3 * CHUNK] {
            let disk = LossyDisk::default();
            let logs = LogDirectory::on(disk.clone(), "/logs");
            let path = LogPath("dag_id=d/run_id=r/task_id=t/attempt=1.log".to_owned());
            let (log, stream) = log_of(length);
            logs.store(&path, stream).await.unwrap();
            disk.lose_power_after(0);
            disk.restore_power();
            assert!(disk.read(&logs.file(&path)) == Some(log), "{length}");
        }
    }

    #[tokio::test]
    async fn a_log_of_any_length_is_stored_whole_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(folder.path());
        let path = LogPath("dag_id=d/run_id=r/task_id=t/attempt=1.log".to_owned());
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 7] {
            let (log, stream) = log_of(length);
            logs.store(&path, stream).await.unwrap();
            assert!(fs::read(logs.file(&path)).unwrap() == log, "{length}");
        }
    }

    #[tokio::test]
    async fn a_log_that_breaks_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(folder.path());
        let path = LogPath("attempt=1.log".to_owned());
        for (end, is_stored) in [(None, true), (Some(io::Error::other("gone")), false)] {
            let chunks = [Ok("line\n".repeat(CHUNK))].into_iter();
            let chunks = chunks.chain(end.map(Err));
            let stream: LogStream = Box::pin(stream::iter(chunks).into_async_read());
            assert_eq!(logs.store(&path, stream).await.is_ok(), is_stored);
        }
        let stored = fs::read_to_string(logs.file(&path)).unwrap();
        assert_eq!(stored.len(), 5 * CHUNK);
    }
}
