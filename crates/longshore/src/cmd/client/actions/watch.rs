//! Following a TaskAction to its end.

use std::{future, time::Duration};

use futures::{Stream, StreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time;

use super::{
    super::{block_on, print as printed},
    cluster::{self, Actions, ClusterArgs},
    print,
    view::Action,
};
use crate::{
    cli::{Format, Globals},
    error::{CliError, render},
    exit::Exit,
    output,
    signals::{Interrupts, Signals},
};

/// How following ended.
#[derive(Debug, PartialEq)]
enum Watched {
    Over(Box<Action>),
    /// It is gone: somebody aborted it, or removed it.
    Gone,
    Detached,
    TimedOut,
}

/// Follows an action until it is over, and prints how it ended.
pub(super) fn to_the_end(
    name: &str,
    timeout: Option<Duration>,
    cluster: &ClusterArgs,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let watched = block_on(async {
        let signals = Signals::listen().map_err(|_| CliError::Internal {
            place: "the signals of the command".to_owned(),
        })?;
        let actions = Actions::connect(cluster).await?;
        // Says at once if there is no such action, or nobody may look at it.
        let first = Action::of(&actions.get(name).await?);
        let changes = watcher::watch_object(actions.api(), name).default_backoff();
        let changes = changes.filter_map(|change| {
            future::ready(match change {
                Ok(object) => Some(object.map(|object| Action::of(&cluster::to_json(&object)))),
                // The watch goes on by itself.
                Err(error) => {
                    tracing::debug!(%error, "watch of an action");
                    None
                }
            })
        });
        let is_told = matches!(globals.output, Format::Table | Format::Wide) && !globals.quiet;
        let mut tell = |line: String| {
            if is_told {
                output::note(&line);
            }
        };
        Ok(follow(first, Box::pin(changes), timeout, signals, &mut tell).await)
    })?;
    let flags = cluster.flags();
    Ok(match watched {
        Watched::Over(action) => report(&action, globals),
        Watched::Gone => {
            output::note(&render::headline(
                "LS1480",
                &format!("action {name} is gone: it was aborted or removed"),
            ));
            Exit::RunFailed
        }
        Watched::Detached => {
            output::note(&format!(
                "detached: the action goes on\n  watch it again: longshore actions watch {name}{flags}\n  abort it:       longshore actions abort {name}{flags}"
            ));
            Exit::Interrupted
        }
        Watched::TimedOut => {
            let message = format!("action {name} did not end in time; it goes on");
            output::note(&render::headline("LS1481", &message));
            output::note(&format!(
                "help: watch it again: longshore actions watch {name}{flags}"
            ));
            Exit::TimedOut
        }
    })
}

async fn follow(
    first: Action,
    mut changes: impl Stream<Item = Option<Action>> + Unpin,
    timeout: Option<Duration>,
    mut interrupts: impl Interrupts,
    tell: &mut impl FnMut(String),
) -> Watched {
    let mut deadline = Box::pin(async move {
        match timeout {
            Some(timeout) => time::sleep(timeout).await,
            None => future::pending().await,
        }
    });
    let mut n_told = 0;
    let mut action = first;
    loop {
        for entry in action.history.iter().skip(n_told) {
            tell(print::line(&action, entry));
        }
        n_told = n_told.max(action.history.len());
        if action.is_over {
            return Watched::Over(Box::new(action));
        }
        tokio::select! {
            biased;
            () = interrupts.next() => return Watched::Detached,
            () = &mut deadline => return Watched::TimedOut,
            change = changes.next() => match change {
                Some(Some(changed)) => action = changed,
                Some(None) | None => return Watched::Gone,
            },
        }
    }
}

fn report(action: &Action, globals: &Globals) -> Exit {
    printed::object(action, print::name, print::end, globals);
    if !action.is_failed {
        return Exit::Success;
    }
    if !matches!(globals.output, Format::Json | Format::Yaml) {
        let (name, reason) = (&action.name, print::reason(action));
        let message = format!("action {name} failed: {reason}");
        output::note(&render::headline("LS1480", &message));
        output::note(
            "help: its pods stay until it is removed; `kubectl logs` has what they printed",
        );
    }
    Exit::RunFailed
}

#[cfg(test)]
mod tests;
