//! Printing: results to stdout, everything else to stderr, colours only on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use serde::Serialize;

use crate::{
    cli::{Format, Globals},
    error::{self, CliError},
    exit::Exit,
};

/// Bold red, for the word "error".
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Green, for what ended well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Cyan, for what is going on.
pub(crate) const ACTIVE: Style = AnsiColor::Cyan.on_default();
/// Yellow, for what a user may have to look at.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// The style of less important text.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Whether errors are printed as JSON. Set once, read where an error surfaces, the panic hook included.
static ERRORS_AS_JSON: AtomicBool = AtomicBool::new(false);

/// The first error of stdout.
static LOSS: Mutex<Option<io::Error>> = Mutex::new(None);

/// Takes over the global arguments.
pub(crate) fn set(globals: &Globals) {
    ERRORS_AS_JSON.store(globals.output == Format::Json, Ordering::Relaxed);
    match globals.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::AlwaysAnsi,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Whether stderr shows colours.
pub(crate) fn stderr_has_colors() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Whether a person looks at stderr.
pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Columns and rows of the terminal behind stderr; a common size where it does not say.
pub(crate) fn stderr_size() -> (usize, usize) {
    terminal_size::terminal_size_of(std::io::stderr()).map_or((80, 24), |(width, height)| {
        (usize::from(width.0), usize::from(height.0))
    })
}

/// Prints text as it is to stdout.
pub(crate) fn text(text: &str) {
    let mut stdout = anstream::stdout().lock();
    let printed = stdout.write_all(text.as_bytes());
    note_loss(printed.and_then(|()| stdout.flush()));
}

/// Writes bytes to stdout. Returns whether they got there: after a loss nothing more is worth writing.
pub(crate) fn bytes(bytes: &[u8]) -> bool {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes);
    note_loss(written.and_then(|()| stdout.flush()))
}

/// Remembers that stdout did not take something, for the end of the command. A reader that has gone (`| head`) is no error.
fn note_loss(printed: io::Result<()>) -> bool {
    let Err(error) = printed else {
        return true;
    };
    if error.kind() != io::ErrorKind::BrokenPipe {
        let mut loss = LOSS.lock().unwrap_or_else(PoisonError::into_inner);
        if loss.is_none() {
            *loss = Some(error);
        }
    }
    false
}

/// Why something that was printed is not on stdout.
pub(crate) fn loss() -> Option<io::Error> {
    let mut loss = LOSS.lock().unwrap_or_else(PoisonError::into_inner);
    loss.take()
}

/// Prints a line to stdout.
pub(crate) fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Prints a value as one line of JSON to stdout.
pub(crate) fn json(value: &impl Serialize) {
    line(&to_json(value));
}

/// Prints a value as YAML to stdout.
pub(crate) fn yaml(value: &impl Serialize) {
    text(&serde_saphyr::to_string(value).unwrap_or_else(|why| format!("# {why}\n")));
}

/// Prints a line to stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Prints an error to stderr.
pub(crate) fn error(error: &CliError) {
    let rendered = if ERRORS_AS_JSON.load(Ordering::Relaxed) {
        to_json(&error::render::object(error))
    } else {
        error::render::text(error)
    };
    note(&rendered);
}

/// Prints what the argument parser says: help to stdout, mistakes to stderr.
pub(crate) fn usage(usage: &clap::Error, as_json: bool) -> Exit {
    if as_json && usage.use_stderr() {
        let error = CliError::in_usage(&usage.render().to_string());
        note(&to_json(&error::render::object(&error)));
        return error.exit();
    }
    let printed = usage.print();
    if usage.use_stderr() {
        Exit::Usage
    } else {
        note_loss(printed.and_then(|()| io::stdout().flush()));
        Exit::Success
    }
}

/// One line of JSON. The types of this program always serialise; if one did not, its reason is better than nothing.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|why| format!("{:?}", why.to_string()))
}
