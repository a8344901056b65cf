use jiff::Timestamp;
use longshore_dags::StateChange;
use longshore_store::{RunState, TaskState};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    cmd::run::fixtures::{end, task},
    progress::fixtures::{at, run_key, task_change},
};

/// A run that ends by itself after `takes` seconds, or `stopping_takes` seconds after it was stopped.
#[derive(Clone, Copy)]
struct Script {
    takes: u64,
    stopping_takes: u64,
}

impl Script {
    fn start(self) -> Started {
        let (sender, changes) = mpsc::unbounded_channel::<StateChange>();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let end = tokio::spawn(async move {
            sender
                .send(task_change(
                    0,
                    "extract",
                    Some(TaskState::Queued),
                    Some(TaskState::Running),
                ))
                .unwrap();
            let state = tokio::select! {
                () = time::sleep(Duration::from_secs(self.takes)) => RunState::Success,
                () = stopped.cancelled() => {
                    time::sleep(Duration::from_secs(self.stopping_takes)).await;
                    RunState::Running
                }
            };
            Ok(end(state, vec![task("extract", Some(TaskState::Success))]))
        });
        Started {
            run: run_key(),
            changes,
            stop,
            end,
        }
    }
}

/// Ctrl-C at these seconds.
struct CtrlC(Vec<u64>);

impl Interrupts for CtrlC {
    async fn next(&mut self) {
        match self.0.first().copied() {
            Some(seconds) => {
                time::sleep_until(started_at() + Duration::from_secs(seconds)).await;
                self.0.remove(0);
            }
            None => future::pending().await,
        }
    }
}

tokio::task_local! {
    static STARTED_AT: time::Instant;
}

fn started_at() -> time::Instant {
    STARTED_AT.get()
}

#[derive(Debug)]
struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        at(0)
    }
}

async fn follow(script: Script, ctrl_c: &[u64], timeout: Option<u64>) -> (Followed, u64) {
    let started_at = time::Instant::now();
    let followed = STARTED_AT.scope(started_at, async {
        let timeout = timeout.map(Duration::from_secs);
        let ctrl_c = CtrlC(ctrl_c.to_vec());
        to_the_end(
            script.start(),
            &mut Progress::Quiet,
            ctrl_c,
            timeout,
            &TestClock,
        )
        .await
    });
    (followed.await.unwrap(), started_at.elapsed().as_secs())
}

fn outcome(followed: Followed) -> Option<Outcome> {
    match followed {
        Followed::Over(outcome, _) => Some(outcome),
        Followed::Abandoned => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_followed_to_its_end_or_until_it_has_stopped() {
    let script = Script {
        takes: 60,
        stopping_takes: 5,
    };
    for (ctrl_c, timeout, expected, seconds) in [
        (&[][..], None, Some(Outcome::Ended), 60),
        (&[10], None, Some(Outcome::Interrupted), 15),
        (&[10, 12], None, None, 12),
        (&[], Some(20), Some(Outcome::TimedOut), 25),
        (&[21], Some(20), Some(Outcome::Interrupted), 25),
        (&[21, 22], Some(20), None, 22),
        (&[], Some(90), Some(Outcome::Ended), 60),
    ] {
        let (followed, took) = follow(script, ctrl_c, timeout).await;
        assert_eq!(
            (outcome(followed), took),
            (expected, seconds),
            "{ctrl_c:?} {timeout:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_panicked_is_an_internal_error() {
    let (_, changes) = mpsc::unbounded_channel();
    let started = Started {
        run: run_key(),
        changes,
        stop: CancellationToken::new(),
        end: tokio::spawn(async { panic!("broken on purpose") }),
    };
    let error = to_the_end(
        started,
        &mut Progress::Quiet,
        CtrlC(Vec::new()),
        None,
        &TestClock,
    )
    .await
    .unwrap_err();
    assert_eq!(error.code(), "LS1901");
}
