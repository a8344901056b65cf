//! The log of a pod on its way into the archive, and what stands there if it cannot be read.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{AsyncReadExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::decide::OnError;
use crate::logs::LogStream;

/// A log of which nothing comes for this long is broken: none is followed, so that all of it is there.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// A log that takes longer than this, and comes slower than [`SLOWEST_BYTES_PER_SECOND`], is broken.
const SLOW_LIMIT: Duration = Duration::from_secs(30);
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// A log that takes longer than this is broken, however fast it comes.
const READ_LIMIT: Duration = Duration::from_secs(3_600);
/// An archive that takes nothing for this long is given up, if it has not taken [`ARCHIVE_BYTES_PER_SECOND`] for longer:
/// the last step may make all of the log durable.
const ARCHIVE_LIMIT: Duration = Duration::from_secs(60);
const ARCHIVE_BYTES_PER_SECOND: u64 = 1024 * 1024;
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Reading and storing one log takes no longer: an hour for each of them.
pub(super) const COPY_LIMIT: Duration = Duration::from_secs(2 * 3_600);

/// One log while it is copied. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Copying(Arc<Mutex<Progress>>);

#[derive(Debug)]
struct Progress {
    /// The error that ended the log.
    broken: Option<io::Error>,
    n_bytes: u64,
    /// Since when the archive has to do the next step; `None` while the source has to.
    archive_since: Option<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            broken: None,
            n_bytes: 0,
            archive_since: Some(Instant::now()),
        }
    }
}

impl Copying {
    /// Takes the error that ended the log.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.progress().broken.take()
    }

    /// Waits until the archive has taken too long for a step.
    ///
    /// # Errors
    /// Always: the archive has taken too long.
    pub(super) async fn archive_stalls(&self) -> io::Error {
        loop {
            let now = Instant::now();
            let (since, limit) = {
                let progress = self.progress();
                let whole = Duration::from_secs(progress.n_bytes / ARCHIVE_BYTES_PER_SECOND);
                (progress.archive_since, ARCHIVE_LIMIT.max(whole))
            };
            let due = since.unwrap_or(now) + limit;
            if due <= now {
                let why = format!("the archive took nothing for {} s", limit.as_secs());
                return io::Error::new(io::ErrorKind::TimedOut, why);
            }
            sleep_until(due).await;
        }
    }

    fn source_begins(&self) {
        self.progress().archive_since = None;
    }

    fn archive_begins(&self, n_bytes: usize) {
        let mut progress = self.progress();
        progress.n_bytes += n_bytes as u64;
        progress.archive_since = Some(Instant::now());
    }

    fn breaks(&self, error: io::Error) {
        self.progress().broken = Some(error);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source, and how much time it has taken for how many bytes.
struct Source {
    log: LogStream,
    n_bytes: u64,
    time: Duration,
}

/// A log as the archive gets it: an error of the source ends it as `on_error` says, and is left in `copying`, so that it
/// is not mistaken for one of the archive.
pub(super) fn watched(
    source: io::Result<LogStream>,
    on_error: OnError,
    copying: Copying,
) -> LogStream {
    let source = source.map(|log| Source {
        log,
        n_bytes: 0,
        time: Duration::ZERO,
    });
    let chunks = stream::unfold(Some(source), move |source| {
        let (on_error, copying) = (on_error.clone(), copying.clone());
        async move {
            copying.source_begins();
            let next = next_chunk(source?).await;
            copying.archive_begins(match &next {
                Ok(Some((chunk, _))) => chunk.len(),
                Ok(None) | Err(_) => 0,
            });
            match next {
                Ok(None) => None,
                Ok(Some((chunk, rest))) => Some((Ok(chunk), Some(Ok(rest)))),
                Err(error) => {
                    let last = match on_error {
                        OnError::AskAgain => Err(io::Error::from(error.kind())),
                        OnError::EndWith(line) => Ok(format!("{line}: {error}\n").into_bytes()),
                    };
                    copying.breaks(error);
                    Some((last, None))
                }
            }
        }
    });
    Box::pin(Box::pin(chunks).into_async_read())
}

/// The result of `work`, unless that takes too long.
pub(super) async fn in_time<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let result = tokio::time::timeout(STALL_LIMIT, work).await;
    result.map_err(|_| too_slow(format!("nothing came for {} s", STALL_LIMIT.as_secs())))
}

async fn next_chunk(source: io::Result<Source>) -> io::Result<Option<(Vec<u8>, Source)>> {
    let mut source = source?;
    let allowed = Duration::from_secs(source.n_bytes / SLOWEST_BYTES_PER_SECOND);
    if source.time > SLOW_LIMIT.max(allowed).min(READ_LIMIT) {
        let kib = SLOWEST_BYTES_PER_SECOND / 1024;
        let minutes = READ_LIMIT.as_secs() / 60;
        let why = format!("it comes slower than {kib} KiB/s, or for longer than {minutes} min");
        return Err(too_slow(why));
    }
    let begun = Instant::now();
    let mut chunk = vec![0; CHUNK];
    let n = in_time(source.log.read(&mut chunk)).await??;
    chunk.truncate(n);
    source.time += begun.elapsed();
    source.n_bytes += n as u64;
    Ok((n > 0).then_some((chunk, source)))
}

fn too_slow(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, io::Cursor};
    use tokio::time::sleep;

    use super::*;

    /// Two lines, and then an error.
    fn breaks() -> LogStream {
        let chunks = [Ok("one\ntwo\n"), Err(io::Error::other("the node is gone"))];
        Box::pin(stream::iter(chunks).into_async_read())
    }

    async fn read(
        source: io::Result<LogStream>,
        on_error: OnError,
    ) -> (io::Result<String>, Copying) {
        let copying = Copying::default();
        let mut text = String::new();
        let mut log = watched(source, on_error, copying.clone());
        let read = log.read_to_string(&mut text).await;
        (read.map(|_| text), copying)
    }

    #[tokio::test]
    async fn a_whole_log_is_as_it_was() {
        let log: LogStream = Box::pin(Cursor::new("x".repeat(3 * CHUNK)));
        let (text, copying) = read(Ok(log), OnError::EndWith("line".to_owned())).await;
        assert_eq!(text.unwrap().len(), 3 * CHUNK);
        assert!(copying.take_error().is_none());
    }

    #[tokio::test]
    async fn a_log_that_breaks_is_an_error_until_it_is_given_up() {
        let (text, copying) = read(Ok(breaks()), OnError::AskAgain).await;
        assert!(text.is_err() && copying.take_error().is_some());
        let end = || OnError::EndWith("the end".to_owned());
        let (text, copying) = read(Ok(breaks()), end()).await;
        assert_eq!(text.unwrap(), "one\ntwo\nthe end: the node is gone\n");
        assert!(copying.take_error().is_some());
        let (text, _) = read(Err(io::Error::other("no route")), end()).await;
        assert_eq!(text.unwrap(), "the end: no route\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_stalls_is_broken() {
        let stalls = stream::iter([Ok("one\n")]).chain(stream::pending());
        let log: LogStream = Box::pin(stalls.into_async_read());
        let (text, copying) = read(Ok(log), OnError::EndWith("the end".to_owned())).await;
        assert_eq!(text.unwrap(), "one\nthe end: nothing came for 10 s\n");
        assert!(copying.take_error().is_some());
    }

    /// A source that gives one byte every nine seconds never stalls.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_drips_is_broken() {
        let drips = stream::unfold((), |()| async {
            sleep(Duration::from_secs(9)).await;
            Some((Ok("x"), ()))
        });
        let begun = Instant::now();
        let log: LogStream = Box::pin(Box::pin(drips).into_async_read());
        let (text, copying) = read(Ok(log), OnError::EndWith("the end".to_owned())).await;
        let text = text.unwrap();
        assert!(
            text.starts_with("xxxxthe end: it comes slower than 64 KiB/s"),
            "{text}"
        );
        assert!(copying.take_error().is_some());
        assert_eq!(begun.elapsed(), Duration::from_secs(36));
    }

    /// What the archive takes for a chunk is not the time of the source.
    #[tokio::test(start_paused = true)]
    async fn a_slow_archive_does_not_break_a_log() {
        let log: LogStream = Box::pin(Cursor::new("x".repeat(3 * CHUNK)));
        let copying = Copying::default();
        let mut log = watched(Ok(log), OnError::AskAgain, copying.clone());
        let mut chunk = vec![0; CHUNK];
        for _ in 0..3 {
            sleep(Duration::from_secs(50)).await;
            assert_eq!(log.read(&mut chunk).await.unwrap(), CHUNK);
        }
        assert_eq!(log.read(&mut chunk).await.unwrap(), 0);
        assert!(copying.take_error().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_archive_that_takes_nothing_stalls_and_a_slow_source_does_not_count_for_it() {
        let begun = Instant::now();
        let late = stream::once(async {
            sleep(Duration::from_secs(9)).await;
            Ok("late")
        });
        let log: LogStream = Box::pin(Box::pin(late).into_async_read());
        let copying = Copying::default();
        let mut log = watched(Ok(log), OnError::AskAgain, copying.clone());
        let storing = async {
            sleep(Duration::from_secs(50)).await;
            assert_eq!(log.read(&mut [0; 4]).await.unwrap(), 4);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = storing => {}
            error = copying.archive_stalls() => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(50 + 9 + 60));
    }
}
