//! Reads a log to its end, over disconnections and restarts of the service.

use bytes::Bytes;
use futures::StreamExt;

use super::{
    Client, ClientError, Log,
    changes::{BACKOFF, MAX_ATTEMPTS},
};
use crate::{
    control::{LogQuery, Until},
    names::TaskName,
};

/// How much of the end of what was received is remembered, in bytes: where only the last lines were asked for, this end is
/// looked for in the whole log.
const MAX_END_BYTES: usize = 1024;
/// The states of a try whose log may still grow.
const UNDER_WAY: [&str; 4] = ["scheduled", "queued", "running", "restarting"];

/// What a reader of a log sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPiece {
    /// Some more of the log.
    Bytes(Bytes),
    /// The service does not answer; the reader connects again, and goes on behind the last piece.
    Lost,
}

/// The log of one try.
pub struct LogReader {
    client: Client,
    task: TaskName,
    query: LogQuery,
    connection: Option<(Log, Gate)>,
    received: Received,
    n_failures: u32,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader")
            .field("task", &self.task)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}

/// What came of one look.
enum Step {
    Piece(Bytes),
    Nothing,
    End,
}

impl LogReader {
    pub(super) async fn open(
        client: Client,
        task: TaskName,
        query: LogQuery,
    ) -> Result<Self, ClientError> {
        let log = client.logs(&task, query).await?;
        Ok(Self {
            client,
            task,
            query,
            connection: Some((log, Gate::Open)),
            received: Received::default(),
            n_failures: 0,
        })
    }

    /// Some more of the log; `None` at its end.
    ///
    /// # Errors
    /// The service refuses, or did not come back for some minutes.
    pub async fn next(&mut self) -> Result<Option<LogPiece>, ClientError> {
        loop {
            match self.receive().await {
                Ok(Step::Piece(bytes)) => return Ok(Some(LogPiece::Bytes(bytes))),
                Ok(Step::Nothing) => {}
                Ok(Step::End) => return Ok(None),
                Err(error) => {
                    self.connection = None;
                    let may_retry = self.follows() && error.is_temporary();
                    if !may_retry || self.n_failures >= MAX_ATTEMPTS {
                        return Err(error);
                    }
                    self.n_failures += 1;
                    if self.n_failures == 1 {
                        return Ok(Some(LogPiece::Lost));
                    }
                }
            }
        }
    }

    fn follows(&self) -> bool {
        self.query.until == Until::End
    }

    async fn receive(&mut self) -> Result<Step, ClientError> {
        let Some((log, gate)) = &mut self.connection else {
            self.connect().await?;
            return Ok(Step::Nothing);
        };
        let Some(chunk) = log.next().await else {
            return self.ended().await;
        };
        let piece = gate.pass(chunk?);
        if piece.is_empty() {
            return Ok(Step::Nothing);
        }
        self.received.add(&piece);
        self.n_failures = 0;
        Ok(Step::Piece(piece))
    }

    /// A service that stops ends the log like one whose try is over.
    async fn ended(&mut self) -> Result<Step, ClientError> {
        if !self.follows() {
            return Ok(Step::End);
        }
        let task = self.client.task(&self.task).await?;
        let attempt = self.query.attempt.unwrap_or(task.try_number);
        let is_under_way = task.state.is_none_or(|it| UNDER_WAY.contains(&it.as_str()));
        // A log that ends again and again while its try goes on is not asked for for ever.
        if attempt < task.try_number || !is_under_way || self.n_failures >= MAX_ATTEMPTS {
            return Ok(Step::End);
        }
        self.connection = None;
        self.n_failures += 1;
        Ok(Step::Nothing)
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        tokio::time::sleep(BACKOFF.wait(self.n_failures)).await;
        let gate = self.received.gate(self.query.tail.is_some());
        // What was received is found again in the whole log only.
        let tail = self.query.tail.filter(|_| matches!(gate, Gate::Open));
        let query = LogQuery { tail, ..self.query };
        let log = self.client.logs(&self.task, query).await?;
        self.connection = Some((log, gate));
        Ok(())
    }
}

/// What was received so far.
#[derive(Clone, Debug, Default)]
struct Received {
    n_bytes: u64,
    end: Vec<u8>,
}

impl Received {
    fn add(&mut self, bytes: &[u8]) {
        self.n_bytes += bytes.len() as u64;
        self.end.extend_from_slice(bytes);
        let surplus = self.end.len().saturating_sub(MAX_END_BYTES);
        self.end.drain(..surplus);
    }

    /// What keeps from the whole log that which was received of it.
    fn gate(&self, is_tail: bool) -> Gate {
        match (self.n_bytes, is_tail) {
            (0, _) => Gate::Open,
            (n_bytes, false) => Gate::Skip(n_bytes),
            (n_bytes, true) => Gate::Find {
                n_before: n_bytes.saturating_sub(self.end.len() as u64),
                end: self.end.clone(),
                held: Vec::new(),
            },
        }
    }
}

/// What passes of another connection's log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gate {
    /// Everything.
    Open,
    /// What comes after so many bytes.
    Skip(u64),
    /// What comes after the first of these ends with at least so much before it. Where the log repeats itself, some lines
    /// may come twice; none is left out.
    Find {
        n_before: u64,
        end: Vec<u8>,
        held: Vec<u8>,
    },
}

impl Gate {
    fn pass(&mut self, mut chunk: Bytes) -> Bytes {
        match self {
            Self::Open => chunk,
            Self::Skip(n_bytes) => {
                let n_skipped = usize::try_from(*n_bytes).unwrap_or(usize::MAX);
                let n_skipped = n_skipped.min(chunk.len());
                *n_bytes -= n_skipped as u64;
                if *n_bytes == 0 {
                    *self = Self::Open;
                }
                chunk.split_off(n_skipped)
            }
            Self::Find {
                n_before,
                end,
                held,
            } => {
                held.extend_from_slice(&chunk);
                let first = usize::try_from(*n_before).unwrap_or(usize::MAX);
                let mut places = held.windows(end.len()).enumerate().skip(first);
                let place = places.find(|(_, bytes)| *bytes == end.as_slice());
                if let Some(place) = place.map(|(place, _)| place) {
                    let rest = Bytes::from(held.split_off(place + end.len()));
                    *self = Self::Open;
                    return rest;
                }
                // No end that is still to come begins before this.
                let n_seen = (held.len() + 1).saturating_sub(end.len());
                held.drain(..n_seen);
                *n_before = n_before.saturating_sub(n_seen as u64);
                Bytes::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another connection adds to a log of which this was received, in pieces of a size.
    fn added(received: &str, is_tail: bool, log: &str, size: usize) -> String {
        let mut known = Received::default();
        known.add(received.as_bytes());
        let mut gate = known.gate(is_tail);
        let pieces = log.as_bytes().chunks(size);
        let passed = pieces.flat_map(|piece| gate.pass(Bytes::copy_from_slice(piece)));
        String::from_utf8(passed.collect()).unwrap()
    }

    #[test]
    fn another_connection_goes_on_where_the_last_one_was() {
        for (what, received, is_tail, log, expected) in [
            ("nothing was there", "", false, "a\nb\n", "a\nb\n"),
            ("some was there", "a\n", false, "a\nb\n", "b\n"),
            ("in the middle of a line", "a\nb", false, "a\nbc\n", "c\n"),
            ("all was there", "a\n", false, "a\n", ""),
            ("it repeats itself", "a\na\n", false, "a\na\na\n", "a\n"),
            ("the last line", "b\n", true, "a\nb\nc\n", "c\n"),
            (
                "a line that came before, too",
                "a\nb\n",
                true,
                "b\na\nb\nc\n",
                "c\n",
            ),
            (
                "twice rather than never",
                "a\n",
                true,
                "a\na\nb\n",
                "a\nb\n",
            ),
        ] {
            for size in 1..=log.len() {
                assert_eq!(
                    added(received, is_tail, log, size),
                    expected,
                    "{what}: {size}"
                );
            }
        }
    }

    #[test]
    fn of_much_that_was_received_the_end_is_looked_for() {
        let lines: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        let (received, log) = (&lines[300..], format!("{lines}more\n"));
        for size in [1, 7, 1_000, 100_000] {
            assert_eq!(added(received, true, &log, size), "more\n");
        }
    }
}
