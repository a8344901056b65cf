//! The last lines of a task's log.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::printable::plain;

/// No more than this is read, from the end.
const MAX_BYTES: u64 = 64 * 1024;

/// The last `n` lines of a container's log, without the times and stream names that the file has (CRI's log format) and
/// without control characters: the output of a task must not move the cursor of the terminal that shows the report.
pub(crate) fn tail(path: &Path, n: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(n);
    Ok(lines[from..]
        .iter()
        .map(|line| plain(without_cri_prefix(line)))
        .collect())
}

/// `2026-11-21T10:00:00.5Z stderr F no such file` without its first three words; other lines as they are.
fn without_cri_prefix(line: &str) -> &str {
    let mut words = line.splitn(4, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(time), Some("stdout" | "stderr"), Some("F" | "P"))
            if time.parse::<jiff::Timestamp>().is_ok() =>
        {
            words.next().unwrap_or_default()
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_lines_come_without_prefixes_and_control_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        fs::write(
            &path,
            "2026-11-21T10:00:00.1Z stdout F one\n\
             2026-11-21T10:00:00.2Z stderr F \x1b[31mtwo\x1b[0m\x07\u{202e}\n\
             2026-11-21T10:00:00.3Z stdout F\n\
             stdout F four\n",
        )
        .unwrap();
        assert_eq!(tail(&path, 3).unwrap(), ["two", "", "stdout F four"]);
        assert_eq!(tail(&path, 9).unwrap().len(), 4);
    }

    #[test]
    fn only_the_end_of_a_large_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        fs::write(&path, "x".repeat(1_000_000) + "\nlast\n").unwrap();
        assert_eq!(tail(&path, 1).unwrap(), ["last"]);
    }
}
