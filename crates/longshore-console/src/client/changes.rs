//! Follows a run, over disconnections and restarts of the service.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Method, header};
use longshore_k8s::Backoff;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Client, ClientError, sse, unreachable};
use crate::{names::RunName, objects::Change};

/// The service says something this often, or it is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// The wait between two attempts to connect.
pub(super) const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    max: Duration::from_secs(5),
};
/// Attempts in a row before the follower stops: some minutes, enough for a restart.
pub(super) const MAX_ATTEMPTS: u32 = 30;

/// What a follower sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// The stream delivers every change from here on. Comes first; a client that reads the state now misses nothing.
    Ready,
    /// A change.
    Change(Box<Change>),
    /// Changes were missed: read the state anew.
    Reset,
    /// The service does not answer; the follower connects again.
    Lost,
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;
type Connecting = Pin<Box<dyn Future<Output = Result<Chunks, ClientError>> + Send>>;

/// The connection. It is kept where a call of [`Changes::next`] may be dropped: a follower that draws meanwhile drops each
/// one long before a service is back.
enum Link {
    /// There is none.
    Down,
    /// It is being made, after a wait.
    Connecting(Connecting),
    /// The service answers.
    Up {
        chunks: Chunks,
        decoder: sse::Decoder,
        /// The service says something until then, or it is gone.
        deadline: Instant,
    },
}

impl Link {
    fn up(chunks: Chunks) -> Self {
        Self::Up {
            chunks,
            decoder: sse::Decoder::default(),
            deadline: Instant::now() + SILENCE_TIMEOUT,
        }
    }
}

/// The changes of one run.
pub struct Changes {
    client: Client,
    run: RunName,
    /// The id of the last event, from which a new connection resumes.
    reached: Option<String>,
    link: Link,
    waiting: VecDeque<sse::Event>,
    n_failures: u32,
    is_ready: bool,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes")
            .field("run", &self.run)
            .field("reached", &self.reached)
            .finish_non_exhaustive()
    }
}

impl Changes {
    pub(super) fn new(client: Client, run: RunName) -> Self {
        Self {
            client,
            run,
            reached: None,
            link: Link::Down,
            waiting: VecDeque::new(),
            n_failures: 0,
            is_ready: false,
        }
    }

    /// The next thing to know.
    ///
    /// # Errors
    /// The service refuses, or did not come back for some minutes.
    /// *Cancellation*: safe; nothing that was received is lost.
    pub async fn next(&mut self) -> Result<Followed, ClientError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                if let Some(followed) = self.take(event)? {
                    return Ok(followed);
                }
                continue;
            }
            match self.receive().await {
                Ok(()) => {}
                Err(error) if error.is_temporary() && self.n_failures < MAX_ATTEMPTS => {
                    self.n_failures += 1;
                    if self.n_failures == 1 && self.is_ready {
                        return Ok(Followed::Lost);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, event: sse::Event) -> Result<Option<Followed>, ClientError> {
        let followed = match event.name.as_str() {
            "ready" if self.is_ready => None,
            "ready" => {
                self.is_ready = true;
                Some(Followed::Ready)
            }
            "reset" => Some(Followed::Reset),
            "change" => {
                let change = serde_json::from_str(&event.data);
                let change = change.map_err(|why| self.client.foreign(why))?;
                Some(Followed::Change(Box::new(change)))
            }
            // An event of a newer service.
            _ => None,
        };
        if event.id.is_some() {
            self.reached = event.id;
        }
        Ok(followed)
    }

    /// Gets some more events, or a step nearer to them. After an error the connection is gone, and the next call makes a
    /// new one.
    ///
    /// *Cancellation*: safe, also while it connects.
    async fn receive(&mut self) -> Result<(), ClientError> {
        let received = match &mut self.link {
            Link::Down => {
                self.link = Link::Connecting(self.connect());
                return Ok(());
            }
            Link::Connecting(connecting) => {
                let connected = connecting.await;
                match connected {
                    Ok(chunks) => {
                        self.link = Link::up(chunks);
                        return Ok(());
                    }
                    Err(error) => Err(error),
                }
            }
            Link::Up {
                chunks,
                decoder,
                deadline,
            } => match timeout_at(*deadline, chunks.next()).await {
                Ok(Some(Ok(chunk))) => {
                    *deadline = Instant::now() + SILENCE_TIMEOUT;
                    decoder.push(&chunk).map_err(|why| self.client.foreign(why))
                }
                Ok(Some(Err(source))) => Err(unreachable(&self.client.server, source)),
                Ok(None) | Err(_) => Err(ClientError::Closed(self.client.server.clone())),
            },
        };
        match received {
            Ok(events) => {
                self.n_failures = 0;
                self.waiting.extend(events);
                Ok(())
            }
            Err(error) => {
                self.link = Link::Down;
                Err(error)
            }
        }
    }

    /// A connection in the making, which needs nothing of the follower any more.
    fn connect(&self) -> Connecting {
        let wait = BACKOFF.wait(self.n_failures);
        let query = [
            ("dagId", self.run.dag_id.as_str()),
            ("runId", self.run.run_id.as_str()),
        ];
        let mut request = self
            .client
            .request(Method::GET, "/changes")
            .query(&query)
            .header(header::ACCEPT, "text/event-stream");
        if let Some(reached) = &self.reached {
            request = request.header("last-event-id", reached);
        }
        let client = self.client.clone();
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            match timeout(SILENCE_TIMEOUT, client.answer(request)).await {
                Ok(answer) => Ok(Box::pin(answer?.bytes_stream()) as Chunks),
                Err(_) => Err(ClientError::Closed(client.server.clone())),
            }
        })
    }
}
