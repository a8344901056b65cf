//! Tables of Markdown.

/// A table with a row of titles.
pub(super) fn table<const N: usize>(
    titles: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&titles.map(str::to_owned));
    table += &line(&[(); N].map(|()| "---".to_owned()));
    for row in rows {
        table += &line(&row.map(|cell| escaped(&cell)));
    }
    table
}

/// A text as code; nothing where there is no text.
pub(super) fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("`{text}`")
}

/// A cell is one line, in which `|` does not end it.
fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}

#[test]
fn cells_are_one_line_and_keep_their_bars() {
    let made = table(["a", "b"], [["x|y".to_owned(), "1\n2".to_owned()]]);
    assert_eq!(made, "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |\n");
    assert_eq!((code("").as_str(), code("x").as_str()), ("", "`x`"));
}
