//! The socket to a keeper or a server: requests with descriptors there, reports back.

use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream as StdStream,
    },
    time::Duration,
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::Value as Json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::end::{Exit, Exited, NotStarted, Step, Usage};

/// Our end of the socket.
#[derive(Debug)]
pub(crate) struct Link {
    reports: Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
}

/// One line from the other side.
#[derive(Debug)]
pub(crate) enum Report {
    /// The server has imported everything.
    Ready,
    /// The server ends, because it cannot serve.
    NoServer {
        why: String,
        text: String,
    },
    Started {
        pid: i32,
        keeper: i32,
    },
    Ended(Exited),
    /// The server has more than one thread and must not fork.
    Threads(u64),
    /// Our program failed itself.
    Broken(String),
}

impl Link {
    /// Both ends: ours, and the one that blocks, for the other side.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let (reader, requests) = UnixStream::from_std(ours)?.into_split();
        let link = Self {
            reports: BufReader::new(reader).lines(),
            requests,
        };
        Ok((link, theirs.into()))
    }

    /// Sends a request with descriptors.
    pub(crate) async fn send(&mut self, request: &Json, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = request.to_string().into_bytes();
        let length = u32::try_from(body.len())
            .map_err(io::Error::other)?
            .to_be_bytes();
        let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let with = [ControlMessage::ScmRights(&fds)];
        let with = if fds.is_empty() { &[] } else { &with[..] };
        let stream = self.requests.as_ref();
        stream
            .async_io(Interest::WRITABLE, || {
                let bytes = [IoSlice::new(&length)];
                let flags = MsgFlags::MSG_NOSIGNAL;
                Ok(sendmsg::<()>(
                    stream.as_raw_fd(),
                    &bytes,
                    with,
                    flags,
                    None,
                )?)
            })
            .await?;
        self.requests.write_all(&body).await
    }

    /// Sends a command of one byte. There is always room for it, or nobody to read it.
    pub(crate) fn command(&self, byte: &[u8; 1]) {
        let _ = self.requests.try_write(byte);
    }

    /// The next report; `None` once the other side is closed.
    ///
    /// *Cancellation*: safe.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok()??;
        Some(Report::parse(&line))
    }
}

impl Report {
    fn parse(line: &str) -> Self {
        let Ok(json) = serde_json::from_str::<Json>(line) else {
            return Self::Broken(format!("unexpected report {line}"));
        };
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        if let Some(pid) = number(&json["started"]) {
            let keeper = number(&json["keeper"]).unwrap_or_default();
            Self::Started { pid, keeper }
        } else if json["ended"].is_object() {
            Self::Ended(parse_end(&json))
        } else if let Some(n) = json["threads"].as_u64() {
            Self::Threads(n)
        } else if json["ready"].is_i64() || json["ready"].is_u64() {
            Self::Ready
        } else if json["broken"].is_string() {
            Self::Broken(text("broken"))
        } else if json["refused"].is_string() {
            let why = text("refused");
            Self::NoServer {
                why,
                text: text("text"),
            }
        } else {
            Self::Broken(format!("unexpected report {line}"))
        }
    }
}

fn number(json: &Json) -> Option<i32> {
    json.as_i64().and_then(|number| i32::try_from(number).ok())
}

fn parse_end(json: &Json) -> Exited {
    let refused = &json["refused"];
    let exit = if let Some(step) = refused["step"].as_str() {
        let step = match step {
            "chdir" => Step::Directory,
            "exec" => Step::Execute,
            _ => Step::SetUp,
        };
        let source = match number(&refused["errno"]) {
            Some(0) | None => {
                io::Error::other(refused["text"].as_str().unwrap_or("unknown").to_owned())
            }
            Some(errno) => io::Error::from_raw_os_error(errno),
        };
        Exit::Refused(NotStarted::Refused { step, source })
    } else if let Some(signal) = number(&json["ended"]["signal"]) {
        Exit::Signal(signal)
    } else {
        Exit::Code(number(&json["ended"]["code"]).unwrap_or(-1))
    };
    let count = |key: &str| json[key].as_u64().unwrap_or_default();
    Exited {
        exit,
        usage: Usage {
            cpu: Duration::from_micros(count("cpu_us")),
            max_rss: count("max_rss_kib").saturating_mul(1024),
        },
        n_left: count("left"),
    }
}
