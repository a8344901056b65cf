//! As many connections as the requests under way need.
//!
//! An API server limits the streams of a connection, and every watch is one for as long as it is open. A request beyond
//! the limit waits inside of the connection, without an end where the streams are watches: a controller of many
//! namespaces has several of them in each.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use http::Version;

/// Requests under way on one connection. kube-apiserver lets a client have 100 (`--http2-max-streams-per-connection`).
const STREAMS: usize = 80;

/// What a new connection knows of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// Nothing yet: requests that find no connection open one each, until the first has negotiated its protocol.
    Unknown,
    /// It speaks HTTP/2: all requests wait for one connection, as a burst of TLS handshakes costs more than the requests.
    SpeaksHttp2,
}

/// Clients with a connection of their own each.
pub(crate) struct Connections<C> {
    connect: Box<dyn Fn(Server) -> C + Send + Sync>,
    speaks_http2: AtomicBool,
    open: Mutex<Vec<Connection<C>>>,
}

struct Connection<C> {
    client: C,
    /// Each request under way has a clone.
    streams: Arc<()>,
}

/// A request under way, until it is dropped.
pub(crate) struct Stream {
    _counted: Arc<()>,
}

impl<C: Clone> Connections<C> {
    /// None yet. `connect` makes a client that shares no connection with others.
    pub(crate) fn new(connect: impl Fn(Server) -> C + Send + Sync + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            speaks_http2: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    /// Notes the protocol of an answer for connections that are opened later.
    pub(crate) fn answered(&self, version: Version) {
        if version == Version::HTTP_2 {
            self.speaks_http2.store(true, Ordering::Relaxed);
        }
    }

    fn server(&self) -> Server {
        if self.speaks_http2.load(Ordering::Relaxed) {
            Server::SpeaksHttp2
        } else {
            Server::Unknown
        }
    }

    /// The first connection with room for another request.
    pub(crate) fn stream(&self) -> (C, Stream) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |it: &Connection<C>| Arc::strong_count(&it.streams) <= STREAMS;
        let at = open.iter().position(has_room).unwrap_or_else(|| {
            open.push(Connection {
                client: (self.connect)(self.server()),
                streams: Arc::default(),
            });
            open.len() - 1
        });
        let Connection { client, streams } = &open[at];
        let stream = Stream {
            _counted: Arc::clone(streams),
        };
        (client.clone(), stream)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_new_connection_knows_what_an_earlier_one_has_negotiated() {
        let connections = Connections::new(|server| server);
        let mut under_way = Vec::new();
        for (version, expected) in [
            (Version::HTTP_11, Server::Unknown),
            (Version::HTTP_11, Server::Unknown),
            (Version::HTTP_2, Server::SpeaksHttp2),
        ] {
            connections.answered(version);
            let (server, stream) = connections.stream();
            assert_eq!(server, expected);
            under_way.push(stream);
            under_way.extend((1..STREAMS).map(|_| connections.stream().1));
        }
    }

    #[test]
    fn a_connection_is_full_until_a_request_has_ended() {
        let n = AtomicUsize::new(0);
        let connections = Connections::new(move |_| n.fetch_add(1, Ordering::Relaxed));
        let mut under_way: Vec<(usize, Stream)> = Vec::new();
        for n in 0..3 * STREAMS {
            under_way.push(connections.stream());
            assert_eq!(under_way[n].0, n / STREAMS);
        }
        under_way.remove(STREAMS + 1);
        let (at, _stream) = connections.stream();
        assert_eq!(at, 1, "the place that is free");
        let (at, _another) = connections.stream();
        assert_eq!(at, 3);
        under_way.clear();
        assert_eq!(connections.stream().0, 0);
    }
}
