//! From the start of a run to its end: state changes, redraws, Ctrl-C and the timeout, in one loop.

use std::{future, time::Duration};

use longshore_kit::clock::Clock;
use tokio::time::{self, MissedTickBehavior};

use crate::{
    engine::{End, Started},
    error::CliError,
    progress::{Progress, REDRAWS_PER_SECOND},
    signals::Interrupts,
};

/// The result of following a run.
#[derive(Debug)]
pub(crate) enum Followed {
    /// The run is over, or was stopped.
    Over(Outcome, Box<End>),
    /// A second interrupt came before the run had stopped.
    Abandoned,
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The run is over.
    Ended,
    /// Ctrl-C or SIGTERM stopped the run.
    Interrupted,
    /// The run took longer than `--timeout`, and was stopped.
    TimedOut,
}

/// Follows a run until it is over or was stopped.
///
/// *Flow*: changes go to the progress as they come. The first interrupt, or the timeout, asks the engine to stop; the
/// changes until it has are still shown. A second interrupt ends the waiting.
pub(crate) async fn to_the_end(
    mut started: Started,
    progress: &mut Progress,
    mut interrupts: impl Interrupts,
    timeout: Option<Duration>,
    clock: &impl Clock,
) -> Result<Followed, CliError> {
    let mut outcome = Outcome::Ended;
    let mut redraw = time::interval(Duration::from_secs(1) / u32::from(REDRAWS_PER_SECOND));
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut deadline = Box::pin(async move {
        match timeout {
            Some(timeout) => time::sleep(timeout).await,
            None => future::pending().await,
        }
    });
    loop {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                if outcome == Outcome::Interrupted {
                    return Ok(Followed::Abandoned);
                }
                outcome = Outcome::Interrupted;
                progress.note("stopping the tasks that run (once more to leave at once)");
                started.stop.cancel();
            }
            () = &mut deadline, if outcome == Outcome::Ended => {
                outcome = Outcome::TimedOut;
                progress.note("the time is up: stopping the tasks that run");
                started.stop.cancel();
            }
            change = started.changes.recv() => match change {
                Some(change) => progress.change(&change),
                None => break,
            },
            _ = redraw.tick() => progress.tick(clock.now()),
        }
    }
    // The pods have stopped or the run is over; what is left is to close the books, which an interrupt cuts short.
    let end = loop {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                if outcome == Outcome::Interrupted {
                    return Ok(Followed::Abandoned);
                }
                outcome = Outcome::Interrupted;
            }
            end = &mut started.end => break end,
        }
    };
    let end = end.map_err(|_| CliError::Internal {
        place: "the engine of the run".to_owned(),
    })??;
    // The run may have ended by itself just before it was stopped.
    let outcome = if end.run.state.is_finished() {
        Outcome::Ended
    } else {
        outcome
    };
    Ok(Followed::Over(outcome, Box::new(end)))
}

#[cfg(test)]
mod tests;
