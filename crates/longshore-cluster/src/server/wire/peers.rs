//! The open connections: who is at their other end, and which of them have to go.
//!
//! A connection begins as one of nobody. There are few of these, each for a short time, and the oldest one makes room for
//! the next: clients that mean it send their first request within milliseconds. The first request with good credentials
//! makes the connection one of its user, and counts it among the connections of that user.
//!
//! A connection is closed, too, when its client does not take an answer. The HTTP/2 library does not ask for the rest of
//! an answer as long as the client gives no room for its beginning, and the client may answer every ping meanwhile. So
//! each connection counts the answers that wait for their client, by the period in which their wait began.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    Limits,
    clients::ClientCertificate,
    refusals::{Limit, NOBODY, Refusals},
    shares::{Claimant, Share, Shares},
};

/// Periods that are told apart: the present one, the one before, and one that is too long ago. A power of two, because
/// the number of the period wraps around.
const PERIODS: usize = 4;
/// An answer whose wait began so many periods ago has waited for too long.
const TOO_LONG: usize = 2;

/// All open connections.
#[derive(Debug)]
pub(super) struct Peers {
    n_newcomers: usize,
    newcomer_time: Duration,
    /// The connections of users.
    shares: Arc<Shares>,
    lobby: Mutex<Lobby>,
    period: AtomicUsize,
    pub(super) refusals: Refusals,
}

#[derive(Debug, Default)]
struct Lobby {
    n_entered: u64,
    /// Connections of nobody, the oldest first.
    newcomers: BTreeMap<u64, Arc<Peer>>,
    /// Connections of users.
    known: BTreeMap<u64, Arc<Peer>>,
}

impl Peers {
    pub(super) fn new(limits: &Limits) -> Arc<Peers> {
        Arc::new(Peers {
            n_newcomers: limits.n_newcomers,
            newcomer_time: limits.newcomer_time,
            shares: Shares::new(limits.n_connections),
            lobby: Mutex::default(),
            period: AtomicUsize::new(0),
            refusals: Refusals::new(),
        })
    }

    /// A new connection, for as long as the returned value lives.
    pub(super) fn enter(self: &Arc<Self>, address: Option<SocketAddr>) -> Entered {
        let mut lobby = self.lobby();
        let id = lobby.n_entered;
        lobby.n_entered += 1;
        let peer = Arc::new(Peer {
            id,
            address,
            peers: Arc::clone(self),
            deadline: Instant::now() + self.newcomer_time,
            certificate: OnceLock::new(),
            known: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            waiting: Default::default(),
        });
        let oldest = if lobby.newcomers.len() >= self.n_newcomers {
            lobby.newcomers.pop_first()
        } else {
            None
        };
        lobby.newcomers.insert(id, Arc::clone(&peer));
        drop(lobby);
        if let Some((_, oldest)) = oldest {
            oldest.close(Limit::Newcomers);
        }
        Entered(peer)
    }

    /// Begins a new period: closes the connections with an answer that has been waiting for its client since the one
    /// before the last.
    fn begin_period(&self) {
        let period = self.period.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let slot = period.wrapping_sub(TOO_LONG) % PERIODS;
        let lobby = self.lobby();
        let all = lobby.newcomers.values().chain(lobby.known.values());
        let late: Vec<Arc<Peer>> = all
            .filter(|peer| peer.waiting[slot].load(Ordering::Relaxed) > 0)
            .cloned()
            .collect();
        drop(lobby);
        for peer in late {
            peer.close(Limit::Untaken);
        }
    }

    /// Looks after all connections until the server stops. An answer may wait for one to two periods.
    pub(super) async fn watch_over(self: Arc<Self>, period: Duration, closing: CancellationToken) {
        let mut periods = tokio::time::interval(period.max(Duration::from_millis(1)));
        // A process that had no time gives its clients a whole period more.
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        periods.tick().await;
        while closing.run_until_cancelled(periods.tick()).await.is_some() {
            self.begin_period();
            self.refusals.tell();
        }
    }

    fn lobby(&self) -> MutexGuard<'_, Lobby> {
        self.lobby.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The other end of a connection.
pub(super) struct Peer {
    id: u64,
    address: Option<SocketAddr>,
    peers: Arc<Peers>,
    /// When the connection ends if it is still one of nobody.
    deadline: Instant,
    certificate: OnceLock<ClientCertificate>,
    known: OnceLock<Known>,
    is_closed: AtomicBool,
    waker: AtomicWaker,
    /// The answers that wait for the client, by the period in which their wait began.
    waiting: [AtomicUsize; PERIODS],
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.address)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// Whose connection it is, and where it counts.
#[derive(Debug)]
struct Known {
    user: String,
    _place: Share,
}

impl Peer {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.get()
    }

    /// Remembers the certificate of the handshake.
    pub(super) fn certify(&self, certificate: ClientCertificate) {
        // There is one handshake.
        drop(self.certificate.set(certificate));
    }

    /// Whether it is the connection of a user.
    pub(super) fn is_known(&self) -> bool {
        self.known.get().is_some()
    }

    /// Makes the connection one of this user, unless it has one already. Returns whether there is a place for it.
    /// Only the task of the connection asks.
    pub(super) fn introduce(&self, user: Claimant<'_>) -> bool {
        self.is_known() || self.take_place(user)
    }

    fn take_place(&self, user: Claimant<'_>) -> bool {
        let Some(place) = self.peers.shares.take(user) else {
            return false;
        };
        let mut lobby = self.peers.lobby();
        // It may have made room for another one just now.
        let Some(own) = lobby.newcomers.remove(&self.id) else {
            return false;
        };
        lobby.known.insert(self.id, own);
        drop(lobby);
        self.known.get_or_init(|| Known {
            user: user.name().to_owned(),
            _place: place,
        });
        true
    }

    fn leave(&self) {
        let mut lobby = self.peers.lobby();
        lobby.newcomers.remove(&self.id);
        lobby.known.remove(&self.id);
    }

    /// Ends the connection, and says why.
    fn close(&self, limit: Limit) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.waker.wake();
        self.note(limit);
    }

    /// Says what limit the connection has reached.
    pub(super) fn note(&self, limit: Limit) {
        let user = self.known.get().map_or(NOBODY, |known| &known.user);
        self.peers.refusals.note(limit, self.address, user);
    }

    /// Ready when the connection has to end. Only the task that was the last to ask is woken.
    pub(super) fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_closed = || self.is_closed.load(Ordering::Acquire);
        if is_closed() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if is_closed() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// A connection that is open. Dropping it takes it from the list.
#[derive(Debug)]
pub(super) struct Entered(Arc<Peer>);

impl Entered {
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Whether something of a connection waits for its client, and since when.
#[derive(Debug)]
pub(super) struct Wait {
    peer: Option<Arc<Peer>>,
    slot: Option<usize>,
}

impl Wait {
    /// Nothing yet. Without a peer, it may wait for ever.
    pub(super) fn of(peer: Option<Arc<Peer>>) -> Wait {
        Wait { peer, slot: None }
    }

    /// It waits from now on.
    pub(super) fn begin(&mut self) {
        self.end();
        if let Some(peer) = &self.peer {
            let slot = peer.peers.period.load(Ordering::Relaxed) % PERIODS;
            peer.waiting[slot].fetch_add(1, Ordering::Relaxed);
            self.slot = Some(slot);
        }
    }

    /// The client has taken it.
    pub(super) fn end(&mut self) {
        if let (Some(peer), Some(slot)) = (&self.peer, self.slot.take()) {
            peer.waiting[slot].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Connections with places for so many users and newcomers.
    pub(in crate::server::wire) fn peers(n_connections: usize, n_newcomers: usize) -> Arc<Peers> {
        Peers::new(&Limits {
            n_connections,
            n_newcomers,
            ..Limits::default()
        })
    }

    fn is_closed(entered: &Entered) -> bool {
        entered.peer().is_closed.load(Ordering::Relaxed)
    }

    #[test]
    fn the_oldest_connection_of_nobody_makes_room_and_those_of_users_stay() {
        let peers = peers(8, 2);
        let of_user = peers.enter(None);
        assert!(of_user.peer().introduce(Claimant::User("jane")));
        let held: Vec<Entered> = (0..4).map(|_| peers.enter(None)).collect();
        let closed: Vec<bool> = held.iter().map(is_closed).collect();
        assert_eq!(closed, [true, true, false, false]);
        assert!(!is_closed(&of_user));
        // Too late for a connection that has to go.
        assert!(!held[0].peer().introduce(Claimant::User("jane")));
        assert!(held[3].peer().introduce(Claimant::User("jane")));
        // One that has ended by itself makes room as well.
        drop(held);
        let next = [peers.enter(None), peers.enter(None)];
        assert!(!next.iter().any(is_closed));
        drop((next, of_user));
        let lobby = peers.lobby();
        assert!(lobby.newcomers.is_empty() && lobby.known.is_empty());
    }

    #[test]
    fn the_connections_of_one_user_are_no_hindrance_for_the_next() {
        let peers = peers(8, 100);
        let held: Vec<Entered> = (0..20).map(|_| peers.enter(None)).collect();
        let introduced = |user: Claimant<'_>| {
            let all = held.iter().filter(|it| !it.peer().is_known());
            all.filter(|it| it.peer().introduce(user)).count()
        };
        // Of 8, one is for masters and one for users without any.
        assert_eq!(introduced(Claimant::User("greedy")), 3);
        assert_eq!(introduced(Claimant::User("another")), 2);
        assert_eq!(introduced(Claimant::User("modest")), 1);
        assert_eq!(introduced(Claimant::Master("admin")), 2);
        drop(held);
        let again = peers.enter(None);
        assert!(again.peer().introduce(Claimant::User("greedy")));
    }

    #[test]
    fn a_connection_ends_when_an_answer_waits_for_more_than_a_period() {
        let peers = peers(8, 8);
        let held = [peers.enter(None), peers.enter(None)];
        let wait = |entered: &Entered| Wait::of(Some(Arc::clone(entered.peer())));
        let (mut slow, mut steady) = (wait(&held[0]), wait(&held[1]));
        slow.begin();
        for _ in 0..9 {
            steady.begin();
            peers.begin_period();
        }
        assert!(is_closed(&held[0]) && !is_closed(&held[1]));

        // Whoever takes it in the end is not blamed for it later.
        let another = peers.enter(None);
        let mut wait = wait(&another);
        wait.begin();
        peers.begin_period();
        wait.end();
        for _ in 0..9 {
            peers.begin_period();
        }
        assert!(!is_closed(&another));
    }

    #[tokio::test(start_paused = true)]
    async fn the_periods_go_on_until_the_server_stops() {
        let peers = peers(8, 8);
        let closing = CancellationToken::new();
        let period = Duration::from_secs(15);
        let watching = tokio::spawn(Arc::clone(&peers).watch_over(period, closing.clone()));
        let entered = peers.enter(None);
        let mut wait = Wait::of(Some(Arc::clone(entered.peer())));
        tokio::time::sleep(Duration::from_secs(1)).await;
        wait.begin();
        let started = Instant::now();
        std::future::poll_fn(|context| entered.peer().poll_closed(context)).await;
        assert_eq!(started.elapsed().as_secs(), 29);
        closing.cancel();
        watching.await.unwrap();
    }
}
