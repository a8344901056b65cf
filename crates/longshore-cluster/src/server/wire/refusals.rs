//! What is refused or closed because of a limit: told at its first time, and then once a minute with its count.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How often each of them is told.
const INTERVAL: Duration = Duration::from_secs(60);
/// Users that are told apart; what the others do is counted in one line for each limit.
const USERS: usize = 32;
/// The user of a connection that has named none yet.
pub(super) const NOBODY: &str = "nobody yet";
const OTHERS: &str = "other users";

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The connections of a user.
    Connections,
    /// The connections of nobody.
    Newcomers,
    /// Requests at the same time.
    Requests,
    /// Watches, logs and ways into pods at the same time.
    LongRequests,
    /// The time in which a client takes an answer.
    Untaken,
    /// The time in which a client sends a body.
    Unsent,
}

impl Limit {
    fn text(self) -> &'static str {
        match self {
            Limit::Connections => "refused requests of a user who has too many connections open",
            Limit::Newcomers => {
                "closed the oldest connections on which nobody had proved an identity, for new ones"
            }
            Limit::Requests => "refused requests of a user who has too many of them under way",
            Limit::LongRequests => {
                "refused watches, logs or streams of a user who has too many of them open"
            }
            Limit::Untaken => "gave up answers that the client did not take in time",
            Limit::Unsent => "gave up requests whose body the client did not send in time",
        }
    }
}

/// How often the limit was reached by a user since this was last told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    limit: Limit,
    user: String,
    /// Who was the last one.
    peer: Option<SocketAddr>,
    count: u64,
}

impl Line {
    fn tell(&self) {
        let Line {
            limit,
            user,
            peer,
            count,
        } = self;
        let peer = peer.map(tracing::field::display);
        tracing::warn!(%user, peer, count, "{}", limit.text());
    }
}

/// What has not been told yet.
#[derive(Debug)]
struct Table {
    lines: Vec<Line>,
    told_at: Instant,
}

impl Table {
    /// Counts one. Returns it when it is new, and to be told now.
    fn note(&mut self, limit: Limit, peer: Option<SocketAddr>, user: &str) -> Option<Line> {
        let find = |lines: &[Line], user: &str| {
            let mut lines = lines.iter();
            lines.position(|line| line.limit == limit && line.user == user)
        };
        let (user, known) = match find(&self.lines, user) {
            None if self.lines.len() >= USERS => (OTHERS, find(&self.lines, OTHERS)),
            known => (user, known),
        };
        if let Some(line) = known.and_then(|at| self.lines.get_mut(at)) {
            line.count += 1;
            line.peer = peer;
            return None;
        }
        let line = |count| Line {
            limit,
            user: user.to_owned(),
            peer,
            count,
        };
        self.lines.push(line(0));
        Some(line(1))
    }

    /// What has happened since the last time, if that is long enough ago. What has not happened since is forgotten.
    fn due(&mut self, now: Instant) -> Vec<Line> {
        if now.duration_since(self.told_at) < INTERVAL {
            return Vec::new();
        }
        self.told_at = now;
        self.lines.retain(|line| line.count > 0);
        let due = self.lines.clone();
        for line in &mut self.lines {
            line.count = 0;
        }
        due
    }
}

/// Tells what is refused.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<Table>);

impl Refusals {
    pub(super) fn new() -> Refusals {
        Refusals(Mutex::new(Table {
            lines: Vec::new(),
            told_at: Instant::now(),
        }))
    }

    pub(super) fn note(&self, limit: Limit, peer: Option<SocketAddr>, user: &str) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = table.note(limit, peer, user);
        drop(table);
        if let Some(line) = new {
            line.tell();
        }
    }

    /// Tells what has happened in the last minute; to be called more often than that.
    pub(super) fn tell(&self) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = table.due(Instant::now());
        drop(table);
        for line in due {
            line.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_at_once_and_the_next_ones_once_a_minute() {
        let start = Instant::now();
        let mut table = Table {
            lines: Vec::new(),
            told_at: start,
        };
        let peer = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let first = table.note(Limit::Requests, peer(1), "jane").unwrap();
        assert_eq!(
            (&*first.user, first.peer, first.count),
            ("jane", peer(1), 1)
        );
        assert_eq!(table.note(Limit::Requests, peer(2), "jane"), None);
        assert_eq!(table.note(Limit::Requests, peer(3), "jane"), None);
        assert!(table.note(Limit::Connections, peer(4), "jane").is_some());
        assert!(table.due(start + INTERVAL / 2).is_empty());
        let due = table.due(start + INTERVAL);
        let expected = Line {
            limit: Limit::Requests,
            user: "jane".to_owned(),
            peer: peer(3),
            count: 2,
        };
        assert_eq!(due, [expected]);
        // It goes on.
        assert_eq!(table.note(Limit::Requests, peer(5), "jane"), None);
        assert_eq!(table.due(start + INTERVAL * 2).len(), 1);
        // It has ended, and begins again.
        assert!(table.due(start + INTERVAL * 3).is_empty());
        assert!(table.note(Limit::Requests, peer(6), "jane").is_some());
    }

    #[test]
    fn many_users_take_no_more_memory_than_some() {
        let mut table = Table {
            lines: Vec::new(),
            told_at: Instant::now(),
        };
        for n in 0..1000 {
            table.note(Limit::Requests, None, &format!("u{n}"));
        }
        assert_eq!(table.lines.len(), USERS + 1);
        let others = table.lines.last().unwrap();
        assert_eq!((&*others.user, others.count), (OTHERS, 967));
    }
}
