//! The log of a pod on its way into the archive, and what stands there if it cannot be read.

use std::{io, sync::Arc, sync::Mutex, sync::PoisonError, time::Duration};

use futures::{AsyncReadExt, TryStreamExt, stream};
use jiff::Timestamp;
use longshore_core::ObjectRef;

use super::decide::LaunchedPhase;
use crate::logs::LogStream;

/// For how long the log of an ended pod is asked for. A node that is gone for longer does not come back with it.
const ENDED_LIMIT: Duration = Duration::from_secs(600);
/// For how long a pod that is to be stopped may go on because its log cannot be read.
const LIVE_LIMIT: Duration = Duration::from_secs(30);
/// A log of which nothing comes for this long is broken: none is followed, so that all of it is there.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// What is done about a log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OnError {
    /// It is asked for again later; nothing is stored.
    AskAgain,
    /// What could be read is stored, and this line after it.
    EndWith(String),
}

impl OnError {
    /// What is done now, where the log could first not be read at `since`.
    pub(super) fn at(
        now: Timestamp,
        since: Option<Timestamp>,
        pod: &ObjectRef,
        phase: Option<LaunchedPhase>,
    ) -> Self {
        let limit = match phase {
            Some(LaunchedPhase::Live) => LIVE_LIMIT,
            Some(LaunchedPhase::Succeeded | LaunchedPhase::Failed) | None => ENDED_LIMIT,
        };
        let elapsed = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        match elapsed.filter(|elapsed| *elapsed >= limit) {
            None => Self::AskAgain,
            Some(elapsed) => Self::EndWith(format!(
                "longshore: the log of {pod} ends here, because it could not be read for {} s",
                elapsed.as_secs()
            )),
        }
    }
}

/// Where the error is left that ended a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Broken(Arc<Mutex<Option<io::Error>>>);

impl Broken {
    /// The error, once.
    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: io::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// A log as the archive gets it: an error of the source ends it as `on_error` says, and is left in `broken`, so that it
/// is not mistaken for one of the archive.
pub(super) fn watched(
    source: io::Result<LogStream>,
    on_error: OnError,
    broken: Broken,
) -> LogStream {
    let chunks = stream::unfold(Some(source), move |source| {
        let (on_error, broken) = (on_error.clone(), broken.clone());
        async move {
            match next_chunk(source?).await {
                Ok(None) => None,
                Ok(Some((chunk, rest))) => Some((Ok(chunk), Some(Ok(rest)))),
                Err(error) => {
                    let last = match on_error {
                        OnError::AskAgain => Err(io::Error::from(error.kind())),
                        OnError::EndWith(line) => Ok(format!("{line}: {error}\n").into_bytes()),
                    };
                    broken.set(error);
                    Some((last, None))
                }
            }
        }
    });
    Box::pin(Box::pin(chunks).into_async_read())
}

/// The answer, unless it takes too long.
pub(super) async fn in_time<T>(answer: impl Future<Output = T>) -> io::Result<T> {
    let answer = tokio::time::timeout(STALL_LIMIT, answer).await;
    answer.map_err(|_| {
        let why = format!("nothing came for {} s", STALL_LIMIT.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, why)
    })
}

async fn next_chunk(source: io::Result<LogStream>) -> io::Result<Option<(Vec<u8>, LogStream)>> {
    let mut source = source?;
    let mut chunk = vec![0; CHUNK];
    let n = in_time(source.read(&mut chunk)).await??;
    chunk.truncate(n);
    Ok((n > 0).then_some((chunk, source)))
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, io::Cursor};
    use longshore_core::Resource;

    use super::*;

    fn pod() -> ObjectRef {
        ObjectRef {
            resource: Resource::POD,
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            uid: None,
        }
    }

    /// Two lines, and then an error.
    fn breaks() -> LogStream {
        let chunks = [Ok("one\ntwo\n"), Err(io::Error::other("the node is gone"))];
        Box::pin(stream::iter(chunks).into_async_read())
    }

    async fn read(
        source: io::Result<LogStream>,
        on_error: OnError,
    ) -> (io::Result<String>, Broken) {
        let broken = Broken::default();
        let mut text = String::new();
        let mut log = watched(source, on_error, broken.clone());
        let read = log.read_to_string(&mut text).await;
        (read.map(|_| text), broken)
    }

    #[tokio::test]
    async fn a_whole_log_is_as_it_was() {
        let log: LogStream = Box::pin(Cursor::new("x".repeat(3 * CHUNK)));
        let (text, broken) = read(Ok(log), OnError::EndWith("line".to_owned())).await;
        assert_eq!(text.unwrap().len(), 3 * CHUNK);
        assert!(broken.take().is_none());
    }

    #[tokio::test]
    async fn a_log_that_breaks_is_an_error_until_it_is_given_up() {
        let (text, broken) = read(Ok(breaks()), OnError::AskAgain).await;
        assert!(text.is_err() && broken.take().is_some());
        let end = || OnError::EndWith("the end".to_owned());
        let (text, broken) = read(Ok(breaks()), end()).await;
        assert_eq!(text.unwrap(), "one\ntwo\nthe end: the node is gone\n");
        assert!(broken.take().is_some());
        let (text, _) = read(Err(io::Error::other("no route")), end()).await;
        assert_eq!(text.unwrap(), "the end: no route\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_stalls_is_broken() {
        let stalls = stream::iter([Ok("one\n")]).chain(stream::pending());
        let log: LogStream = Box::pin(stalls.into_async_read());
        let (text, broken) = read(Ok(log), OnError::EndWith("the end".to_owned())).await;
        assert_eq!(text.unwrap(), "one\nthe end: nothing came for 10 s\n");
        assert!(broken.take().is_some());
    }

    #[test]
    fn a_log_is_given_up_sooner_where_a_pod_waits_to_be_stopped() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let ago = |seconds: i64| Some(now - jiff::SignedDuration::from_secs(seconds));
        for (since, phase, is_given_up) in [
            (None, LaunchedPhase::Live, false),
            (ago(29), LaunchedPhase::Live, false),
            (ago(30), LaunchedPhase::Live, true),
            (ago(599), LaunchedPhase::Succeeded, false),
            (ago(600), LaunchedPhase::Succeeded, true),
            (ago(600), LaunchedPhase::Failed, true),
            (ago(-5), LaunchedPhase::Live, false),
        ] {
            let on_error = OnError::at(now, since, &pod(), Some(phase));
            assert_eq!(
                on_error != OnError::AskAgain,
                is_given_up,
                "{since:?} {phase:?}"
            );
        }
    }
}
