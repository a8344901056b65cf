//! The board: where every task of a run stands, in as many lines as fit.
//!
//! Small runs show every task; in larger ones the tasks that wait or have ended are folded into counts, so that a run
//! of thousands of tasks neither scrolls nor costs more than the tasks in motion.

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use jiff::Timestamp;
use longshore_dags::{Change, StateChange};
use longshore_store::{RunKey, RunState, TaskState};

use crate::{
    output::{ACTIVE, BAD, DIM, GOOD, WARN},
    progress::{
        age,
        lines::{run_word, task_name, task_word},
    },
};

/// No more task lines than this, whatever the height of the screen.
const MAX_TASK_LINES: usize = 30;
/// Header, footer and the line below the board.
const OTHER_LINES: usize = 3;
/// Width of the longest state word.
const STATE_WIDTH: usize = "upstream_failed".len();

/// The order of the footer: what is in motion first.
const FOOTER: [Option<TaskState>; 11] = [
    Some(TaskState::Running),
    Some(TaskState::Restarting),
    Some(TaskState::Queued),
    Some(TaskState::Scheduled),
    Some(TaskState::UpForRetry),
    None,
    Some(TaskState::Success),
    Some(TaskState::Failed),
    Some(TaskState::UpstreamFailed),
    Some(TaskState::Skipped),
    Some(TaskState::Removed),
];

/// The screen that a board is drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) has_colors: bool,
}

/// The state of every task of a run.
#[derive(Debug)]
pub(crate) struct Board {
    key: RunKey,
    state: RunState,
    started_at: Timestamp,
    /// In the order of the DAG.
    rows: Vec<Row>,
    index: BTreeMap<(String, i32), usize>,
    /// The rows in motion.
    active: BTreeSet<usize>,
    counts: BTreeMap<Option<TaskState>, usize>,
}

#[derive(Debug)]
struct Row {
    name: String,
    state: Option<TaskState>,
    try_number: u32,
    /// When it came into its state.
    since: Timestamp,
    /// Since when its process runs, or ran.
    running_since: Option<Timestamp>,
    why: Option<String>,
}

impl Board {
    /// A board of a run whose tasks all wait, in the order given.
    pub(crate) fn new(key: RunKey, tasks: &[String], now: Timestamp) -> Self {
        let mut board = Self {
            key,
            state: RunState::Queued,
            started_at: now,
            rows: Vec::new(),
            index: BTreeMap::new(),
            active: BTreeSet::new(),
            counts: BTreeMap::new(),
        };
        for task_id in tasks {
            board.add(task_id, -1, now);
        }
        board
    }

    /// Takes a state change, in time that does not depend on the size of the run.
    pub(crate) fn apply(&mut self, change: &StateChange) {
        match &change.change {
            Change::Run { to, .. } => self.state = *to,
            Change::Task {
                task_id,
                map_index,
                try_number,
                to,
                failure,
                ..
            } => {
                let known = self.index.get(&(task_id.clone(), *map_index)).copied();
                let at = known.unwrap_or_else(|| self.add(task_id, *map_index, change.at));
                self.recount(self.rows[at].state, *to);
                let row = &mut self.rows[at];
                row.state = *to;
                row.try_number = *try_number;
                row.since = change.at;
                row.why = failure.as_ref().map(|failure| failure.message.clone());
                if *to == Some(TaskState::Running) {
                    row.running_since = Some(change.at);
                }
                if is_active(*to) {
                    self.active.insert(at);
                } else {
                    self.active.remove(&at);
                }
            }
        }
    }

    /// The board as lines, none wider and all together no higher than the screen.
    pub(crate) fn render(&self, now: Timestamp, size: Size) -> Vec<String> {
        let room = size
            .height
            .saturating_sub(OTHER_LINES)
            .clamp(1, MAX_TASK_LINES);
        let mut lines = vec![self.header(now, size)];
        if self.rows.len() <= room {
            lines.extend(self.rows.iter().map(|row| self.line(row, now, size)));
        } else {
            lines.extend(self.active_lines(now, size, room));
        }
        lines.push(self.footer(size));
        lines
    }

    fn add(&mut self, task_id: &str, map_index: i32, now: Timestamp) -> usize {
        let at = self.rows.len();
        self.rows.push(Row {
            name: task_name(task_id, map_index),
            state: None,
            try_number: 0,
            since: now,
            running_since: None,
            why: None,
        });
        self.index.insert((task_id.to_owned(), map_index), at);
        *self.counts.entry(None).or_default() += 1;
        at
    }

    fn recount(&mut self, from: Option<TaskState>, to: Option<TaskState>) {
        if let Some(n) = self.counts.get_mut(&from) {
            *n = n.saturating_sub(1);
        }
        *self.counts.entry(to).or_default() += 1;
    }

    fn header(&self, now: Timestamp, size: Size) -> String {
        let text = format!(
            "{}  run {}  {}  {}",
            self.key.dag_id,
            self.key.run_id,
            run_word(self.state),
            age::between(self.started_at, now)
        );
        fit(&text, size.width)
    }

    fn footer(&self, size: Size) -> String {
        let counts: Vec<String> = FOOTER
            .iter()
            .filter_map(|state| {
                let n = self.counts.get(state).copied().filter(|n| *n > 0)?;
                Some(format!("{n} {}", task_word(*state)))
            })
            .collect();
        let text = format!("{} of {} tasks", counts.join(", "), self.rows.len());
        paint(&fit(&text, size.width), DIM, size)
    }

    /// The tasks in motion, those that run first; the last line counts what has no line.
    fn active_lines(&self, now: Timestamp, size: Size, room: usize) -> Vec<String> {
        let (running, others): (Vec<&Row>, Vec<&Row>) = self
            .active
            .iter()
            .map(|at| &self.rows[*at])
            .partition(|row| row.state == Some(TaskState::Running));
        let n_active = running.len() + others.len();
        let n_shown = if n_active <= room {
            n_active
        } else {
            room.saturating_sub(1)
        };
        let mut lines: Vec<String> = running
            .into_iter()
            .chain(others)
            .take(n_shown)
            .map(|row| self.line(row, now, size))
            .collect();
        if n_shown < n_active {
            lines.push(fit(
                &format!("  … and {} more in motion", n_active - n_shown),
                size.width,
            ));
        }
        lines
    }

    /// `  running          clean          1.3s  try 2`
    fn line(&self, row: &Row, now: Timestamp, size: Size) -> String {
        let word = format!("{:STATE_WIDTH$}", task_word(row.state));
        let name_width = self.name_width();
        let time = row.time(now).unwrap_or_default();
        let try_number = if row.try_number > 1 {
            format!("try {}", row.try_number)
        } else {
            String::new()
        };
        let why = row.why.as_deref().unwrap_or_default();
        let rest = format!("{:name_width$}  {time:>6}  {try_number}  {why}", row.name);
        let rest = fit(rest.trim_end(), size.width.saturating_sub(STATE_WIDTH + 4));
        format!("  {}  {rest}", paint(&word, style(row.state), size))
    }

    fn name_width(&self) -> usize {
        const WIDEST: usize = 40;
        if self.rows.len() > MAX_TASK_LINES {
            return WIDEST / 2;
        }
        let names = self.rows.iter().map(|row| row.name.chars().count());
        names.max().unwrap_or_default().min(WIDEST)
    }
}

impl Row {
    /// How long it has been at it, or how long it took.
    fn time(&self, now: Timestamp) -> Option<String> {
        match self.state {
            None | Some(TaskState::UpstreamFailed | TaskState::Skipped | TaskState::Removed) => {
                None
            }
            Some(
                TaskState::Running
                | TaskState::Restarting
                | TaskState::Queued
                | TaskState::Scheduled
                | TaskState::UpForRetry,
            ) => Some(age::between(self.since, now)),
            Some(TaskState::Success | TaskState::Failed) => {
                Some(age::between(self.running_since?, self.since))
            }
        }
    }
}

/// Whether a task has a line of its own in a large run.
fn is_active(state: Option<TaskState>) -> bool {
    match state {
        Some(
            TaskState::Running | TaskState::Restarting | TaskState::Queued | TaskState::UpForRetry,
        ) => true,
        None
        | Some(
            TaskState::Scheduled
            | TaskState::Success
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => false,
    }
}

/// The colour that goes with a state; the word is always there too.
pub(crate) fn style(state: Option<TaskState>) -> Style {
    match state {
        None | Some(TaskState::Skipped | TaskState::Removed) => DIM,
        Some(TaskState::Scheduled | TaskState::Queued) => Style::new(),
        Some(TaskState::Running) => ACTIVE,
        Some(TaskState::Success) => GOOD,
        Some(TaskState::Restarting | TaskState::UpForRetry) => WARN,
        Some(TaskState::Failed | TaskState::UpstreamFailed) => BAD,
    }
}

fn paint(text: &str, style: Style, size: Size) -> String {
    if size.has_colors {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

/// The text in one line of at most `width` characters.
fn fit(text: &str, width: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests;
