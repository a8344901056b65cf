//! Clients: so many requests per second, each to a pod that an EndpointSlice has as ready.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use longshore_core::Seen;
use longshore_kit::{Cache, ListWatch};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout},
};

use super::server::PORT;

/// Longest that a client waits for an answer. Long: a busy machine is no failure of what is tested.
const PATIENCE: Duration = Duration::from_secs(20);

/// Half of what the Service asks for: the other half is for the clients that follow slices.
const LATE: Duration = Duration::from_secs(1);

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) n_answered: u64,
    pub(super) n_failed: u64,
    /// Those that failed after they had been under way for so long that a drain cannot wait for them: the machine was too
    /// busy. They count as nothing else.
    pub(super) n_late: u64,
    /// The longest of those that were answered.
    longest: Duration,
    /// How often for which reason.
    reasons: BTreeMap<String, u64>,
}

impl Outcome {
    pub(super) fn to_value(&self) -> Value {
        json!({
            "answered": self.n_answered, "failed": self.n_failed, "late": self.n_late,
            "longest_ms": u64::try_from(self.longest.as_millis()).unwrap(), "reasons": self.reasons,
        })
    }
}

impl Outcome {
    fn take(&mut self, answer: io::Result<()>, took: Duration) {
        let Err(error) = answer else {
            self.n_answered += 1;
            self.longest = self.longest.max(took);
            return;
        };
        let tenths = took.as_millis() / 100;
        let reason = format!("{error} after {}.{} s", tenths / 10, tenths % 10);
        *self.reasons.entry(reason).or_default() += 1;
        if took < LATE {
            self.n_failed += 1;
        } else {
            self.n_late += 1;
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_failed, n_late) = (self.n_failed, self.n_late);
        let n = n_failed + n_late + self.n_answered;
        let longest = self.longest.as_millis();
        write!(
            f,
            "{n_failed} of {n} requests failed and {n_late} were late {:?}, ",
            self.reasons
        )?;
        write!(f, "the longest took {longest} ms")
    }
}

/// Clients that send requests until [`Load`] stops them.
pub(super) struct Load {
    asking: tokio::task::JoinHandle<JoinSet<()>>,
    following: AbortHandle,
    stop: watch::Sender<bool>,
    outcome: Arc<Mutex<Outcome>>,
}

impl Load {
    /// Begins to ask the Service of a namespace.
    pub(super) async fn start(client: &Client, namespace: &str, per_second: u64) -> Self {
        let (ready, mut pods) = watch::channel(Vec::new());
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let following = tokio::spawn(follow(slices, ready)).abort_handle();
        pods.wait_for(|pods| !pods.is_empty()).await.unwrap();
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let (stop, stopped) = watch::channel(false);
        let asking = tokio::spawn(ask_on(pods, per_second, stopped, Arc::clone(&outcome)));
        Self {
            asking,
            following,
            stop,
            outcome,
        }
    }

    /// Stops, and waits for the answers that are under way.
    pub(super) async fn end(self) -> Outcome {
        self.stop.send_replace(true);
        self.asking.await.unwrap().join_all().await;
        self.following.abort();
        self.outcome.lock().unwrap().clone()
    }
}

/// Publishes the addresses of the ready pods, as soon as slices change.
async fn follow(slices: Api<EndpointSlice>, ready: watch::Sender<Vec<SocketAddr>>) {
    let cache = Cache::new();
    let updates = ListWatch::new(slices).into_cache(Arc::clone(&cache));
    let mut updates = std::pin::pin!(updates);
    while updates.next().await.is_some() {
        let Seen::Present(slices) = cache.all() else {
            continue;
        };
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let routed = endpoints.filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|conditions| conditions.ready) != Some(false)
        });
        let addresses = routed.filter_map(|endpoint| {
            let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
            Some(SocketAddr::new(address, PORT))
        });
        ready.send_replace(addresses.collect());
    }
}

async fn ask_on(
    pods: watch::Receiver<Vec<SocketAddr>>,
    per_second: u64,
    stopped: watch::Receiver<bool>,
    outcome: Arc<Mutex<Outcome>>,
) -> JoinSet<()> {
    let mut ticks =
        tokio::time::interval(Duration::from_secs(1) / u32::try_from(per_second).unwrap());
    let mut asked = JoinSet::new();
    for n in 0_usize.. {
        ticks.tick().await;
        if *stopped.borrow() {
            break;
        }
        let pod = {
            let pods = pods.borrow();
            (!pods.is_empty()).then(|| pods[n % pods.len()])
        };
        let outcome = Arc::clone(&outcome);
        asked.spawn(async move {
            let asked_at = Instant::now();
            let answer = match pod {
                Some(pod) => ask(pod).await,
                None => Err(io::Error::other("no pod is ready")),
            };
            outcome.lock().unwrap().take(answer, asked_at.elapsed());
        });
        while asked.try_join_next().is_some() {}
    }
    asked
}

/// One request, and its whole answer.
pub(super) async fn ask(pod: SocketAddr) -> io::Result<()> {
    let answered = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(pod).await?;
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        if answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"ok") {
            Ok(())
        } else {
            Err(io::Error::other("the answer was cut"))
        }
    });
    answered.await.map_err(|_| io::Error::other("no answer"))?
}
