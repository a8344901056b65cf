//! Container logs: the CRI files that the shim wrote, in the form that a client requests.

use std::{
    io::{ErrorKind, SeekFrom},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, unix::AsyncFd},
};

use crate::{clock, log_book::AttemptWatch};

/// Why a log cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The pod is not on this node (any more).
    #[error("pod {namespace}/{pod} does not run on this node")]
    NoPod {
        /// The requested namespace.
        namespace: String,
        /// The requested pod.
        pod: String,
    },
    /// The pod has no such container.
    #[error("container {container} is not valid for pod {pod}: expected one of {known}")]
    NoContainer {
        /// The pod.
        pod: String,
        /// The requested container.
        container: String,
        /// The containers that it has.
        known: String,
    },
    /// The container has not run yet.
    #[error("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")]
    Waiting {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// The waiting reason of the container.
        reason: String,
    },
    /// The container has not been restarted.
    #[error("previous terminated container \"{container}\" in pod \"{pod}\" not found")]
    NoPrevious {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// The log file cannot be read.
    #[error("cannot read the log {path}")]
    Read {
        /// The file.
        path: String,
        /// Why it cannot be read.
        source: std::io::Error,
    },
}

/// The options of Kubernetes' log endpoint.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Whether to go on with new lines until the container ends.
    pub follow: bool,
    /// Whether the log of the attempt before the current one is requested.
    pub previous: bool,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only lines written at or after this time.
    pub since: Option<Timestamp>,
    /// Only lines of the last so many seconds.
    pub since_seconds: Option<i64>,
    /// Whether each line starts with its time.
    pub timestamps: bool,
    /// At most so many bytes.
    pub limit_bytes: Option<u64>,
}

/// One line of a log file without time, stream and tag.
pub(crate) fn cri_content(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or("")
}

/// Turns lines of a CRI file into what the client gets.
#[derive(Debug)]
struct Renderer {
    since: Option<Timestamp>,
    timestamps: bool,
    left: u64,
    /// The last line was a part: the next continues it.
    in_line: bool,
    /// Only lines of this stream.
    only: Option<&'static str>,
}

/// Where somebody who follows a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With the first line.
    Start,
    /// With the next line.
    Now,
}

/// Follows one output stream of a running program, as the program wrote it.
pub(crate) async fn follow(
    path: &Path,
    stream: &'static str,
    from: Beginning,
    ended: AttemptWatch,
) -> std::io::Result<impl Stream<Item = std::io::Result<Bytes>> + Send + use<>> {
    let options = LogOptions {
        follow: true,
        tail_lines: (from == Beginning::Now).then_some(0),
        ..LogOptions::default()
    };
    let mut reader = Reader::open(path, &options, ended).await?;
    reader.renderer.only = Some(stream);
    Ok(futures::stream::try_unfold(
        reader,
        move |mut reader| async move {
            let bytes = reader.next().await?;
            Ok::<_, std::io::Error>(bytes.map(|bytes| (bytes, reader)))
        },
    ))
}

impl Renderer {
    fn new(options: &LogOptions) -> Self {
        let ago = options.since_seconds.map(jiff::SignedDuration::from_secs);
        let window = ago.and_then(|ago| clock::now().checked_sub(ago).ok());
        Self {
            since: options.since.or(window),
            timestamps: options.timestamps,
            left: options.limit_bytes.unwrap_or(u64::MAX),
            in_line: false,
            only: None,
        }
    }

    fn render(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let mut fields = line.splitn(4, |b| *b == b' ');
        let (Some(at), Some(stream), Some(tag)) = (fields.next(), fields.next(), fields.next())
        else {
            return;
        };
        if self.only.is_some_and(|only| stream != only.as_bytes()) {
            return;
        }
        let at_text = std::str::from_utf8(at).unwrap_or("");
        if self
            .since
            .is_some_and(|since| at_text.parse::<Timestamp>().is_ok_and(|at| at < since))
        {
            return;
        }
        let mut text = Vec::new();
        if self.timestamps && !self.in_line {
            text.extend_from_slice(at);
            text.push(b' ');
        }
        text.extend_from_slice(fields.next().unwrap_or(b""));
        self.in_line = tag == b"P";
        if !self.in_line {
            text.push(b'\n');
        }
        let room = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(text.len());
        out.extend_from_slice(&text[..room]);
        self.left -= room as u64;
    }
}

/// Reads one log file to its end, or follows it until `ended` says that nothing more will come.
pub(crate) async fn stream(
    path: &Path,
    options: &LogOptions,
    ended: AttemptWatch,
) -> Result<impl Stream<Item = Result<Bytes, LogError>> + Send + use<>, LogError> {
    let name = path.display().to_string();
    let reader = Reader::open(path, options, ended)
        .await
        .map_err(|source| LogError::Read {
            path: name.clone(),
            source,
        })?;
    Ok(futures::stream::try_unfold(reader, move |mut reader| {
        let path = name.clone();
        async move {
            match reader.next().await {
                Ok(Some(bytes)) => Ok(Some((bytes, reader))),
                Ok(None) => Ok(None),
                Err(source) => Err(LogError::Read { path, source }),
            }
        }
    }))
}

struct Reader {
    path: PathBuf,
    /// `None`: the program has said nothing so far.
    file: Option<File>,
    pending: Vec<u8>,
    renderer: Renderer,
    changes: Option<AsyncFd<OwnedFd>>,
    ended: AttemptWatch,
}

impl Reader {
    async fn open(path: &Path, options: &LogOptions, ended: AttemptWatch) -> std::io::Result<Self> {
        let mut file = open_if_any(path).await?;
        if let (Some(file), Some(lines)) = (&mut file, options.tail_lines) {
            let start = tail_offset(file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let changes = if options.follow {
            Some(watch_file(path)?)
        } else {
            None
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            pending: Vec::new(),
            renderer: Renderer::new(options),
            changes,
            ended,
        })
    }

    /// The next piece; `None` at the end of the log.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            if self.renderer.left == 0 {
                return Ok(None);
            }
            // Read before the file: so everything that was written before the end is read too.
            let has_ended = self.ended.has_ended();
            let mut buffer = vec![0; 64 * 1024];
            let n = self.read(&mut buffer).await?;
            if n > 0 {
                let out = self.take_lines(&buffer[..n]);
                if !out.is_empty() {
                    return Ok(Some(out.into()));
                }
                continue;
            }
            let Some(changes) = self.changes.as_mut().filter(|_| !has_ended) else {
                return Ok(None);
            };
            tokio::select! {
                ready = changes.readable_mut() => {
                    let mut ready = ready?;
                    // Only that something changed matters, not what.
                    let _ = nix::unistd::read(ready.get_inner(), &mut [0; 4096]);
                    ready.clear_ready();
                }
                change = self.ended.book.changed() => {
                    // The node is going down; so is the stream, after what is already there.
                    if change.is_err() {
                        self.changes = None;
                    }
                }
            }
        }
    }

    async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.file.is_none() {
            self.file = open_if_any(&self.path).await?;
            if self.file.is_some() && self.changes.is_some() {
                // Before it is read: what comes after that changes it.
                self.changes = Some(watch_file(&self.path)?);
            }
        }
        match &mut self.file {
            Some(file) => file.read(buffer).await,
            None => Ok(0),
        }
    }

    fn take_lines(&mut self, new: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(new);
        let mut out = Vec::new();
        if let Some(end) = self.pending.iter().rposition(|b| *b == b'\n') {
            let lines: Vec<u8> = self.pending.drain(..=end).collect();
            for line in lines[..end].split(|b| *b == b'\n') {
                self.renderer.render(line, &mut out);
            }
        }
        out
    }
}

/// The log of a program that has said something. `None` where there is a directory for it; without one the log is lost.
async fn open_if_any(path: &Path) -> std::io::Result<Option<File>> {
    match File::open(path).await {
        Err(e) if e.kind() == ErrorKind::NotFound && path.parent().is_some_and(Path::is_dir) => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Watches a log, or the directory in which it will be made.
fn watch_file(path: &Path) -> std::io::Result<AsyncFd<OwnedFd>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let watched = match (
        inotify.add_watch(path, AddWatchFlags::IN_MODIFY),
        path.parent(),
    ) {
        (Err(Errno::ENOENT), Some(dir)) => inotify.add_watch(dir, AddWatchFlags::IN_CREATE),
        (watched, _) => watched,
    };
    watched?;
    let fd = inotify.as_fd().try_clone_to_owned()?;
    #[expect(
        unsafe_code,
        reason = "tokio cannot check that a descriptor stays the same"
    )]
    // SAFETY: an `OwnedFd` always returns the descriptor that it owns, and owns it until it is dropped.
    let registered = unsafe { AsyncFd::register(fd) };
    Ok(registered?)
}

/// Where the last `lines` lines begin, read backwards in blocks.
async fn tail_offset(file: &mut File, lines: u64) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut end = file.seek(SeekFrom::End(0)).await?;
    // The line end of the last line is not one between lines.
    let mut seen = 0;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start)).await?;
        let mut block = vec![0; usize::try_from(end - start).unwrap_or_default()];
        file.read_exact(&mut block).await?;
        for (i, byte) in block.iter().enumerate().rev() {
            if *byte == b'\n' {
                seen += 1;
                if seen > lines {
                    return Ok(start + i as u64 + 1);
                }
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use tokio::sync::watch;

    use super::*;
    use crate::log_book::{ContainerLog, LogBook};

    const LOG: &str = "2026-01-01T00:00:00Z stdout F one\n\
        2026-01-01T00:00:01Z stderr P tw\n\
        2026-01-01T00:00:01Z stderr F o\n\
        2026-01-01T00:00:02Z stdout F three\n";

    fn attempt(is_live: bool) -> (watch::Sender<LogBook>, AttemptWatch) {
        let log = ContainerLog {
            last: Some(0),
            is_live,
            init: None,
            waiting: String::new(),
        };
        let (told, book) = watch::channel(LogBook::from([("main".to_owned(), log)]));
        (
            told,
            AttemptWatch {
                book,
                container: "main".into(),
                attempt: 0,
            },
        )
    }

    async fn read(options: LogOptions) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).expect("a log");
        let (_told, watch) = attempt(false);
        let pieces: Vec<Bytes> = stream(&path, &options, watch)
            .await
            .expect("opens")
            .try_collect()
            .await
            .expect("reads");
        String::from_utf8(pieces.concat()).expect("text")
    }

    #[tokio::test]
    async fn the_options_choose_what_a_client_sees() {
        let all = LogOptions::default();
        let cases = [
            (all.clone(), "one\ntwo\nthree\n"),
            (
                LogOptions {
                    tail_lines: Some(1),
                    ..all.clone()
                },
                "three\n",
            ),
            (
                LogOptions {
                    tail_lines: Some(0),
                    ..all.clone()
                },
                "",
            ),
            (
                LogOptions {
                    tail_lines: Some(9),
                    ..all.clone()
                },
                "one\ntwo\nthree\n",
            ),
            (
                LogOptions {
                    limit_bytes: Some(5),
                    ..all.clone()
                },
                "one\nt",
            ),
            (
                LogOptions {
                    since: "2026-01-01T00:00:02Z".parse().ok(),
                    ..all.clone()
                },
                "three\n",
            ),
            (
                LogOptions {
                    timestamps: true,
                    ..all
                },
                "2026-01-01T00:00:00Z one\n2026-01-01T00:00:01Z two\n2026-01-01T00:00:02Z three\n",
            ),
        ];
        for (options, expected) in cases {
            let asked = format!("{options:?}");
            assert_eq!(read(options).await, expected, "{asked}");
        }
    }

    #[tokio::test]
    async fn one_stream_is_followed_from_its_start_or_from_now_on() {
        for (stream, from, expected) in [
            ("stdout", Beginning::Start, "one\nthree\n"),
            ("stderr", Beginning::Start, "two\n"),
            ("stdout", Beginning::Now, ""),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("0.log");
            std::fs::write(&path, LOG).expect("a log");
            let (_told, watch) = attempt(false);
            let pieces: Vec<Bytes> = follow(&path, stream, from, watch)
                .await
                .expect("opens")
                .try_collect()
                .await
                .expect("reads");
            assert_eq!(pieces.concat(), expected.as_bytes(), "{stream} {from:?}");
        }
    }

    /// The shim makes the log with the first line.
    #[tokio::test]
    async fn a_program_that_says_nothing_yet_has_an_empty_log_which_is_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        for follow in [false, true] {
            let (_told, watch) = attempt(false);
            let options = LogOptions {
                follow,
                ..LogOptions::default()
            };
            let pieces = stream(&path, &options, watch).await.expect("opens");
            let pieces: Vec<Bytes> = pieces.try_collect().await.expect("reads");
            assert!(pieces.is_empty(), "{follow}");
        }
        let (told, watch) = attempt(true);
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let lines = stream(&path, &options, watch).await.expect("opens");
        let mut lines = Box::pin(lines);
        assert!(futures::poll!(lines.try_next()).is_pending());
        for (content, expected) in [
            (&LOG[..LOG.find('\n').expect("a line") + 1], "one\n"),
            (LOG, "two\nthree\n"),
        ] {
            std::fs::write(&path, content).expect("a log");
            let next = lines.try_next().await.expect("reads");
            assert_eq!(next.expect("lines"), expected);
        }
        told.send_modify(|book| book.values_mut().for_each(|log| log.is_live = false));
        assert_eq!(lines.try_next().await.expect("reads"), None);
        // A log whose directory is gone is lost, and not one of a program that said nothing.
        let (_told, watch) = attempt(false);
        let lost = stream(&dir.path().join("gone/0.log"), &options, watch).await;
        assert!(matches!(lost.err(), Some(LogError::Read { .. })));
    }

    #[tokio::test]
    async fn following_ends_with_the_container_and_loses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        std::fs::write(&path, LOG).expect("a log");
        let (told, watch) = attempt(true);
        let options = LogOptions {
            follow: true,
            tail_lines: Some(1),
            ..LogOptions::default()
        };
        let mut lines = Box::pin(stream(&path, &options, watch).await.expect("opens"));
        assert_eq!(
            lines.try_next().await.expect("reads").expect("a line"),
            "three\n"
        );
        let more = format!("{LOG}2026-01-01T00:00:03Z stdout F four\n");
        std::fs::write(&path, more).expect("grows");
        told.send_modify(|book| book.values_mut().for_each(|log| log.is_live = false));
        assert_eq!(
            lines.try_next().await.expect("reads").expect("a line"),
            "four\n"
        );
        assert_eq!(lines.try_next().await.expect("reads"), None);
    }
}
