//! The way into pods: commands beside a program, the program itself, and its ports.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, unix::pipe},
    sync::mpsc,
};
use tokio_util::io::StreamReader;

use crate::{
    log_book::{AttemptWatch, LogBook},
    logs::{self, Beginning},
    network::PodAddress,
    shim::{
        STDIN_FILE,
        protocol::{AttemptId, Command},
    },
};

/// How long a port of a pod may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Which streams of a process a client wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamSet {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; of no meaning with a terminal.
    pub stderr: bool,
    /// A terminal instead of pipes.
    pub tty: bool,
}

/// Takes the columns and rows of a terminal.
pub type Resize = Box<dyn Fn(u16, u16) + Send + Sync>;

/// A process that somebody talks to. Dropping it ends a command, and lets go of a container.
pub struct Process {
    /// Standard input; dropping it is its end.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Tells a terminal its size.
    pub resize: Option<Resize>,
    /// Waits for the end: the exit code of a command; 0 for a container, whose exit code is in the status of its pod.
    pub exit: BoxFuture<'static, io::Result<i32>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// How a container was declared: what a client that attaches finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Declared {
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`: the input ends with the first client.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The pod is not on this node (any more).
    #[error("pod {namespace}/{pod} does not run on this node")]
    NoPod {
        /// The requested namespace.
        namespace: String,
        /// The requested pod.
        pod: String,
    },
    /// The container does not run now.
    #[error("container {container} of pod {pod} does not run: {why}")]
    NotRunning {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// What it does instead.
        why: String,
    },
    /// The process cannot be started or joined.
    #[error("cannot {what} container {container} of pod {pod}: {source}")]
    Start {
        /// `run a command in`, `attach to`.
        what: &'static str,
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Nothing accepts connections at the port.
    #[error("cannot connect to port {port} of pod {pod}: {source}")]
    Connect {
        /// The pod.
        pod: String,
        /// The port.
        port: u16,
        /// The system's reason.
        source: io::Error,
    },
}

/// The attempt of a container that runs.
pub(crate) fn running(
    book: &LogBook,
    pod: &str,
    container: &str,
) -> Result<(AttemptId, i32), StreamError> {
    let not_running = |why: &str| StreamError::NotRunning {
        pod: pod.to_owned(),
        container: container.to_owned(),
        why: why.to_owned(),
    };
    let log = book
        .get(container)
        .ok_or_else(|| not_running("the pod has no such container"))?;
    match (log.last, log.init) {
        (Some(attempt), Some(init)) => {
            let container = container.to_owned();
            Ok((AttemptId { container, attempt }, init))
        }
        (None, _) => Err(not_running(&format!("it waits ({})", log.waiting))),
        (Some(_), None) if log.is_live => Err(not_running("it is starting")),
        (Some(_), None) => Err(not_running("it has ended")),
    }
}

/// A running program, as something to join.
pub(crate) struct Joined {
    pub(crate) id: AttemptId,
    /// The attempt's directory.
    pub(crate) directory: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) watch: AttemptWatch,
    /// The pod's actor, which commands the shim.
    pub(crate) commands: mpsc::Sender<Command>,
}

impl Joined {
    /// The streams of the program. What it writes is read from its log, so no client can stop it by not reading.
    pub(crate) async fn attach(
        self,
        declared: Declared,
        streams: StreamSet,
    ) -> io::Result<Process> {
        // Who starts a program in order to talk to it wants its first words too.
        let from = if declared.stdin_once {
            Beginning::Start
        } else {
            Beginning::Now
        };
        let stdin = if streams.stdin && declared.stdin {
            Some(self.open_input(declared)?)
        } else {
            None
        };
        let stderr = if streams.stderr && !declared.tty {
            Some(self.output("stderr", from).await?)
        } else {
            None
        };
        let stdout = if streams.stdout {
            Some(self.output("stdout", from).await?)
        } else {
            None
        };
        let (id, commands) = (self.id, self.commands);
        let resize = declared.tty.then(|| -> Resize {
            Box::new(move |width, height| {
                let id = id.clone();
                // Sizes come at the pace of a hand; one that finds no room is overtaken by the next.
                drop(commands.try_send(Command::Resize { id, width, height }));
            })
        });
        Ok(Process {
            stdin,
            stdout,
            stderr,
            resize,
            exit: Box::pin(ended(self.watch)),
        })
    }

    fn open_input(&self, declared: Declared) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
        let path = self.directory.join(STDIN_FILE);
        let pipe = pipe::OpenOptions::new().open_sender(path)?;
        let last = declared.stdin_once.then(|| LastInput {
            id: self.id.clone(),
            commands: self.commands.clone(),
        });
        Ok(Box::new(ClientInput { pipe, _last: last }))
    }

    async fn output(
        &self,
        stream: &'static str,
        from: Beginning,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        let pieces = logs::follow(&self.log, stream, from, self.watch.clone()).await?;
        Ok(Box::new(StreamReader::new(Box::pin(pieces))))
    }
}

async fn ended(mut watch: AttemptWatch) -> io::Result<i32> {
    // A node that stops lets its streams end too.
    while !watch.has_ended() && watch.book.changed().await.is_ok() {}
    Ok(0)
}

/// The writing end of a container's input.
struct ClientInput {
    pipe: pipe::Sender,
    /// After the pipe: it is closed before the shim hears of it.
    _last: Option<LastInput>,
}

impl AsyncWrite for ClientInput {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// Ends the input of a program when the only client that it was for lets go of it.
struct LastInput {
    id: AttemptId,
    commands: mpsc::Sender<Command>,
}

impl Drop for LastInput {
    fn drop(&mut self) {
        let (id, commands) = (self.id.clone(), self.commands.clone());
        // Without a runtime the node has ended, and the next one finds the input open.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                drop(commands.send(Command::CloseInput { id }).await);
            });
        }
    }
}

/// Connects to a port as a process of the pod would: at the pod's address, else at that of the loopback interface, which is
/// the host's for a pod that shares its network.
pub(crate) async fn connect_to_pod(
    address: &PodAddress,
    uid: &str,
    port: u16,
) -> io::Result<TcpStream> {
    let mut refused = None;
    for is_loopback in [false, true] {
        let connect = async {
            if is_loopback {
                address.connect_within(uid, port).await
            } else {
                address.connect(None, port).await
            }
        };
        match tokio::time::timeout(CONNECT_LIMIT, connect).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => refused = Some(error),
            Err(_) => return Err(ErrorKind::TimedOut.into()),
        }
    }
    Err(refused.unwrap_or_else(|| ErrorKind::ConnectionRefused.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_book::ContainerLog;

    #[test]
    fn only_a_running_container_lets_clients_in() {
        let log = |last, init, is_live| ContainerLog {
            last,
            init,
            is_live,
            waiting: "ContainerCreating".to_owned(),
        };
        for (log, expected) in [
            (log(Some(2), Some(77), true), Ok(2)),
            (log(None, None, true), Err("ContainerCreating")),
            (log(Some(0), None, true), Err("starting")),
            (log(Some(0), None, false), Err("ended")),
        ] {
            let book = LogBook::from([("main".to_owned(), log)]);
            match (running(&book, "a", "main"), expected) {
                (Ok((id, init)), Ok(attempt)) => assert_eq!((id.attempt, init), (attempt, 77)),
                (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{error}"),
                (found, expected) => panic!("expected {expected:?}, found {found:?}"),
            }
            assert!(running(&book, "a", "other").is_err());
        }
    }
}
