//! Follows a run, over disconnections and restarts of the service.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Method, header};
use longshore_k8s::Backoff;

use super::{Client, ClientError, sse, unreachable};
use crate::{names::RunName, objects::Change};

/// The service says something this often, or it is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// The wait between two attempts to connect.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    max: Duration::from_secs(5),
};
/// Attempts in a row before the follower stops: some minutes, enough for a restart.
const MAX_ATTEMPTS: u32 = 30;

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

/// The changes of one run.
pub struct Changes {
    client: Client,
    run: RunName,
    /// The id of the last event, from which a new connection resumes.
    reached: Option<String>,
    connection: Option<(Chunks, sse::Decoder)>,
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
            connection: None,
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

    /// Gets some more events. After an error the connection is gone, and the next call makes a new one.
    async fn receive(&mut self) -> Result<(), ClientError> {
        if self.connection.is_none() {
            let chunks = self.connect().await?;
            self.connection = Some((chunks, sse::Decoder::default()));
        }
        let Some((chunks, decoder)) = &mut self.connection else {
            return Ok(());
        };
        let received = match tokio::time::timeout(SILENCE_TIMEOUT, chunks.next()).await {
            Ok(Some(Ok(chunk))) => decoder.push(&chunk).map_err(|why| self.client.foreign(why)),
            Ok(Some(Err(source))) => Err(unreachable(&self.client.server, source)),
            Ok(None) | Err(_) => Err(ClientError::Closed(self.client.server.clone())),
        };
        match received {
            Ok(events) => {
                self.n_failures = 0;
                self.waiting.extend(events);
                Ok(())
            }
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    async fn connect(&mut self) -> Result<Chunks, ClientError> {
        if self.n_failures > 0 {
            tokio::time::sleep(BACKOFF.wait(self.n_failures)).await;
        }
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
        Ok(Box::pin(self.client.answer(request).await?.bytes_stream()))
    }
}
