//! `longshore logs TARGET`: live or stored, whichever exists.

use std::io::{self, IsTerminal};

use clap::Args;
use longshore_console::{
    TaskName,
    client::{Client, LogPiece, LogReader},
    control::{LogQuery, Until},
};

use serde_json::json;

use super::{ServerArgs, TaskTarget, block_on};
use crate::{
    cli::{Format, Globals, help_end},
    error::CliError,
    exit::Exit,
    output,
    printable::printable,
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

pub(crate) fn logs(args: &LogsArgs, globals: &Globals) -> Result<Exit, CliError> {
    let client = args.server.connect()?;
    block_on(async {
        let mut signals = Signals::listen().map_err(|_| CliError::Internal {
            place: "the signals of the command".to_owned(),
        })?;
        let task = args.task.resolve(&client).await?;
        let attempt = match args.attempt {
            None if args.follow => last_try(&client, &task).await?,
            told => told,
        };
        let query = LogQuery {
            attempt,
            tail: args.tail,
            until: if args.follow { Until::End } else { Until::Now },
        };
        let log = client.read_log(&task, query).await?;
        tokio::select! {
            () = signals.next() => Ok(Exit::Interrupted),
            copied = copy(log, Form::of(globals)) => copied,
        }
    })
}

/// The try that is followed, also after a restart of the service; `None` before the first one.
async fn last_try(client: &Client, task: &TaskName) -> Result<Option<u32>, CliError> {
    let n_tries = client.task(task).await?.try_number;
    Ok(Some(n_tries).filter(|n| *n > 0))
}

async fn copy(mut log: LogReader, form: Form) -> Result<Exit, CliError> {
    let mut lines = Lines {
        form,
        begun: Vec::new(),
    };
    while let Some(piece) = log.next().await? {
        let shown = match piece {
            LogPiece::Bytes(bytes) => lines.take(&bytes),
            LogPiece::Lost => {
                output::note("the service does not answer: trying again");
                continue;
            }
        };
        if !output::bytes(&shown) {
            return Ok(Exit::Success);
        }
    }
    output::bytes(&lines.finish());
    Ok(Exit::Success)
}

/// The form in which a log is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The bytes as the task wrote them, for a pipe or a file.
    Bytes,
    /// Whole lines without control characters, for a terminal.
    Clean,
    /// An object for each line, for programs.
    Objects,
}

impl Form {
    fn of(globals: &Globals) -> Self {
        if globals.output == Format::Json {
            Self::Objects
        } else if io::stdout().is_terminal() {
            Self::Clean
        } else {
            Self::Bytes
        }
    }
}

#[derive(Debug)]
struct Lines {
    form: Form,
    /// The line that has not ended.
    begun: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.form == Form::Bytes {
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

    /// The rest of the log after its last line end.
    fn finish(&mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.begun);
        let text = String::from_utf8_lossy(&line);
        let ended = text.strip_suffix('\n');
        match self.form {
            _ if line.is_empty() => Vec::new(),
            Form::Objects => {
                let text = ended.unwrap_or(&text);
                format!("{}\n", json!({"kind": "LogLine", "line": text})).into_bytes()
            }
            Form::Bytes | Form::Clean => {
                let end = if ended.is_some() { "\n" } else { "" };
                format!("{}{end}", printable(ended.unwrap_or(&text))).into_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_the_log_in_its_form() {
        let log: &[&[u8]] = &[b"one\x1b[2", b"J\ntw\xc3", b"\xbc\nend"];
        let objects = concat!(
            "{\"kind\":\"LogLine\",\"line\":\"one\\u001b[2J\"}\n",
            "{\"kind\":\"LogLine\",\"line\":\"twü\"}\n",
            "{\"kind\":\"LogLine\",\"line\":\"end\"}\n"
        );
        for (form, expected) in [
            (Form::Clean, "one\ntwü\nend".as_bytes()),
            (Form::Bytes, b"one\x1b[2J\ntw\xc3\xbc\nend"),
            (Form::Objects, objects.as_bytes()),
        ] {
            let mut lines = Lines {
                form,
                begun: Vec::new(),
            };
            let mut shown: Vec<u8> = log.iter().flat_map(|chunk| lines.take(chunk)).collect();
            shown.extend(lines.finish());
            assert_eq!(shown, expected, "{form:?}");
        }
    }
}
