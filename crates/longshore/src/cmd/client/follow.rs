//! Follows a run or an action to its end: until it has ended, until the timeout, or until Ctrl-C, which only detaches.

use std::{future, future::Future, time::Duration};

use tokio::time;

use super::block_on;
use crate::{
    error::{CliError, render},
    exit::Exit,
    output,
    signals::{Interrupts, Signals},
};

/// How following ended.
#[derive(Debug, PartialEq)]
pub(super) enum Followed<T> {
    Over(T),
    Detached,
    TimedOut,
}

/// What is followed, in the words of its commands.
#[derive(Debug)]
pub(super) struct Subject {
    /// The object that is followed, such as `run etl/r1`.
    pub(super) what: String,
    /// The kind alone, such as `run`.
    pub(super) kind: &'static str,
    /// The command that follows it again.
    pub(super) again: String,
    /// What the command that stops it does, and that command.
    pub(super) stop: (&'static str, String),
    /// The code of the error that it did not end in time.
    pub(super) late: &'static str,
}

impl Subject {
    /// Follows until `over` is, with the signals of this process. `Err`: it was left before, which is printed.
    pub(super) fn follow<T>(
        &self,
        timeout: Option<Duration>,
        over: impl Future<Output = Result<T, CliError>>,
    ) -> Result<Result<T, Exit>, CliError> {
        let followed = block_on(async {
            let signals = Signals::listen().map_err(|_| CliError::Internal {
                place: "the signals of the command".to_owned(),
            })?;
            until(over, timeout, signals).await
        })?;
        let Self {
            what,
            kind,
            again,
            stop: (stops, stop),
            late,
        } = self;
        Ok(match followed {
            Followed::Over(over) => Ok(over),
            Followed::Detached => {
                output::note(&format!(
                    "detached: the {kind} goes on\n  watch it again: {again}\n  {:<15} {stop}",
                    format!("{stops} it:")
                ));
                Err(Exit::Interrupted)
            }
            Followed::TimedOut => {
                let message = format!("{what} did not end in time; it goes on");
                output::note(&render::headline(late, &message));
                output::note(&format!("help: watch it again: {again}"));
                Err(Exit::TimedOut)
            }
        })
    }
}

/// Waits until `over` is, the time is over, or there is an interrupt. What is over already wins.
pub(super) async fn until<T>(
    over: impl Future<Output = Result<T, CliError>>,
    timeout: Option<Duration>,
    mut interrupts: impl Interrupts,
) -> Result<Followed<T>, CliError> {
    let deadline = async {
        match timeout {
            Some(timeout) => time::sleep(timeout).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        over = over => Ok(Followed::Over(over?)),
        () = interrupts.next() => Ok(Followed::Detached),
        () = deadline => Ok(Followed::TimedOut),
    }
}

#[cfg(test)]
mod tests;
