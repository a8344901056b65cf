//! Which connections stay when there are many: those that showed the token.
//!
//! Every process of the machine may open connections, and say nothing on them. A new connection never waits for one of
//! these to end: it takes the place of the connection that has waited longest without showing the token.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// Connections at the same time that have not shown the token.
const MAX_NEWCOMERS: usize = 256;
/// Connections at the same time that have shown it, and stay. Further ones stay newcomers.
const MAX_ADMITTED: usize = 256;

/// The connections of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    n_entered: u64,
    n_admitted: usize,
    /// The oldest first.
    newcomers: VecDeque<(u64, CancellationToken)>,
}

/// A connection, until it is dropped. Each request has it among its extensions.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    is_admitted: AtomicBool,
    closing: CancellationToken,
    all: Connections,
}

impl Connections {
    /// A new connection. Where there are too many, the newcomer that has waited longest has to end.
    pub(crate) fn enter(&self) -> Arc<Connection> {
        let closing = CancellationToken::new();
        let mut state = self.state();
        if state.newcomers.len() >= MAX_NEWCOMERS
            && let Some((_, oldest)) = state.newcomers.pop_front()
        {
            oldest.cancel();
        }
        state.n_entered += 1;
        let number = state.n_entered;
        state.newcomers.push_back((number, closing.clone()));
        Arc::new(Connection {
            number,
            is_admitted: AtomicBool::new(false),
            closing,
            all: self.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, number: u64) {
        self.newcomers.retain(|(other, _)| *other != number);
    }
}

impl Connection {
    /// A request of the connection has shown the token: the connection stays, while there is room for those.
    pub(crate) fn admit(&self) {
        let mut state = self.all.state();
        if self.is_admitted.load(Ordering::Relaxed) || state.n_admitted >= MAX_ADMITTED {
            return;
        }
        state.n_admitted += 1;
        state.remove(self.number);
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Ends where the connection has to make room for another one.
    pub(crate) async fn closed(&self) {
        self.closing.cancelled().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if self.is_admitted.load(Ordering::Relaxed) {
            state.n_admitted -= 1;
        } else {
            state.remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newcomer_that_has_waited_longest_makes_room_and_admitted_connections_stay() {
        let connections = Connections::default();
        let admitted = connections.enter();
        admitted.admit();
        let first: Vec<_> = (0..MAX_NEWCOMERS).map(|_| connections.enter()).collect();
        assert!(first.iter().all(|it| !it.closing.is_cancelled()));
        let next = connections.enter();
        assert!(first[0].closing.is_cancelled() && !first[1].closing.is_cancelled());
        assert!(!admitted.closing.is_cancelled());
        // A connection that has ended by itself takes no place.
        drop(first);
        let _others: Vec<_> = (1..MAX_NEWCOMERS).map(|_| connections.enter()).collect();
        assert!(!next.closing.is_cancelled());
    }

    #[test]
    fn no_more_than_so_many_are_admitted_and_each_that_ends_gives_its_place_back() {
        let connections = Connections::default();
        let enter = || {
            let connection = connections.enter();
            // A second request on it changes nothing.
            connection.admit();
            connection.admit();
            connection
        };
        let admitted: Vec<_> = (0..MAX_ADMITTED).map(|_| enter()).collect();
        let is_admitted = |it: &Connection| it.is_admitted.load(Ordering::Relaxed);
        assert!(admitted.iter().all(|it| is_admitted(it)));
        let further = enter();
        assert!(!is_admitted(&further));
        drop(admitted);
        further.admit();
        assert!(is_admitted(&further));
        assert_eq!(connections.state().n_admitted, 1);
        assert!(connections.state().newcomers.is_empty());
    }
}
