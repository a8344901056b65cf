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
    printable::one_line,
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

/// On a narrower screen, the columns are as narrow as what they hold.
const NARROW: usize = 60;

/// The order of the footer: what is in motion first.
const FOOTER: [Option<TaskState>; 14] = [
    Some(TaskState::Running),
    Some(TaskState::Restarting),
    Some(TaskState::Queued),
    Some(TaskState::Scheduled),
    Some(TaskState::UpForRetry),
    Some(TaskState::UpForReschedule),
    Some(TaskState::Deferred),
    Some(TaskState::AwaitingInput),
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

/// A task, as its DAG has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoardTask {
    pub(crate) id: String,
    /// The ids of the tasks that it waits for.
    pub(crate) upstream: Vec<String>,
    /// Tries that it may have; 0 where that is not known.
    pub(crate) max_tries: u32,
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
    upstream: Vec<String>,
    max_tries: u32,
    state: Option<TaskState>,
    try_number: u32,
    /// When it came into its state.
    since: Timestamp,
    /// Since when its process runs, or ran.
    running_since: Option<Timestamp>,
    why: Option<String>,
    /// What keeps its pod from its start.
    pending: Option<String>,
}

impl Board {
    /// A board of a run whose tasks all wait, in the order given.
    pub(crate) fn new(key: RunKey, tasks: Vec<BoardTask>, now: Timestamp) -> Self {
        let mut board = Self {
            key,
            state: RunState::Queued,
            started_at: now,
            rows: Vec::new(),
            index: BTreeMap::new(),
            active: BTreeSet::new(),
            counts: BTreeMap::new(),
        };
        for task in tasks {
            board.add(task, -1, now);
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
                let at = known.unwrap_or_else(|| {
                    let id = task_id.clone();
                    let task = BoardTask {
                        id,
                        ..BoardTask::default()
                    };
                    self.add(task, *map_index, change.at)
                });
                self.recount(self.rows[at].state, *to);
                let row = &mut self.rows[at];
                row.state = *to;
                row.try_number = *try_number;
                row.since = change.at;
                row.why = failure.as_ref().map(|failure| failure.message.clone());
                // The pod of the next launch most often waits for the same.
                if *to != Some(TaskState::Queued) {
                    row.pending = None;
                }
                if *to == Some(TaskState::Running) {
                    row.running_since = Some(change.at);
                }
                if is_active(*to) {
                    self.active.insert(at);
                } else {
                    self.active.remove(&at);
                }
            }
            Change::Pending {
                task_id,
                map_index,
                message,
            } => {
                let known = self.index.get(&(task_id.clone(), *map_index));
                if let Some(row) = known.and_then(|at| self.rows.get_mut(*at)) {
                    let is_queued = row.state == Some(TaskState::Queued);
                    row.pending = message.clone().filter(|_| is_queued);
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

    fn add(&mut self, task: BoardTask, map_index: i32, now: Timestamp) -> usize {
        let at = self.rows.len();
        self.rows.push(Row {
            name: task_name(&task.id, map_index),
            upstream: task.upstream,
            max_tries: task.max_tries,
            state: None,
            try_number: 0,
            since: now,
            running_since: None,
            why: None,
            pending: None,
        });
        self.index.insert((task.id, map_index), at);
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
        let (dag_id, run_id) = (&self.key.dag_id, &self.key.run_id);
        let state = run_word(self.state);
        let took = age::between(self.started_at, now);
        let mut text = format!("{dag_id}  run {run_id}  {state}  {took}");
        if text.chars().count() > size.width {
            text = format!("{dag_id}  {state}  {took}");
        }
        fit(&text, size.width)
    }

    fn footer(&self, size: Size) -> String {
        let counts: Vec<String> = FOOTER
            .iter()
            .filter_map(|state| {
                let n = self.counts.get(state).copied().filter(|n| *n > 0)?;
                Some(format!("{n} {}", word(*state, size)))
            })
            .collect();
        let tasks = if size.width < NARROW { "" } else { " tasks" };
        let text = format!("{} of {}{tasks}", counts.join(", "), self.rows.len());
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

    /// `  running          clean          1.3s  try 2 of 3`; on a narrow screen `  running  clean  1.3s  2/3`.
    fn line(&self, row: &Row, now: Timestamp, size: Size) -> String {
        let is_narrow = size.width < NARROW;
        let state_width = self.state_width(size);
        let word = format!("{:state_width$}", word(row.state, size));
        let name_width = self.name_width(size);
        let (mut name, mut time) = (row.name.clone(), row.time(now).unwrap_or_default());
        if is_narrow {
            name = fit(&name, name_width);
        } else {
            time = format!("{time:>6}");
        }
        let mut rest = format!("{name:name_width$}");
        for part in [time, row.nth_try(is_narrow), self.why(row)] {
            if !part.is_empty() {
                rest.push_str("  ");
                rest.push_str(&part);
            }
        }
        let rest = fit(rest.trim_end(), size.width.saturating_sub(state_width + 4));
        format!("  {}  {rest}", paint(&word, style(row.state), size))
    }

    /// What a task or its pod waits for, or why its last try failed.
    fn why(&self, row: &Row) -> String {
        if row.state.is_some() {
            let why = row.pending.as_ref().or(row.why.as_ref());
            return why.cloned().unwrap_or_default();
        }
        let is_open = |id: &&String| {
            let at = self.index.get(&((*id).clone(), -1));
            at.is_none_or(|at| self.rows[*at].state != Some(TaskState::Success))
        };
        let open: Vec<&str> = row
            .upstream
            .iter()
            .filter(is_open)
            .map(String::as_str)
            .collect();
        match open.is_empty() {
            true => String::new(),
            false => format!("after {}", open.join(", ")),
        }
    }

    fn state_width(&self, size: Size) -> usize {
        if size.width >= NARROW {
            return STATE_WIDTH;
        }
        let there = self.counts.iter().filter(|(_, n)| **n > 0);
        let words = there.map(|(state, _)| word(*state, size).len());
        words.max().unwrap_or(STATE_WIDTH)
    }

    fn name_width(&self, size: Size) -> usize {
        const WIDEST: usize = 40;
        if size.width < NARROW {
            let names = self.rows.iter().map(|row| row.name.chars().count());
            return names.max().unwrap_or_default().min(size.width / 3);
        }
        if self.rows.len() > MAX_TASK_LINES {
            return WIDEST / 2;
        }
        let names = self.rows.iter().map(|row| row.name.chars().count());
        names.max().unwrap_or_default().min(WIDEST)
    }
}

impl Row {
    /// `try 2 of 3`, once it is not the first one; in short `2/3`.
    fn nth_try(&self, is_short: bool) -> String {
        let (n, of) = (self.try_number, self.max_tries);
        match self.try_number > 1 || self.state == Some(TaskState::UpForRetry) {
            true if of > 0 && is_short => format!("{n}/{of}"),
            true if of > 0 => format!("try {n} of {of}"),
            true => format!("try {n}"),
            false => String::new(),
        }
    }

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
                | TaskState::UpForRetry
                | TaskState::UpForReschedule
                | TaskState::Deferred
                | TaskState::AwaitingInput,
            ) => Some(age::between(self.since, now)),
            Some(TaskState::Success | TaskState::Failed) => {
                Some(age::between(self.running_since?, self.since))
            }
        }
    }
}

/// The word for a state, shorter on a narrow screen.
fn word(state: Option<TaskState>, size: Size) -> &'static str {
    let is_narrow = size.width < NARROW;
    match task_word(state) {
        "up_for_retry" if is_narrow => "retry",
        // Longer than a column for states.
        "up_for_reschedule" => "reschedule",
        "awaiting_input" if is_narrow => "input",
        "upstream_failed" if is_narrow => "upstream",
        word => word,
    }
}

/// Whether a task has a line of its own in a large run.
fn is_active(state: Option<TaskState>) -> bool {
    match state {
        Some(
            TaskState::Running
            | TaskState::Restarting
            | TaskState::Queued
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput,
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
        Some(
            TaskState::Running
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput,
        ) => ACTIVE,
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

/// The text in one line of at most `width` characters, none of which moves the cursor.
fn fit(text: &str, width: usize) -> String {
    let line = one_line(text.lines().next().unwrap_or_default());
    if line.chars().count() <= width {
        return line;
    }
    line.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests;
