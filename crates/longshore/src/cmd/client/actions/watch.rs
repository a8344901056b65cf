//! Following a TaskAction to its end.

use std::{future, time::Duration};

use futures::{Stream, StreamExt};
use kube::runtime::{WatchStreamExt, watcher};

use super::{
    super::{follow::Subject, print as printed},
    cluster::{self, Actions, ClusterArgs},
    print,
    view::Action,
};
use crate::{
    cli::{Format, Globals},
    error::{CliError, render},
    exit::Exit,
    output,
    printable::one_line,
};

/// Follows an action until it is over, and prints how it ended.
pub(super) fn to_the_end(
    name: &str,
    timeout: Option<Duration>,
    cluster: &ClusterArgs,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let flags = cluster.flags();
    let subject = Subject {
        what: format!("action {name}"),
        kind: "action",
        again: format!("longshore actions watch {name}{flags}"),
        stop: ("abort", format!("longshore actions abort {name}{flags}")),
        late: "LS1481",
    };
    let is_told = matches!(globals.output, Format::Table | Format::Wide) && !globals.quiet;
    let ended = subject.follow(timeout, async {
        let actions = Actions::connect(cluster).await?;
        // Fails at once for an action that does not exist, or that the user may not read.
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
        let mut tell = |line: String| {
            if is_told {
                output::note(&line);
            }
        };
        Ok(last(first, Box::pin(changes), &mut tell).await)
    })?;
    Ok(match ended {
        Ok(Some(action)) => report(&action, globals),
        Ok(None) => {
            output::note(&render::headline(
                "LS1480",
                &format!("action {name} is gone: it was aborted or removed"),
            ));
            Exit::RunFailed
        }
        Err(left) => left,
    })
}

/// The action once it has ended. Passes each of its phases to `tell` once. `None`: the action was aborted or removed.
async fn last(
    first: Action,
    mut changes: impl Stream<Item = Option<Action>> + Unpin,
    tell: &mut impl FnMut(String),
) -> Option<Action> {
    let mut n_told = 0;
    let mut action = first;
    loop {
        for entry in action.history.iter().skip(n_told) {
            tell(print::line(&action, entry));
        }
        n_told = n_told.max(action.history.len());
        if action.is_over {
            return Some(action);
        }
        action = changes.next().await??;
    }
}

fn report(action: &Action, globals: &Globals) -> Exit {
    printed::object(action, print::name, print::end, globals);
    if !action.is_failed {
        return Exit::Success;
    }
    if !matches!(globals.output, Format::Json | Format::Yaml) {
        let (name, reason) = (&action.name, print::reason(action));
        let message = one_line(&format!("action {name} failed: {reason}"));
        output::note(&render::headline("LS1480", &message));
        output::note(
            "help: its pods stay until it is removed; `kubectl logs` has what they printed",
        );
    }
    Exit::RunFailed
}

#[cfg(test)]
mod tests;
