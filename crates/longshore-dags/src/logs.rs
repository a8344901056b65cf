//! Where the logs of ended pods are kept: Airflow's log path under one root, written before the pod is deleted.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
};

use async_trait::async_trait;
use futures::AsyncBufRead;
use longshore_store::{TaskInstance, TaskKey};
use tokio_util::compat::FuturesAsyncReadCompatExt;

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
        let file = self.file(path);
        let parent = file.parent().unwrap_or(Path::new("/")).to_owned();
        tokio::fs::create_dir_all(&parent).await?;
        // Whole or not at all: a crash leaves the part file, which the repeat replaces.
        let part = file.with_extension("log.part");
        let mut to = tokio::fs::File::create(&part).await?;
        tokio::io::copy(&mut log.compat(), &mut to).await?;
        to.sync_data().await?;
        tokio::fs::rename(&part, &file).await
    }
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
