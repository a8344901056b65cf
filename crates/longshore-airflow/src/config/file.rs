//! `airflow.cfg`, read as Python's `configparser` reads it.

/// A line that sets something, or that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// `key = value`, with the lines that go on with it.
    Setting {
        line: usize,
        section: String,
        key: String,
        value: String,
    },
    /// Neither a section nor a setting.
    Unreadable { line: usize, text: String },
}

/// All settings of a file, in its order. Keys are in small letters, comments are left out.
pub(super) fn parse(file: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section: Option<String> = None;
    // The indent of the setting that further lines may go on with.
    let mut open: Option<usize> = None;
    for (at, raw) in file.lines().enumerate() {
        let line = at + 1;
        let text = raw.trim();
        if text.starts_with(['#', ';']) {
            continue;
        }
        let indent = raw.len() - raw.trim_start().len();
        if text.is_empty() || open.is_some_and(|own| indent > own) {
            go_on(&mut entries, open.is_some(), text);
            continue;
        }
        open = None;
        if let Some(name) = text.strip_prefix('[').and_then(|it| it.split_once(']')) {
            section = Some(name.0.trim().to_owned());
            continue;
        }
        let parts = text.split_once(['=', ':']);
        match (&section, parts) {
            (Some(section), Some((key, value))) if !key.trim().is_empty() => {
                entries.push(Entry::Setting {
                    line,
                    section: section.clone(),
                    key: key.trim().to_ascii_lowercase(),
                    value: value.trim().to_owned(),
                });
                open = Some(indent);
            }
            (Some(_) | None, _) => entries.push(Entry::Unreadable {
                line,
                text: text.to_owned(),
            }),
        }
    }
    for entry in &mut entries {
        if let Entry::Setting { value, .. } = entry {
            value.truncate(value.trim_end().len());
        }
    }
    entries
}

/// Adds a line to the value of the last setting.
fn go_on(entries: &mut [Entry], is_open: bool, text: &str) {
    if let (true, Some(Entry::Setting { value, .. })) = (is_open, entries.last_mut()) {
        value.push('\n');
        value.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(line: usize, section: &str, key: &str, value: &str) -> Entry {
        Entry::Setting {
            line,
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn a_file_is_read_as_configparser_reads_it() {
        let file = "\
[core]
# A comment.
; Another one.
Parallelism = 8
executor: KubernetesExecutor
dags_folder=/a=b
empty =
args = {
    \"a\": 1,
    # A comment within.

    \"b\": 2 }

[scheduler] # rest
  task_queued_timeout = 5
  next = 6
";
        assert_eq!(
            parse(file),
            [
                setting(4, "core", "parallelism", "8"),
                setting(5, "core", "executor", "KubernetesExecutor"),
                setting(6, "core", "dags_folder", "/a=b"),
                setting(7, "core", "empty", ""),
                setting(8, "core", "args", "{\n\"a\": 1,\n\n\"b\": 2 }"),
                setting(15, "scheduler", "task_queued_timeout", "5"),
                setting(16, "scheduler", "next", "6"),
            ]
        );
    }

    #[test]
    fn what_is_no_setting_is_told() {
        let unreadable = |line, text: &str| Entry::Unreadable {
            line,
            text: text.to_owned(),
        };
        let file = "parallelism = 8\n[core]\nnonsense\n= 5\nparallelism = 9\n";
        assert_eq!(
            parse(file),
            [
                unreadable(1, "parallelism = 8"),
                unreadable(3, "nonsense"),
                unreadable(4, "= 5"),
                setting(5, "core", "parallelism", "9"),
            ]
        );
        assert_eq!(parse(""), []);
    }
}
