//! Port-forwarding as kubectl does it: SPDY/3.1 inside of a WebSocket, and two SPDY streams for each connection, one for its
//! data and one for its error.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    forward::{Target, WAITING},
    relay::{CHUNK, heartbeat},
    spdy::{self, Decoder, Frame, PROTOCOL_ERROR, REFUSED_STREAM},
};
use crate::server::wire::websocket::{CLOSE_NORMAL, Kind, Receiver, Sender};

/// The subprotocol.
pub(super) const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// Streams of one session, the half-open ones included: two for each connection.
const STREAMS_LIMIT: usize = 512;
/// Longest name that a client may give to a connection.
const REQUEST_LIMIT: usize = 64;

/// Serves a session until the client ends it.
pub(super) async fn tunnel(
    mut receiver: Receiver,
    sender: Sender,
    target: Target,
) -> io::Result<()> {
    let ended = CancellationToken::new();
    let mut session = Session {
        sender: sender.clone(),
        target,
        streams: Arc::default(),
        halves: BTreeMap::new(),
        has_replied: false,
        ended: ended.clone(),
        _end: ended.drop_guard(),
    };
    let work = async {
        session.run(&mut receiver).await?;
        sender.close(CLOSE_NORMAL, "").await
    };
    tokio::select! {
        result = work => result,
        error = heartbeat(&sender) => error,
    }
}

/// An open stream, as the reader of frames sees it.
struct Stream {
    /// Where its data go; nowhere once the client has sent all, and for streams of errors.
    to_pod: Option<mpsc::Sender<Bytes>>,
    /// Cancelled when the client gives the stream up.
    reset: CancellationToken,
}

type Streams = Arc<Mutex<BTreeMap<u32, Stream>>>;

/// The streams of a connection that is not complete.
#[derive(Default)]
struct Half {
    error: Option<u32>,
    data: Option<(u32, u16, mpsc::Receiver<Bytes>)>,
}

struct Session {
    sender: Sender,
    target: Target,
    streams: Streams,
    halves: BTreeMap<String, Half>,
    has_replied: bool,
    ended: CancellationToken,
    /// Ends the connections with the session.
    _end: DropGuard,
}

impl Session {
    async fn run(&mut self, receiver: &mut Receiver) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::new();
        while let Some(piece) = receiver.next().await? {
            buffer.extend_from_slice(&piece.bytes);
            while let Some(frame) = decoder.decode(&mut buffer)? {
                match frame {
                    Frame::Open {
                        id,
                        is_last,
                        headers,
                    } => self.open(id, is_last, &headers).await?,
                    Frame::Data { id, is_last, bytes } => self.data(id, is_last, bytes).await,
                    Frame::Reset(id) => self.reset(id),
                    Frame::Ping(number) => self.send(&spdy::pong(number)).await?,
                    Frame::GoAway => return Ok(()),
                    Frame::Other => {}
                }
            }
        }
        Ok(())
    }

    async fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.sender.send(Kind::Binary, &[frame]).await
    }

    async fn open(
        &mut self,
        id: u32,
        is_last: bool,
        headers: &BTreeMap<String, String>,
    ) -> io::Result<()> {
        let header = |name: &str| headers.get(name).map_or("", String::as_str);
        let request = header("requestid");
        let port = header("port").parse::<u16>().ok().filter(|port| *port > 0);
        let (Some(port), true) = (port, request.len() <= REQUEST_LIMIT) else {
            return self.send(&spdy::reset(id, PROTOCOL_ERROR)).await;
        };
        let half = self.halves.get(request);
        let is_free = match header("streamtype") {
            "error" => half.is_none_or(|half| half.error.is_none()),
            "data" => half.is_none_or(|half| half.data.is_none()),
            _ => false,
        };
        let (n_streams, is_known) = {
            let streams = lock(&self.streams);
            (streams.len(), streams.contains_key(&id))
        };
        if !is_free || is_known || id == 0 {
            return self.send(&spdy::reset(id, PROTOCOL_ERROR)).await;
        }
        if n_streams >= STREAMS_LIMIT {
            return self.send(&spdy::reset(id, REFUSED_STREAM)).await;
        }
        let is_first = !std::mem::replace(&mut self.has_replied, true);
        self.send(&spdy::reply(id, is_first)).await?;
        let mut half = self.halves.remove(request).unwrap_or_default();
        let mut to_pod = None;
        if header("streamtype") == "error" {
            half.error = Some(id);
        } else {
            let (to_port, from_client) = mpsc::channel(WAITING);
            to_pod = (!is_last).then_some(to_port);
            half.data = Some((id, port, from_client));
        }
        let reset = self.ended.child_token();
        lock(&self.streams).insert(id, Stream { to_pod, reset });
        match (half.error, half.data) {
            (Some(error), Some((data, port, from_client))) => {
                self.start(error, data, port, from_client);
            }
            (error, data) => drop(self.halves.insert(request.to_owned(), Half { error, data })),
        }
        Ok(())
    }

    fn start(&self, error: u32, data: u32, port: u16, from_client: mpsc::Receiver<Bytes>) {
        let reset = lock(&self.streams).get(&data).map(|it| it.reset.clone());
        let forwarded = Forwarded {
            error,
            data,
            port,
            from_client,
            reset: reset.unwrap_or_default(),
            sender: self.sender.clone(),
            target: self.target.clone(),
        };
        let (streams, ended) = (Arc::clone(&self.streams), self.ended.clone());
        tokio::spawn(async move {
            // A session whose client does not take a frame any more is over: the task ends in the middle of that frame.
            drop(ended.run_until_cancelled(forwarded.run()).await);
            let mut streams = lock(&streams);
            streams.remove(&error);
            streams.remove(&data);
        });
    }

    /// Hands data to the pod; waits while it takes nothing.
    async fn data(&self, id: u32, is_last: bool, bytes: Bytes) {
        let to_pod = lock(&self.streams)
            .get(&id)
            .and_then(|it| Some((it.to_pod.clone()?, it.reset.clone())));
        if let Some((to_pod, reset)) = to_pod
            && !bytes.is_empty()
        {
            // What a connection that has ended does not take is lost with it.
            drop(reset.run_until_cancelled(to_pod.send(bytes)).await);
        }
        if is_last && let Some(stream) = lock(&self.streams).get_mut(&id) {
            stream.to_pod = None;
        }
    }

    fn reset(&mut self, id: u32) {
        if let Some(stream) = lock(&self.streams).remove(&id) {
            stream.reset.cancel();
        }
        // The other half of an incomplete connection stays: its client resets that too.
        self.halves.retain(|_, half| {
            half.error = half.error.filter(|error| *error != id);
            half.data = half.data.take().filter(|(data, _, _)| *data != id);
            half.error.is_some() || half.data.is_some()
        });
    }
}

fn lock(streams: &Streams) -> std::sync::MutexGuard<'_, BTreeMap<u32, Stream>> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection.
struct Forwarded {
    error: u32,
    data: u32,
    port: u16,
    from_client: mpsc::Receiver<Bytes>,
    reset: CancellationToken,
    sender: Sender,
    target: Target,
}

impl Forwarded {
    async fn run(self) -> io::Result<()> {
        let Forwarded {
            error,
            data,
            port,
            from_client,
            reset,
            sender,
            target,
        } = self;
        let why = match reset.run_until_cancelled(target.forward(port)).await {
            None => return Ok(()),
            Some(Err(why)) => why,
            Some(Ok((connection, _place))) => {
                let (read, write) = tokio::io::split(connection);
                let done = reset.child_token();
                let up = done.run_until_cancelled(up(from_client, write));
                let down = async {
                    let result = down(data, read, &sender, &reset).await;
                    done.cancel();
                    result
                };
                let (_, result) = tokio::join!(up, down);
                result?;
                String::new()
            }
        };
        // The client waits for the end of both, in this order.
        for (id, content) in [(error, why.as_bytes()), (data, &[][..])] {
            let head = spdy::data_head(id, true, content.len());
            sender.send(Kind::Binary, &[&head, content]).await?;
        }
        Ok(())
    }
}

async fn up(mut from_client: mpsc::Receiver<Bytes>, mut to_pod: impl AsyncWrite + Unpin) {
    while let Some(bytes) = from_client.recv().await {
        if to_pod.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // What the client has sent is complete; the pod may still answer.
    drop(to_pod.shutdown().await);
    std::future::pending().await
}

/// Only reading is given up at a reset: a frame that was begun must be completed.
async fn down(
    id: u32,
    mut from_pod: impl AsyncRead + Unpin,
    sender: &Sender,
    reset: &CancellationToken,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    while let Some(Ok(n @ 1..)) = reset.run_until_cancelled(from_pod.read(&mut buffer)).await {
        let head = spdy::data_head(id, false, n);
        sender.send(Kind::Binary, &[&head, &buffer[..n]]).await?;
    }
    Ok(())
}
