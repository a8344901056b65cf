//! The simulated clock: time that passes only when nothing else is to be done.

use std::{sync::Arc, sync::mpsc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use longshore_cluster::Cluster;
use longshore_kit::Clock;
use tokio::time::Instant;

/// When every simulated world begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// `now` is [`EPOCH`] plus what tokio's paused time has advanced since the clock was made.
///
/// Use it in a `current_thread` runtime with `start_paused(true)`: there, tokio moves time on to the next timer whenever
/// no task can run, so hours pass in milliseconds and always in the same order.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    started: Instant,
}

impl SimClock {
    /// A clock that reads [`EPOCH`] now.
    pub fn start() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
        })
    }

    /// Time since [`EPOCH`].
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        EPOCH.saturating_add(elapsed).unwrap_or(EPOCH)
    }
}

/// An embedded cluster that goes by this clock, and draws the same names and uids for the same seed.
pub fn cluster(clock: Arc<dyn Clock>, seed: u64) -> Cluster {
    Cluster::builder()
        .clock(Arc::new(move || clock.now()))
        .seed(seed)
        .build()
}

/// Keeps paused time from moving on by itself, until the guard is dropped.
///
/// tokio moves paused time on as soon as none of its tasks can run, and does not know of work elsewhere, as on SQLite's
/// thread: its timeouts would expire before the answer is there. tokio does wait for blocking tasks, so the guard parks
/// one.
pub fn hold() -> Hold {
    let (release, released) = mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || {
        let _ = released.recv(); // Ends with the guard, because that drops the sender.
    });
    Hold { _release: release }
}

/// See [`hold`].
#[derive(Debug)]
pub struct Hold {
    _release: mpsc::Sender<()>,
}

/// Does `work` under [`hold`]: for futures that wait for another thread, as those of a database do.
pub async fn held<T>(work: impl Future<Output = T>) -> T {
    let _hold = hold();
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_follows_the_paused_time_of_tokio() {
        let clock = SimClock::start();
        assert_eq!(clock.now(), EPOCH);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), EPOCH + SignedDuration::from_hours(1));
    }

    #[tokio::test(start_paused = true)]
    async fn held_time_waits_for_work_on_other_threads() {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let worker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            answer.send(()).unwrap();
        });
        let timely = tokio::time::timeout(Duration::from_secs(1), held(answered)).await;
        assert!(timely.is_ok(), "paused time ran ahead of a working thread");
        worker.join().unwrap();
    }
}
