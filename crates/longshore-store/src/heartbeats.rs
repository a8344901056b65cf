//! When workers were last heard: in memory, and written now and then for people.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::{
    apply::Refusal,
    changes::StoreError,
    engine::{Cell, Connection, Row},
    query::fetch,
    rows::{instant, read_instant, read_row},
    told::write::Done,
};

/// What was heard is written at most this often, in seconds.
pub const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// A try that was not heard for this long needs no row any more.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Rows in one statement.
const MAX_ROWS: usize = 100;

/// When the worker of a try was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The try.
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
}

/// When workers were last heard. What decides about silent workers reads this; the table is for people, and a loss of the
/// last 10 s in it harms nobody.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    started_at: Timestamp,
    written_at: Timestamp,
    heard: BTreeMap<Uuid, Timestamp>,
    unwritten: BTreeSet<Uuid>,
}

impl Heartbeats {
    /// Nobody was heard yet. Each worker counts as heard at this start, so that none is given up for the time in which
    /// nobody could hear it.
    pub fn new(now: Timestamp) -> Self {
        Self {
            started_at: now,
            written_at: now,
            heard: BTreeMap::new(),
            unwritten: BTreeSet::new(),
        }
    }

    /// The worker of a try was heard. A clock that goes back changes nothing.
    pub fn hear(&mut self, heartbeat: Heartbeat) {
        let Heartbeat { id, at } = heartbeat;
        let last = self.heard.entry(id).or_insert(at);
        *last = at.max(*last);
        self.unwritten.insert(id);
    }

    /// When the worker of a try was last heard; the start where it was not heard since.
    pub fn last(&self, id: Uuid) -> Timestamp {
        let heard = self.heard.get(&id).copied();
        heard.map_or(self.started_at, |at| at.max(self.started_at))
    }

    /// A try whose worker is not waited for any more.
    pub fn forget(&mut self, id: Uuid) {
        self.heard.remove(&id);
        self.unwritten.remove(&id);
    }

    /// What is to be written now: the last time of each worker that was heard since the last write, in the order of the ids;
    /// nothing before [`WRITE_INTERVAL`] has passed since then. The caller writes it at once, or it is lost.
    pub fn due(&mut self, now: Timestamp) -> Vec<Heartbeat> {
        if now.duration_since(self.written_at) < WRITE_INTERVAL {
            return Vec::new();
        }
        self.written_at = now;
        let due = std::mem::take(&mut self.unwritten).into_iter();
        let heartbeat = |id| self.heard.get(&id).map(|&at| Heartbeat { id, at });
        due.filter_map(heartbeat).collect()
    }
}

/// Writes when workers were heard, of tries that are the current ones.
pub(crate) async fn write(c: &mut Connection, heartbeats: &[Heartbeat]) -> Result<Done, Refusal> {
    let mut n_rows = 0;
    for chunk in heartbeats.chunks(MAX_ROWS) {
        let given = vec!["(?, ?)"; chunk.len()].join(", ");
        let sql = format!(
            "WITH given (id, heard_at) AS (VALUES {given}) \
             INSERT INTO heartbeat (task_instance_id, heard_at) \
             SELECT given.id, given.heard_at FROM given JOIN task_instance ON task_instance.id = given.id \
             WHERE task_instance.is_archived = 0 \
             ON CONFLICT (task_instance_id) DO UPDATE SET heard_at = excluded.heard_at"
        );
        let cells = chunk
            .iter()
            .flat_map(|it| [it.id.to_string().into(), instant(Some(it.at))]);
        n_rows += c.execute(sql, cells).await?;
    }
    if let Some(latest) = heartbeats.iter().map(|it| it.at).max() {
        let sql = "DELETE FROM heartbeat WHERE heard_at < ?";
        let long_ago = latest.checked_sub(FORGET_AFTER).unwrap_or(Timestamp::MIN);
        c.execute(sql, [instant(Some(long_ago))]).await?;
    }
    Ok(Done::Rows(n_rows))
}

/// When the worker of a try was last heard, as far as that is written.
pub(crate) async fn last(c: &mut Connection, id: Uuid) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT heard_at FROM heartbeat WHERE task_instance_id = ?";
    let id: Cell = id.to_string().into();
    let rows = fetch(c, sql, [id]).await?;
    let read = |row: &Row| read_row("a heartbeat", || read_instant(row, "heard_at"));
    rows.first().map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn heard(id: u128, seconds: i64) -> Heartbeat {
        Heartbeat {
            id: Uuid::from_u128(id),
            at: at(seconds),
        }
    }

    #[test]
    fn what_was_heard_is_written_once_in_ten_seconds_and_once() {
        let mut heartbeats = Heartbeats::new(at(0));
        for seconds in 0..9 {
            heartbeats.hear(heard(2, seconds));
            heartbeats.hear(heard(1, seconds));
            assert_eq!(heartbeats.due(at(seconds)), []);
        }
        heartbeats.hear(heard(3, 9));
        heartbeats.forget(Uuid::from_u128(3));
        assert_eq!(heartbeats.due(at(10)), [heard(1, 8), heard(2, 8)]);
        heartbeats.hear(heard(2, 11));
        assert_eq!(heartbeats.due(at(19)), []);
        assert_eq!(heartbeats.due(at(20)), [heard(2, 11)]);
        assert_eq!(heartbeats.due(at(40)), []);
    }

    #[test]
    fn after_a_start_everybody_counts_as_heard_then() {
        let mut heartbeats = Heartbeats::new(at(100));
        let id = Uuid::from_u128(1);
        assert_eq!(heartbeats.last(id), at(100));
        // The clock was set back after the worker was heard.
        for (seconds, expected) in [(90, 100), (130, 130), (120, 130)] {
            heartbeats.hear(heard(1, seconds));
            assert_eq!(heartbeats.last(id), at(expected));
        }
        heartbeats.forget(id);
        assert_eq!(heartbeats.last(id), at(100));
    }
}
