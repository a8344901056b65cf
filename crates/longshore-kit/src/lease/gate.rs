//! Whether we may write, and the places that ask.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use jiff::Timestamp;
use longshore_core::{Class, Classify};
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::{clock::Clock, limit_writes::is_read};

/// A write that was not made, because we do not hold the lease (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the lease, so it must not write")]
pub struct NotLeader;

impl Classify for NotLeader {
    /// The holder of the lease makes the write.
    fn class(&self) -> Class {
        Class::Retry
    }
}

/// Lets the writes of one leadership pass, and none after its end. Clones are the same gate.
///
/// Each leadership has a gate of its own: what an earlier one left behind in this process stays shut out, even if the
/// process holds the lease again.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Gates that have to be open as well.
    others: Vec<Gate>,
    n_refused: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No other process may act, so that this one always may.
    Always,
    /// Until this instant of the monotonic clock. That clock stands still while the machine sleeps, which the other
    /// one notices; the other one may jump, which the first one does not. Both have to agree.
    Until(Instant, Timestamp),
    Closed,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gate = f.debug_tuple("Gate");
        gate.field(&*self.state()).field(&self.shared.others);
        gate.finish()
    }
}

impl Gate {
    /// A gate that is always open: for a process that needs no lease, because no other process does its work.
    pub fn always_open() -> Self {
        Self::all_of(Vec::new())
    }

    /// A gate that is open while all of these are.
    pub fn all_of(gates: Vec<Self>) -> Self {
        Self::new(State::Always, Arc::new(crate::clock::SystemClock), gates)
    }

    /// A gate that is closed until it is [held open](Self::hold_until).
    pub(crate) fn closed(clock: Arc<dyn Clock>) -> Self {
        let state = State::Until(Instant::now(), Timestamp::MIN);
        Self::new(state, clock, Vec::new())
    }

    fn new(state: State, clock: Arc<dyn Clock>, others: Vec<Self>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::new(state),
                others,
                n_refused: AtomicU64::new(0),
            }),
        }
    }

    /// Whether a write may be made now. Ask right before it.
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.is_open() {
            return Ok(());
        }
        self.shared.n_refused.fetch_add(1, Ordering::Relaxed);
        Err(NotLeader)
    }

    /// Does `work` for as long as writes may be made. It is asked before every step, not only before the first: between
    /// two of them the process may have been paused with the request not sent yet.
    ///
    /// # Errors
    /// The gate has closed. Work that had begun is dropped where it was, as by a crash: how much of it was done is
    /// unknown.
    pub async fn while_open<T>(&self, work: impl Future<Output = T>) -> Result<T, NotLeader> {
        let mut work = pin!(work);
        poll_fn(|context| match self.check() {
            Ok(()) => work.as_mut().poll(context).map(Ok),
            Err(not_leader) => Poll::Ready(Err(not_leader)),
        })
        .await
    }

    /// Writes that were refused.
    pub fn n_refused(&self) -> u64 {
        self.shared.n_refused.load(Ordering::Relaxed)
    }

    /// Whether [`check`](Self::check) would let a write pass. For callers that only wait, and for sockets: it counts
    /// nothing.
    pub fn is_open(&self) -> bool {
        let is_open = match *self.state() {
            State::Always => true,
            State::Until(instant, at) => Instant::now() < instant && self.shared.clock.now() < at,
            State::Closed => false,
        };
        is_open && self.shared.others.iter().all(Self::is_open)
    }

    /// Opens it for `time` after `sent`, when the renewal was sent, or after `sent_at` by the other clock; never again
    /// once it was closed.
    pub(crate) fn hold_until(&self, sent: Instant, sent_at: Timestamp, time: Duration) {
        let mut state = self.state();
        if matches!(*state, State::Until(..)) {
            let at = sent_at.saturating_add(time).unwrap_or(Timestamp::MAX);
            *state = State::Until(sent + time, at);
        }
    }

    /// Closes it for good: nothing opens it again.
    pub fn close(&self) {
        *self.state() = State::Closed;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A Kubernetes API behind a gate: reads pass, writes pass while the gate is open. Refused ones fail with [`NotLeader`].
#[derive(Clone, Debug)]
pub struct GateWrites<S> {
    service: S,
    gate: Gate,
}

impl<S> GateWrites<S> {
    /// Puts `gate` before `service`.
    pub fn new(service: S, gate: Gate) -> Self {
        Self { service, gate }
    }
}

impl<S, In, Out> Service<Request<In>> for GateWrites<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let is_read = is_read(request.method());
        let answer = self.service.call(request);
        if is_read {
            return Box::pin(async move { answer.await.map_err(Into::into) });
        }
        let gate = self.gate.clone();
        Box::pin(async move {
            let answered = gate.while_open(answer).await;
            answered?.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::atomic::AtomicUsize};

    use tower::{ServiceExt, service_fn};

    use super::*;

    #[derive(Debug, Default)]
    struct StoppedClock(Mutex<Timestamp>);

    impl Clock for StoppedClock {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }
    }

    const TIME: Duration = Duration::from_secs(10);

    fn held(clock: &Arc<StoppedClock>) -> Gate {
        let gate = Gate::closed(clock.clone());
        gate.hold_until(Instant::now(), clock.now(), TIME);
        gate
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_closes_by_itself_by_either_clock() {
        let clock = Arc::new(StoppedClock::default());
        assert_eq!(Gate::closed(clock.clone()).check(), Err(NotLeader));
        let gate = held(&clock);
        assert_eq!(gate.check(), Ok(()));
        tokio::time::advance(TIME).await;
        assert_eq!(gate.check(), Err(NotLeader), "the monotonic clock");

        let gate = held(&clock);
        assert_eq!(gate.check(), Ok(()));
        *clock.0.lock().unwrap() += TIME;
        assert_eq!(gate.check(), Err(NotLeader), "the machine slept");
        assert_eq!(gate.n_refused(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_was_closed_is_never_opened_again() {
        let clock = Arc::new(StoppedClock::default());
        let gate = held(&clock);
        gate.close();
        gate.hold_until(Instant::now(), clock.now(), TIME);
        assert_eq!(gate.check(), Err(NotLeader));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_of_several_is_open_while_all_of_them_are() {
        let clock = Arc::new(StoppedClock::default());
        let gates = || [held(&clock), held(&clock), held(&clock)];
        for at in 0..3 {
            let parts = gates();
            let all = Gate::all_of(parts.to_vec());
            assert_eq!(all.check(), Ok(()));
            parts[at].close();
            assert_eq!(all.check(), Err(NotLeader), "{at} is closed");
            assert_eq!(all.n_refused(), 1);
            assert!(parts.iter().all(|gate| gate.n_refused() == 0));
        }
        let parts = gates();
        let all = Gate::all_of(parts.to_vec());
        tokio::time::advance(TIME / 2).await;
        for renewed in &parts[1..] {
            renewed.hold_until(Instant::now(), clock.now(), TIME);
        }
        tokio::time::advance(TIME / 2).await;
        assert_eq!(all.check(), Err(NotLeader), "one was not renewed");
        parts[0].hold_until(Instant::now(), clock.now(), TIME);
        assert_eq!(all.check(), Ok(()), "all were renewed");
        assert!(Gate::all_of(Vec::new()).is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn reads_pass_a_closed_gate_and_writes_do_not() {
        let gate = Gate::closed(Arc::new(StoppedClock::default()));
        for (method, passes) in [
            ("GET", true),
            ("HEAD", true),
            ("POST", false),
            ("PUT", false),
            ("PATCH", false),
            ("DELETE", false),
        ] {
            let api = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
            let request = Request::builder().method(method).body(()).unwrap();
            let answer = GateWrites::new(api, gate.clone()).oneshot(request).await;
            assert_eq!(answer.is_ok(), passes, "{method}");
            if let Err(error) = answer {
                assert!(error.is::<NotLeader>());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_under_way_when_the_process_was_paused_is_not_sent() {
        let gate = held(&Arc::new(StoppedClock::default()));
        let n_sent = Arc::new(AtomicUsize::new(0));
        let sent = n_sent.clone();
        // The client connects first, and the pause comes meanwhile.
        let api = service_fn(move |_: Request<()>| {
            let sent = sent.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                sent.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(()))
            }
        });
        let request = Request::post("/").body(()).unwrap();
        let answer = GateWrites::new(api, gate).oneshot(request).await;
        assert!(answer.unwrap_err().is::<NotLeader>());
        assert_eq!(n_sent.load(Ordering::Relaxed), 0);
    }
}
