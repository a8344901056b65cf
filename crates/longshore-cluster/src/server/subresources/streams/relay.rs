//! Carries the streams of a process over a WebSocket.

use std::{io, time::Duration};

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::channels::{Demux, ERROR, Input, Protocol, RESIZE, STDERR, STDIN, STDOUT};
use crate::server::{
    streams::{Process, TerminalSize},
    wire::websocket::{CLOSE_NORMAL, Receiver, Sender},
};

/// What is read of a process at once.
pub(super) const CHUNK: usize = 16 * 1024;
/// How long the output of a process that has ended may be silent before it counts as ended too: its children may hold it
/// open for ever.
const SILENCE: Duration = Duration::from_secs(2);
/// Time between pings: they find a client that has gone while we do not read what it sends.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long a client may take to read the rest and to close its end.
const FAREWELL: Duration = Duration::from_secs(60);
/// Longest message with the size of a terminal.
const SIZE_LIMIT: usize = 1024;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;
type Resize = Box<dyn Fn(TerminalSize) + Send + Sync>;

/// Relays until the process has ended and the client knows it, or until the client has gone.
pub(super) async fn relay(
    mut receiver: Receiver,
    sender: Sender,
    protocol: Protocol,
    process: Process,
) -> io::Result<()> {
    let Process {
        stdin,
        stdout,
        stderr,
        resize,
        exit,
    } = process;
    // Tells the client that the process is there.
    let first = match (&stdout, &stderr) {
        (Some(_), _) => STDOUT,
        (None, Some(_)) => STDERR,
        (None, None) => ERROR,
    };
    protocol.send(&sender, first, b"").await?;
    let ended = CancellationToken::new();
    let output = async {
        let exit = async {
            let end = exit.await;
            ended.cancel();
            Ok::<_, io::Error>(end)
        };
        let out = copy(STDOUT, stdout, &sender, protocol, &ended);
        let err = copy(STDERR, stderr, &sender, protocol, &ended);
        let (end, (), ()) = tokio::try_join!(exit, out, err)?;
        protocol.send_end(&sender, &end).await?;
        part(&sender).await
    };
    tokio::select! {
        result = output => result,
        result = input(&mut receiver, protocol, stdin, resize) => result,
        error = heartbeat(&sender) => error,
    }
}

/// Says goodbye and waits, so that the client can read what is still under way.
pub(super) async fn part(sender: &Sender) -> io::Result<()> {
    sender.close(CLOSE_NORMAL, "").await?;
    tokio::time::sleep(FAREWELL).await;
    Ok(())
}

/// Ends when the client does not take a ping.
pub(super) async fn heartbeat(sender: &Sender) -> io::Result<()> {
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        sender.ping().await?;
    }
}

async fn copy(
    channel: u8,
    source: Option<Reader>,
    sender: &Sender,
    protocol: Protocol,
    ended: &CancellationToken,
) -> io::Result<()> {
    let Some(mut source) = source else {
        return Ok(());
    };
    let mut buffer = vec![0; CHUNK];
    loop {
        let silence = async {
            ended.cancelled().await;
            tokio::time::sleep(SILENCE).await;
        };
        let read = tokio::select! {
            biased;
            read = source.read(&mut buffer) => read,
            () = silence => Ok(0),
        };
        match read {
            // A terminal whose last process has gone fails instead of ending.
            Ok(0) | Err(_) => return Ok(()),
            Ok(n) => protocol.send(sender, channel, &buffer[..n]).await?,
        }
    }
}

/// Ends when the client has gone.
async fn input(
    receiver: &mut Receiver,
    protocol: Protocol,
    mut stdin: Option<Writer>,
    resize: Option<Resize>,
) -> io::Result<()> {
    let mut demux = Demux::new(protocol);
    let mut size = Vec::new();
    while let Some(piece) = receiver.next().await? {
        match demux.take(piece)? {
            Some(Input::Data {
                channel: STDIN,
                bytes,
                is_last: _,
            }) => {
                let open = stdin.as_mut();
                let is_refused = match open {
                    Some(open) => write(open, &bytes).await.is_err(),
                    None => false,
                };
                if is_refused {
                    stdin = None;
                }
            }
            Some(Input::Close(STDIN)) => {
                if let Some(mut open) = stdin.take() {
                    drop(open.shutdown().await);
                }
            }
            Some(Input::Data {
                channel: RESIZE,
                bytes,
                is_last,
            }) => {
                if size.len() + bytes.len() <= SIZE_LIMIT {
                    size.extend_from_slice(&bytes);
                }
                if is_last {
                    if let (Some(resize), Some(size)) = (&resize, parse_size(&size)) {
                        resize(size);
                    }
                    size.clear();
                }
            }
            Some(Input::Data { .. } | Input::Close(_)) | None => {}
        }
    }
    Ok(())
}

async fn write(to: &mut Writer, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

fn parse_size(text: &[u8]) -> Option<TerminalSize> {
    #[derive(Deserialize)]
    struct Size {
        #[serde(rename = "Width", alias = "width")]
        width: u16,
        #[serde(rename = "Height", alias = "height")]
        height: u16,
    }
    let Size { width, height } = serde_json::from_slice(text).ok()?;
    (width > 0 && height > 0).then_some(TerminalSize { width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_terminals_are_read_and_others_ignored() {
        for (text, expected) in [
            (r#"{"Width":80,"Height":24}"#, Some((80, 24))),
            ("{\"width\":1,\"height\":2}\n", Some((1, 2))),
            (r#"{"Width":0,"Height":24}"#, None),
            (r#"{"Width":70000,"Height":24}"#, None),
            ("[]", None),
            ("", None),
        ] {
            let found = parse_size(text.as_bytes()).map(|it| (it.width, it.height));
            assert_eq!(found, expected, "{text}");
        }
    }
}
