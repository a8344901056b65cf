//! Tables as every command prints them: no borders, upper-case headers, two blanks between columns, never wrapped.

use comfy_table::{ContentArrangement, Table as Lines, presets};
use jiff::Timestamp;

use crate::{printable::one_line, progress::age};

/// The text of an empty cell.
pub(super) const NONE: &str = "-";

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    lines: Lines,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(headers: &[&str]) -> Self {
        let mut lines = Lines::new();
        lines
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(headers.iter().copied());
        Self { lines }
    }

    /// Without the headers.
    pub(super) fn without_headers(mut self) -> Self {
        let rows: Vec<_> = self.lines.row_iter().cloned().collect();
        let mut lines = Lines::new();
        lines
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .add_rows(rows);
        self.lines = lines;
        self
    }

    /// Adds a row. What users wrote must not move the cursor.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.add_row(cells.into_iter().map(|cell| {
            let cell = one_line(&cell);
            if cell.is_empty() {
                NONE.to_owned()
            } else {
                cell
            }
        }));
    }

    /// The lines.
    pub(super) fn render(mut self) -> String {
        for column in self.lines.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut text = String::new();
        for line in self.lines.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Text, or nothing.
pub(super) fn or_none(text: Option<&str>) -> String {
    text.unwrap_or(NONE).to_owned()
}

/// The time since `at`, as text.
pub(super) fn since(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or(NONE.to_owned(), |at| age::between(at, now))
}

/// The time from start to end, or until now.
pub(super) fn took(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> String {
    from.map_or(NONE.to_owned(), |from| {
        age::between(from, to.unwrap_or(now))
    })
}

/// An instant, to the second.
pub(super) fn instant(at: Option<Timestamp>) -> String {
    at.map_or(NONE.to_owned(), |at| format!("{at:.0}"))
}
