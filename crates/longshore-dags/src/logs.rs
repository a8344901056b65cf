//! Where the logs of ended pods are kept: Airflow's log path under one root, written before the pod is deleted.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    pin::Pin,
};

use async_trait::async_trait;
use futures::AsyncBufRead;
use longshore_store::{TaskInstance, TaskKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// A log shorter than this, in bytes, is stored at one go: each step on its own would have to wait for a thread.
const HEAD: usize = 64 * 1024;

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
pub struct LogDirectory {
    root: PathBuf,
}

impl LogDirectory {
    /// Logs below `root`, which is created with the first log.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the log of a try is, or will be.
    pub fn file(&self, path: &LogPath) -> PathBuf {
        self.root.join(path.as_str())
    }
}

#[async_trait]
impl LogArchive for LogDirectory {
    async fn store(&self, path: &LogPath, log: LogStream) -> io::Result<()> {
        let part = Part::of(self.file(path));
        let mut log = log.compat();
        let mut head = Vec::new();
        (&mut log).take(HEAD as u64).read_to_end(&mut head).await?;
        if head.len() < HEAD {
            return blocking(move || part.finish(part.begin(&head)?)).await;
        }
        let (part, begun) = blocking(move || {
            let begun = part.begin(&head)?;
            Ok((part, begun))
        })
        .await?;
        let mut begun = tokio::fs::File::from_std(begun);
        tokio::io::copy(&mut log, &mut begun).await?;
        begun.flush().await?;
        let whole = begun.into_std().await;
        blocking(move || part.finish(whole)).await
    }
}

/// A log that is being written. Whole or not at all: a crash leaves the part file, which the repeat replaces.
struct Part {
    file: PathBuf,
    part: PathBuf,
}

impl Part {
    fn of(file: PathBuf) -> Self {
        Self {
            part: file.with_extension("log.part"),
            file,
        }
    }

    fn begin(&self, head: &[u8]) -> io::Result<File> {
        if let Some(folder) = self.file.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut begun = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.part)?;
        begun.write_all(head)?;
        Ok(begun)
    }

    fn finish(&self, whole: File) -> io::Result<()> {
        whole.sync_data()?;
        fs::rename(&self.part, &self.file)
    }
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
    use futures::{TryStreamExt, stream};

    use super::*;

    #[tokio::test]
    async fn a_log_of_any_length_is_stored_whole_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(folder.path());
        let path = LogPath("dag_id=d/run_id=r/task_id=t/attempt=1.log".to_owned());
        for length in [0, 1, HEAD - 1, HEAD, HEAD + 1, 3 * HEAD, 7] {
            let log: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let chunks: Vec<_> = log.chunks(1_000).map(|chunk| Ok(chunk.to_vec())).collect();
            let stream: LogStream = Box::pin(stream::iter(chunks).into_async_read());
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
            let chunks = [Ok("line\n".repeat(HEAD))].into_iter();
            let chunks = chunks.chain(end.map(Err));
            let stream: LogStream = Box::pin(stream::iter(chunks).into_async_read());
            assert_eq!(logs.store(&path, stream).await.is_ok(), is_stored);
        }
        let stored = fs::read_to_string(logs.file(&path)).unwrap();
        assert_eq!(stored.len(), 5 * HEAD);
    }
}
