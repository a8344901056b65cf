//! What a person or a program sees of a run while it goes on.
//!
//! State changes go in; the output depends on its reader: a board that redraws itself on a terminal
//! ([`board`]), a line per change ([`lines`]) or an object per change ([`to_objects`]) elsewhere.
//! All three are pure functions; only this file prints.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use longshore_dags::{Change, StateChange};

use crate::{
    cli::{Format, Globals},
    output,
    progress::board::{Board, Size},
    to_objects,
};

pub(crate) mod age;
pub(crate) mod board;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod lines;
pub(crate) mod phases;

/// How often a board is redrawn. Changes in between cost nothing but their bookkeeping.
pub(crate) const REDRAWS_PER_SECOND: u8 = 10;

/// Where the state changes of a run go.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nowhere: nothing is printed.
    Quiet,
    /// A line each, to stderr.
    Lines,
    /// An object each, to stdout.
    Objects,
    /// A board on the terminal.
    Live(Box<Live>),
}

/// A board on the terminal, below whatever else is printed.
#[derive(Debug)]
pub(crate) struct Live {
    board: Board,
    bar: ProgressBar,
}

impl Progress {
    /// Selects the form by the flags, and by whether stderr is a terminal.
    pub(crate) fn choose(globals: &Globals, board: Board) -> Self {
        if globals.output == Format::Json {
            Self::Objects
        } else if globals.quiet {
            Self::Quiet
        } else if output::stderr_is_terminal() {
            Self::Live(Box::new(Live::new(board)))
        } else {
            Self::Lines
        }
    }

    /// Takes a state change. What keeps a pod from its start is on the board only: it may change often.
    pub(crate) fn change(&mut self, change: &StateChange) {
        let is_passing = matches!(change.change, Change::Pending { .. });
        match self {
            Self::Quiet => {}
            Self::Lines | Self::Objects if is_passing => {}
            Self::Lines => output::note(&lines::line(change)),
            Self::Objects => output::json(&to_objects::change(change)),
            Self::Live(live) => live.board.apply(change),
        }
    }

    /// Redraws what depends on the time.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if let Self::Live(live) = self {
            live.draw(now);
        }
    }

    /// Prints a line for the person, whatever else is on the screen.
    pub(crate) fn note(&self, line: &str) {
        match self {
            Self::Live(live) => live.bar.suspend(|| output::note(line)),
            Self::Quiet | Self::Lines | Self::Objects => output::note(line),
        }
    }

    /// Takes the board off the screen: what follows is the result.
    pub(crate) fn close(&mut self) {
        if let Self::Live(live) = self {
            live.bar.finish_and_clear();
        }
    }
}

impl Live {
    fn new(board: Board) -> Self {
        let bar = ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND),
        );
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { board, bar }
    }

    fn draw(&self, now: Timestamp) {
        let (width, height) = output::stderr_size();
        let size = Size {
            width,
            height,
            has_colors: output::stderr_has_colors(),
        };
        self.bar
            .set_message(self.board.render(now, size).join("\n"));
        self.bar.tick();
    }
}
