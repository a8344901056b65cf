//! Where the logs of ended pods are kept: Airflow's log path under one root, written before the pod is deleted.

use std::{fmt, io, path::PathBuf, pin::Pin, sync::Arc};

use async_trait::async_trait;
use futures::AsyncBufRead;
use longshore_core::names::hashed_uuid;
use longshore_files::{Disk, Draft, GroupSync, System};
use longshore_kit::Gate;
use longshore_store::{TaskInstance, TaskKey};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Semaphore,
};
use tokio_util::{compat::FuturesAsyncReadCompatExt, sync::CancellationToken};

/// As many bytes of a log are written at one go. A shorter log is stored at one go: each step on its own would have to
/// wait for a thread.
const CHUNK: usize = 64 * 1024;
/// As many threads write logs at most. A disk that hangs keeps them, and no more of those that the process has for all of
/// its files.
const THREADS: usize = 64;

/// As many bytes as Linux takes in a name of a file.
const LONGEST_COMPONENT: usize = 255;

/// The log of one pod, as the API server streams it.
pub type LogStream = Pin<Box<dyn AsyncBufRead + Send>>;

/// Keeps logs beyond the life of their pods. Storing the same log again replaces it.
#[async_trait]
pub trait LogArchive: Send + Sync + 'static {
    /// Stores the whole log of one try durably. Right before the step that replaces an earlier log, it has to
    /// [check](StorePermit::check) the permit, which may have ended meanwhile: another process may be the leader, and has
    /// stored the log.
    ///
    /// *Cancellation*: the archive is as it was, or has the whole log.
    async fn store(&self, path: &LogPath, log: LogStream, permit: StorePermit) -> io::Result<()>;
}

/// The permission to store one log. It ends when the process is not the leader any more, and when the question about the
/// log is cancelled. Clones are the same permit.
#[derive(Clone, Debug)]
pub struct StorePermit {
    gate: Gate,
    given_up: CancellationToken,
}

impl StorePermit {
    /// A permit that ends when `gate` closes, and when `given_up` is cancelled.
    pub fn new(gate: Gate, given_up: CancellationToken) -> Self {
        Self { gate, given_up }
    }

    /// A permit that never ends, for a process that is the only one.
    pub fn unlimited() -> Self {
        Self::new(Gate::always_open(), CancellationToken::new())
    }

    /// Whether the log may be stored now.
    ///
    /// # Errors
    /// The permit has ended.
    pub fn check(&self) -> io::Result<()> {
        if self.given_up.is_cancelled() {
            return Err(io::Error::other("the copy of the log was given up"));
        }
        self.gate.check().map_err(io::Error::other)
    }
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
            "{}/{}/{}/",
            component("dag_id", &key.run.dag_id),
            component("run_id", &key.run.run_id),
            component("task_id", &key.task_id)
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

/// A user's name as one path component: what could leave the component is percent-encoded, and the end of one that no file
/// system takes is a hash. The second `=` is in no other component.
fn component(key: &str, name: &str) -> String {
    let mut encoded = format!("{key}=");
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'~' | b':' | b'+' | b'-' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    if encoded.len() > LONGEST_COMPONENT {
        let hash = hashed_uuid(name);
        encoded.truncate(LONGEST_COMPONENT - hash.len() - 1);
        encoded = format!("{encoded}={hash}");
    }
    encoded
}

/// Logs in a directory. Clones share the limit of threads, and the syncs of directories.
#[derive(Clone)]
pub struct LogDirectory<D: Disk = System> {
    disk: GroupSync<D>,
    root: PathBuf,
    threads: Arc<Semaphore>,
}

impl<D: Disk> fmt::Debug for LogDirectory<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogDirectory").field(&self.root).finish()
    }
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
            disk: GroupSync::new(disk),
            root: root.into(),
            threads: Arc::new(Semaphore::new(THREADS)),
        }
    }

    /// Where the log of a try is, or will be.
    pub fn file(&self, path: &LogPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    /// Begins the new content of a log. Whole or not at all: a crash leaves the draft, which the repeat replaces.
    fn begin(
        &self,
        path: &LogPath,
    ) -> impl FnOnce() -> io::Result<Draft<GroupSync<D>>> + Send + use<D> {
        let (disk, file) = (self.disk.clone(), self.file(path));
        move || Draft::begin_in_new_directory(disk, &file, 0o600, 0o700)
    }

    /// Does one step on a thread of its own, if the permit has not ended when the thread begins. A step that has begun
    /// goes on if its caller is dropped.
    async fn step<T: Send + 'static>(
        &self,
        permit: &StorePermit,
        work: impl FnOnce(&StorePermit) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let thread = Arc::clone(&self.threads).acquire_owned().await;
        let thread = thread.map_err(io::Error::other)?;
        let permit = permit.clone();
        let step = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            permit.check()?;
            work(&permit)
        });
        step.await.map_err(io::Error::other)?
    }
}

#[async_trait]
impl<D: Disk> LogArchive for LogDirectory<D> {
    async fn store(&self, path: &LogPath, log: LogStream, permit: StorePermit) -> io::Result<()> {
        let begin = self.begin(path);
        let mut log = log.compat();
        let mut chunk = read_chunk(&mut log).await?;
        if chunk.len() < CHUNK {
            let whole = move |permit: &StorePermit| commit(begin()?.with(&chunk)?, permit);
            return self.step(&permit, whole).await;
        }
        let mut draft = self.step(&permit, |_| begin()).await?;
        while !chunk.is_empty() {
            draft = self.step(&permit, move |_| draft.with(&chunk)).await?;
            chunk = read_chunk(&mut log).await?;
        }
        self.step(&permit, move |permit| commit(draft, permit))
            .await
    }
}

fn commit<D: Disk>(draft: Draft<D>, permit: &StorePermit) -> io::Result<()> {
    draft.commit_if(|| permit.check())
}

/// The next bytes of a log, [`CHUNK`] of them unless it ends.
async fn read_chunk(log: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::new();
    log.take(CHUNK as u64).read_to_end(&mut chunk).await?;
    Ok(chunk)
}

/// Keeps no logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLogArchive;

#[async_trait]
impl LogArchive for NoLogArchive {
    async fn store(&self, _: &LogPath, _: LogStream, _: StorePermit) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::{TryStreamExt, stream};
    use longshore_files::lossy::LossyDisk;
    use longshore_store::RunKey;
    use tokio::sync::RwLock;

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
            logs.store(&path, stream, StorePermit::unlimited())
                .await
                .unwrap();
            disk.lose_power_after(0);
            disk.restore_power();
            assert!(disk.read(&logs.file(&path)) == Some(log), "{length}");
        }
    }

    #[tokio::test]
    async fn the_longest_ids_have_logs_of_their_own() {
        let key = |dag_id: String, last: &str| {
            let run_id = "r".repeat(250);
            let run = RunKey { dag_id, run_id };
            run.task(format!("{}{last}", "ü".repeat(249)))
        };
        let paths = ["ä", "ö"].map(|last| LogPath::of_try(&key("d".repeat(250), last), 1));
        assert_ne!(paths[0], paths[1]);
        let root = tempfile::tempdir().unwrap();
        for path in &paths {
            let logs = LogDirectory::new(root.path());
            let stored = logs.store(path, log_of(7).1, StorePermit::unlimited());
            stored.await.unwrap();
            assert!(logs.file(path).is_file());
        }
        // 248 bytes fit beside `dag_id=`.
        let path = LogPath::of_try(&key("d".repeat(248), ""), 1);
        let expected = format!("dag_id={}/", "d".repeat(248));
        assert!(path.as_str().starts_with(&expected), "{path:?}");
    }

    #[tokio::test]
    async fn a_log_of_any_length_is_stored_whole_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(folder.path());
        let path = LogPath("dag_id=d/run_id=r/task_id=t/attempt=1.log".to_owned());
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 7] {
            let (log, stream) = log_of(length);
            logs.store(&path, stream, StorePermit::unlimited())
                .await
                .unwrap();
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
            let stored = logs.store(&path, stream, StorePermit::unlimited()).await;
            assert_eq!(stored.is_ok(), is_stored);
        }
        let stored = fs::read_to_string(logs.file(&path)).unwrap();
        assert_eq!(stored.len(), 5 * CHUNK);
    }

    /// A disk on which something happens before a step.
    #[derive(Clone)]
    struct SlowDisk {
        disk: LossyDisk,
        before: Arc<dyn Fn(&str) + Send + Sync>,
    }

    impl SlowDisk {
        fn new(before: impl Fn(&str) + Send + Sync + 'static) -> Self {
            Self {
                disk: LossyDisk::default(),
                before: Arc::new(before),
            }
        }
    }

    impl Disk for SlowDisk {
        type File = <LossyDisk as Disk>::File;

        fn create(&self, path: &Path, mode: u32) -> io::Result<Self::File> {
            (self.before)("create");
            self.disk.create(path, mode)
        }

        fn sync(&self, file: &Self::File) -> io::Result<()> {
            (self.before)("sync");
            self.disk.sync(file)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            self.disk.sync_directory(path)
        }

        fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
            self.disk.create_directory(path, mode)
        }

        fn has_directory(&self, path: &Path) -> bool {
            self.disk.has_directory(path)
        }
    }

    #[tokio::test]
    async fn a_log_whose_copy_was_given_up_on_the_way_replaces_nothing() {
        for gives_up_in in ["create", "sync", ""] {
            for length in [1, 3 * CHUNK] {
                let given_up = CancellationToken::new();
                let permit = StorePermit::new(Gate::always_open(), given_up.clone());
                let disk = SlowDisk::new(move |step| {
                    if step == gives_up_in {
                        given_up.cancel();
                    }
                });
                let logs = LogDirectory::on(disk.clone(), "/logs");
                let path = LogPath("attempt=1.log".to_owned());
                let stored = logs.store(&path, log_of(length).1, permit).await;
                let is_stored = disk.disk.read(&logs.file(&path)).is_some();
                assert_eq!(is_stored, stored.is_ok());
                assert_eq!(is_stored, gives_up_in.is_empty(), "{gives_up_in} {length}");
            }
        }
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_no_more_threads_than_it_may() {
        let released = Arc::<RwLock<()>>::default();
        let n_hanging = Arc::<AtomicUsize>::default();
        let (of_disk, counted) = (Arc::clone(&released), Arc::clone(&n_hanging));
        let disk = SlowDisk::new(move |step| {
            if step == "create" {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(of_disk.blocking_read());
            }
        });
        let logs = LogDirectory::on(disk, "/logs");
        let hangs = released.clone().write_owned().await;
        let stores = (0..2 * THREADS).map(|n| {
            let logs = logs.clone();
            tokio::spawn(async move {
                let path = LogPath(format!("attempt={n}.log"));
                let log = log_of(1).1;
                logs.store(&path, log, StorePermit::unlimited()).await
            })
        });
        let stores: Vec<_> = stores.collect();
        while n_hanging.load(Ordering::SeqCst) < THREADS {
            tokio::task::yield_now().await;
        }
        // Others still get a thread, and no further log has got one.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(n_hanging.load(Ordering::SeqCst), THREADS);
        drop(hangs);
        for store in stores {
            store.await.unwrap().unwrap();
        }
    }
}
