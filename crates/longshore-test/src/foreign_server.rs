//! A foreign system as an HTTP server on loopback: HTTP/1.1 and HTTP/2, without TLS.
//!
//! The server records each request with its time, and with the process that sent it where the test has named the processes
//! ([`ForeignServer::knows`]). A request is recorded when its head has come: a client that breaks off while it sends the
//! body has sent a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request,
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

/// A request that a [`ForeignServer`] has received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its place among all requests of the server, counted from 0.
    pub number: usize,
    /// When its head had come.
    pub at: Instant,
    /// The process that sent it, if [`ForeignServer::knows`] has named that process.
    pub sender: Option<u32>,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; empty until all of the body has come.
    pub body: Bytes,
}

/// An answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers. `content-length` is added where there are no trailers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What follows the body, as the status of a gRPC call.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// An answer with a body of this content type.
    pub fn new(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Self {
            status,
            headers,
            body: body.into(),
            trailers: None,
        }
    }
}

/// What a [`ForeignServer`] does with a request.
pub enum Conduct {
    /// Sends this answer at once.
    Answers(Answer),
    /// Sends this answer when it is there.
    Later(BoxFuture<'static, Answer>),
    /// Sends the head of this answer at once, and then one byte of the body at a time.
    Drips(Answer, Duration),
    /// Breaks the connection, or the stream of HTTP/2, without an answer.
    Breaks,
}

impl fmt::Debug for Conduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers(answer) => f.debug_tuple("Answers").field(answer).finish(),
            Self::Later(_) => f.write_str("Later"),
            Self::Drips(answer, pause) => {
                f.debug_tuple("Drips").field(answer).field(pause).finish()
            }
            Self::Breaks => f.write_str("Breaks"),
        }
    }
}

impl Conduct {
    /// Sends nothing until the client hangs up.
    pub fn hangs() -> Self {
        Self::Later(Box::pin(pending()))
    }

    /// Sends this answer after a time.
    pub fn late(answer: Answer, by: Duration) -> Self {
        Self::Later(Box::pin(async move {
            tokio::time::sleep(by).await;
            answer
        }))
    }
}

/// A server on a port of this machine. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct ForeignServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    conduct: Box<dyn Fn(&Received) -> Conduct + Send + Sync>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    received: Vec<Received>,
    /// Requests without an answer whose client still waits, by number.
    open: BTreeSet<usize>,
    processes: Vec<u32>,
    /// Requests that a connection of HTTP/2 may have under way.
    max_streams: Option<u32>,
    /// Open connections by the process that made them.
    connections: BTreeMap<u32, usize>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&*self.record()).finish()
    }
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        let record = self.record.lock();
        record.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForeignServer {
    /// Starts a server that does with each request what `conduct` says.
    ///
    /// # Errors
    /// The system has no free port.
    pub async fn start(
        conduct: impl Fn(&Received) -> Conduct + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            conduct: Box::new(conduct),
            record: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, address, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// From now on a connection of HTTP/2 has at most so many requests under way: a client keeps the others to itself.
    pub fn limit_streams(&self, n: u32) {
        self.shared.record().max_streams = Some(n);
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Names a process whose connections are to be known from now on.
    pub fn knows(&self, process: u32) {
        self.shared.record().processes.push(process);
    }

    /// All requests so far, in the order of their heads.
    pub fn received(&self) -> Vec<Received> {
        self.shared.record().received.clone()
    }

    /// How many requests there were so far.
    pub fn n_received(&self) -> usize {
        self.shared.record().received.len()
    }

    /// The numbers of the requests without an answer whose client still waits.
    pub fn open(&self) -> BTreeSet<usize> {
        self.shared.record().open.clone()
    }

    /// How many connections of a process are open. Where there are none, the server has received all that the process
    /// has sent.
    pub fn n_connections(&self, process: u32) -> usize {
        let record = self.shared.record();
        record.connections.get(&process).copied().unwrap_or(0)
    }

    /// Stops the server. Once this returns, no client can connect.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, client)) = listener.accept() => {
                let processes = shared.record().processes.clone();
                let sender = owner(&processes, client, address);
                connections.spawn(serve(stream, sender, Arc::clone(&shared)));
            }
            // A connection may break at any time.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, sender: Option<u32>, shared: Arc<Shared>) {
    let _connection = Connection::open(&shared, sender);
    let max_streams = shared.record().max_streams;
    let service = service_fn(move |request| exchange(request, sender, Arc::clone(&shared)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if let Some(n) = max_streams {
        builder.http2().max_concurrent_streams(n);
    }
    // The client may be killed at any time, so an error of the connection means nothing.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

async fn exchange(
    request: Request<Incoming>,
    sender: Option<u32>,
    shared: Arc<Shared>,
) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let open = Open::note(&shared, &head, sender);
    let body = body.collect().await.map_err(io::Error::other)?;
    let received = open.complete(body.to_bytes());
    let (answer, pause) = match (shared.conduct)(&received) {
        Conduct::Answers(answer) => (answer, None),
        Conduct::Later(answer) => (answer.await, None),
        Conduct::Drips(answer, pause) => (answer, Some(pause)),
        Conduct::Breaks => return Err(io::Error::other("the foreign system breaks off")),
    };
    Ok(response(answer, pause))
}

fn response(answer: Answer, pause: Option<Duration>) -> Response<Body> {
    let Answer {
        status,
        mut headers,
        body,
        trailers,
    } = answer;
    if trailers.is_none() {
        headers.insert(CONTENT_LENGTH, body.len().into());
    }
    let size = pause.map_or(body.len(), |_| 1).max(1);
    let n_pieces = body.len().div_ceil(size);
    let piece = move |n: usize| body.slice(n * size..body.len().min((n + 1) * size));
    let pieces = stream::iter((0..n_pieces).map(piece)).then(move |piece| async move {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, io::Error>(Frame::data(piece))
    });
    let trailers = stream::iter(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
    let body = StreamBody::new(pieces.chain(trailers)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A request without an answer, for as long as its client waits.
struct Open {
    shared: Arc<Shared>,
    number: usize,
}

impl Open {
    fn note(shared: &Arc<Shared>, head: &request::Parts, sender: Option<u32>) -> Self {
        let mut record = shared.record();
        let number = record.received.len();
        let path = head.uri.path_and_query().map(ToString::to_string);
        record.received.push(Received {
            number,
            at: Instant::now(),
            sender,
            method: head.method.clone(),
            path: path.unwrap_or_default(),
            headers: head.headers.clone(),
            body: Bytes::new(),
        });
        record.open.insert(number);
        let shared = Arc::clone(shared);
        Self { shared, number }
    }

    /// All of the body has come.
    fn complete(&self, body: Bytes) -> Received {
        let mut record = self.shared.record();
        let received = &mut record.received[self.number];
        received.body = body;
        received.clone()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.record().open.remove(&self.number);
    }
}

/// An open connection of a known process.
struct Connection {
    shared: Arc<Shared>,
    sender: Option<u32>,
}

impl Connection {
    fn open(shared: &Arc<Shared>, sender: Option<u32>) -> Self {
        if let Some(process) = sender {
            *shared.record().connections.entry(process).or_default() += 1;
        }
        let shared = Arc::clone(shared);
        Self { shared, sender }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(process) = self.sender
            && let Some(n) = self.shared.record().connections.get_mut(&process)
        {
            *n -= 1;
        }
    }
}

/// Which of these processes has the client's end of a connection, by the kernel's tables.
fn owner(processes: &[u32], client: SocketAddr, server: SocketAddr) -> Option<u32> {
    if processes.is_empty() {
        return None;
    }
    let (SocketAddr::V4(client), SocketAddr::V4(server)) = (client, server) else {
        return None;
    };
    let socket = format!("socket:[{}]", inode(client, server)?);
    let has_socket = |process: &u32| {
        let files = fs::read_dir(format!("/proc/{process}/fd"));
        let files = files.into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.as_os_str() == socket.as_str())
    };
    processes.iter().copied().find(has_socket)
}

/// The inode of the socket at `local` that is connected to `remote`.
fn inode(local: SocketAddrV4, remote: SocketAddrV4) -> Option<String> {
    let shown = |address: SocketAddrV4| {
        let ip = u32::from_ne_bytes(address.ip().octets());
        format!("{ip:08X}:{:04X}", address.port())
    };
    let (local, remote) = (shown(local), shown(remote));
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1..3)? == [local.as_str(), remote.as_str()];
        is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Sends a request over HTTP/1.1, and reads to the end of the connection.
    async fn ask(server: &ForeignServer) -> String {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request =
            b"POST /a?b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_request_is_recorded_with_the_process_that_sent_it() {
        let server = ForeignServer::start(|_| {
            Conduct::Answers(Answer::new(StatusCode::OK, "text/plain", "yes"))
        });
        let server = server.await.unwrap();
        ask(&server).await;
        server.knows(std::process::id());
        let answer = ask(&server).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nyes"), "{answer}");
        let received = server.received();
        let senders: Vec<_> = received.iter().map(|request| request.sender).collect();
        assert_eq!(senders, [None, Some(std::process::id())]);
        let Received { path, body, .. } = &received[1];
        assert_eq!((path.as_str(), &body[..]), ("/a?b", &b"hi"[..]));
        while server.n_connections(std::process::id()) > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_is_open_until_its_client_hangs_up() {
        let server = ForeignServer::start(|_| Conduct::hangs()).await.unwrap();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        while server.open() != BTreeSet::from([0]) {
            tokio::task::yield_now().await;
        }
        drop(stream);
        while !server.open().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.n_received(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_drips_or_breaks_off() {
        let server = ForeignServer::start(|received| match received.number {
            0 => Conduct::Drips(
                Answer::new(StatusCode::OK, "text/plain", "slow"),
                Duration::from_secs(1),
            ),
            _ => Conduct::Breaks,
        });
        let server = server.await.unwrap();
        let began = Instant::now();
        assert!(ask(&server).await.ends_with("slow"));
        assert!(began.elapsed() >= Duration::from_secs(4));
        assert_eq!(ask(&server).await, "");
    }
}
