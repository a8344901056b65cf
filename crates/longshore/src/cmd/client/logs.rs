//! `longshore logs TARGET`: live or stored, whichever exists.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use futures::StreamExt;
use longshore_console::{
    client::Log,
    control::{LogQuery, Until},
};

use super::{ServerArgs, TaskTarget, block_on, printable::printable};
use crate::{
    cli::{Globals, help_end},
    error::CliError,
    exit::Exit,
    signals::{Interrupts, Signals},
};

/// A line that is longer is shown in pieces.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Print the log of a task
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore logs etl/latest/extract -f"))]
pub(crate) struct LogsArgs {
    /// DAG/RUN/TASK; RUN may be latest
    #[arg(value_name = "TARGET")]
    task: TaskTarget,
    /// Wait for more until the try is over
    #[arg(short, long)]
    follow: bool,
    /// The try [default: the last one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn logs(args: &LogsArgs, _globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    let query = LogQuery {
        attempt: args.attempt,
        tail: args.tail,
        until: if args.follow { Until::End } else { Until::Now },
    };
    block_on(async {
        let mut signals = Signals::listen().map_err(|_| CliError::Internal {
            place: "the signals of the command".to_owned(),
        })?;
        let task = args.task.resolve(&client).await?;
        let log = client.logs(&task, query).await?;
        tokio::select! {
            () = signals.next() => Ok(Exit::Interrupted),
            copied = copy(log) => copied,
        }
    })
}

async fn copy(mut log: Log) -> Result<Exit, CliError> {
    let mut lines = Lines {
        is_terminal: io::stdout().is_terminal(),
        ..Lines::default()
    };
    while let Some(chunk) = log.next().await {
        let shown = lines.take(&chunk?);
        if !write(&shown) {
            return Ok(Exit::Success);
        }
    }
    write(&lines.finish());
    Ok(Exit::Success)
}

/// Whether somebody still reads (`| head` does not).
fn write(bytes: &[u8]) -> bool {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .is_ok()
}

/// What becomes of a log on its way to the reader: a terminal gets whole lines without control characters, everything
/// else gets the bytes.
#[derive(Debug, Default)]
struct Lines {
    is_terminal: bool,
    begun: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        if !self.is_terminal {
            return bytes.to_vec();
        }
        let mut shown = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() > MAX_LINE_BYTES {
                shown.extend(self.finish());
            }
        }
        shown
    }

    fn finish(&mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.begun);
        let mut shown = printable(&String::from_utf8_lossy(&line)).into_bytes();
        if line.ends_with(b"\n") {
            shown.push(b'\n');
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_clean_lines_and_a_pipe_the_bytes() {
        let log: &[&[u8]] = &[b"one\x1b[2", b"J\ntw\xc3", b"\xbc\nend"];
        for (is_terminal, expected) in [
            (true, "one\ntwü\nend".as_bytes()),
            (false, b"one\x1b[2J\ntw\xc3\xbc\nend"),
        ] {
            let mut lines = Lines {
                is_terminal,
                ..Lines::default()
            };
            let mut shown: Vec<u8> = log.iter().flat_map(|chunk| lines.take(chunk)).collect();
            shown.extend(lines.finish());
            assert_eq!(shown, expected);
        }
    }
}
