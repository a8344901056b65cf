//! A node whose processes are functions and whose ports echo.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use longshore_cluster::{
    Limits, PodConnection, PodStreams, Process, StreamError, StreamSet, TerminalSize,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::watch,
};

use crate::{
    harness::{Api, PODS, bound_pod},
    wire::{Served, served_with},
};

/// Counts what it runs; a process is one until it is dropped.
#[derive(Clone, Default)]
pub(super) struct FakeNode {
    pub(super) running: Arc<AtomicUsize>,
}

/// What a port does with a connection.
pub(super) const PORT_ECHO: u16 = 80;
pub(super) const PORT_DEAF: u16 = 81;
pub(super) const PORT_CLOSED: u16 = 82;
pub(super) const PORT_HTTP: u16 = 83;

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FakeNode {
    fn begin(&self) -> Running {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(&self.running))
    }

    /// `cat`: writes its input back and its size to standard error. `flood`: writes without end. `deaf`: reads nothing.
    /// `exit N`: ends.
    fn process(&self, command: &[String], streams: StreamSet) -> Process {
        let running = self.begin();
        let (stdin, mut input) = duplex(1024);
        let (mut output, stdout) = duplex(1024);
        let (mut errors, stderr) = duplex(1024);
        let (sizes, size) = watch::channel(None);
        let words: Vec<String> = command.to_vec();
        let exit = async move {
            let _running = running;
            match words[0].as_str() {
                "cat" => {
                    let copied = tokio::io::copy(&mut input, &mut output).await?;
                    errors.write_all(format!("{copied}").as_bytes()).await?;
                    Ok::<i32, io::Error>(0)
                }
                "flood" => loop {
                    output.write_all(&[b'x'; 512]).await?;
                },
                "size" => {
                    let mut size = size;
                    let TerminalSize { width, height } = size
                        .wait_for(Option::is_some)
                        .await
                        .map_err(io::Error::other)?
                        .unwrap();
                    output
                        .write_all(format!("{width}x{height}").as_bytes())
                        .await?;
                    Ok(0)
                }
                "exit" => Ok(words[1].parse().unwrap()),
                _ => std::future::pending().await,
            }
        };
        Process {
            stdin: streams.stdin.then(|| Box::new(stdin) as _),
            stdout: streams.stdout.then(|| Box::new(stdout) as _),
            stderr: streams.stderr.then(|| Box::new(stderr) as _),
            resize: streams
                .tty
                .then(|| -> Box<dyn Fn(TerminalSize) + Send + Sync> {
                    Box::new(move |size| {
                        let _ = sizes.send(Some(size));
                    })
                }),
            exit: Box::pin(exit),
        }
    }
}

#[async_trait]
impl PodStreams for FakeNode {
    async fn check(&self, _: &Value, container: &str) -> Result<(), StreamError> {
        match container {
            "main" => Ok(()),
            _ => Err(StreamError::BadRequest("it does not run".into())),
        }
    }

    async fn exec(
        &self,
        pod: &Value,
        container: &str,
        command: Vec<String>,
        streams: StreamSet,
    ) -> Result<Process, StreamError> {
        self.check(pod, container).await?;
        Ok(self.process(&command, streams))
    }

    async fn attach(&self, _: &Value, _: &str, streams: StreamSet) -> Result<Process, StreamError> {
        Ok(self.process(&["cat".to_owned()], streams))
    }

    async fn connect(&self, _: &Value, port: u16) -> Result<PodConnection, StreamError> {
        let (near, far) = duplex(1024);
        match port {
            PORT_ECHO => drop(tokio::spawn(echo(far, self.begin()))),
            PORT_DEAF => drop(tokio::spawn(hold(far, self.begin()))),
            PORT_HTTP => drop(tokio::spawn(serve(far, self.begin()))),
            _ => return Err(StreamError::Unavailable("connection refused".into())),
        }
        Ok(Box::new(near))
    }
}

async fn echo(stream: DuplexStream, _running: Running) {
    let (mut read, mut write) = tokio::io::split(stream);
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
}

/// Never reads; what it writes tells when its peer has gone.
async fn hold(mut stream: DuplexStream, _running: Running) {
    while stream.write_u8(b'x').await.is_ok() {}
}

/// Answers one request with its own head, or becomes an echo where it asks for that.
async fn serve(mut stream: DuplexStream, running: Running) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let answer = if head.contains("upgrade: echo") {
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
            .to_owned()
    } else {
        let length = head.len();
        format!("HTTP/1.1 200 OK\r\nlocation: /there\r\ncontent-length: {length}\r\n\r\n{head}")
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    if answer.contains(" 101 ") {
        echo(stream, running).await;
    }
}

/// A served cluster with the pod `a` on this node, behind the service `s`.
pub(super) async fn cluster() -> (Served, FakeNode) {
    let served = served_with(Limits::default());
    let node = FakeNode::default();
    served.cluster.set_pod_streams(Arc::new(node.clone()));
    let api = Api::new(&served.cluster);
    let mut a = bound_pod("a");
    let port = json!([{"containerPort": PORT_HTTP}]);
    a["spec"]["containers"][0]["ports"] = port;
    api.make(PODS, a).await;
    let address = json!({"status": {"podIP": "127.1.1.1"}});
    let (code, _) = api
        .patch("merge", &format!("{PODS}/a/status"), address)
        .await;
    assert_eq!(code, 200);
    let service = json!({
        "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "web", "port": 8000, "targetPort": PORT_HTTP}]},
    });
    api.make("/api/v1/namespaces/default/services", service)
        .await;
    (served, node)
}

/// Waits until the node runs nothing for clients any more.
pub(super) async fn until_idle(node: &FakeNode) {
    let idle = async {
        while node.running.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let limit = std::time::Duration::from_secs(20);
    let idle = tokio::time::timeout(limit, idle).await;
    let n_running = node.running.load(Ordering::SeqCst);
    assert!(idle.is_ok(), "{n_running} still run");
}
