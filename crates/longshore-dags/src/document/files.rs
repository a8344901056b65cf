//! The files beside a DAG, which travel with each of its runs.

use std::{collections::BTreeMap, io};

use super::{
    node::{Node, Span},
    problem::Code,
    reader::Reader,
    suggest::quoted,
};
use crate::model::MAX_FILES_BYTES;

/// Longest key of a ConfigMap.
const LONGEST_NAME: usize = 253;

/// Reads the listed files; in the DAG each one has its name without folders.
pub(super) fn read(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
    read_file: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
) -> Option<BTreeMap<String, Vec<u8>>> {
    let paths = reader.texts(what, node, "write `[data.csv]`")?;
    let mut files = BTreeMap::new();
    for path in paths {
        let name = match file_name(&path.text) {
            Ok(name) => name,
            Err((why, help)) => {
                let message = format!("file `{}` {why}", quoted(&path.text));
                reader.report(Code::File, path.span, message, help);
                continue;
            }
        };
        if files.contains_key(name) {
            let message = format!("two files are called `{name}`");
            let help = "rename one: tasks see all files in one folder";
            reader.report(Code::File, path.span, message, help);
            continue;
        }
        match read_file(&path.text) {
            Ok(content) => {
                files.insert(name.to_owned(), content);
            }
            Err(error) => report_unreadable(reader, &path.text, path.span, &error),
        }
    }
    let n_bytes: usize = files
        .iter()
        .map(|(name, content)| name.len() + content.len())
        .sum();
    if n_bytes > MAX_FILES_BYTES {
        let message = format!(
            "{what} are larger than the {MAX_FILES_BYTES} bytes that can travel with a run"
        );
        let help = "put large files where tasks can fetch them, or into their image";
        reader.report(Code::File, node.span, message, help);
    }
    Some(files)
}

fn report_unreadable(reader: &mut Reader<'_>, path: &str, span: Span, error: &io::Error) {
    let path = quoted(path);
    let (message, help) = if error.kind() == io::ErrorKind::NotFound {
        let help = "paths are relative to the folder of the DAG file";
        (format!("file `{path}` does not exist"), help)
    } else {
        let help = "list readable files inside the folder of the DAG file";
        (format!("file `{path}` cannot be read: {error}"), help)
    };
    reader.report(Code::File, span, message, help);
}

/// The last part of a relative path that stays in its folder. The error continues a sentence, and has a help.
fn file_name(path: &str) -> Result<&str, (&'static str, &'static str)> {
    const INSIDE: &str = "name a file in the folder of the DAG file, or below it";
    if path.starts_with(['/', '\\', '~']) {
        return Err(("is an absolute path", INSIDE));
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err(("leaves the folder of the DAG file", INSIDE));
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name == "." {
        return Err(("names no file", INSIDE));
    }
    if name.len() > LONGEST_NAME || name.starts_with("..") || !name.chars().all(is_allowed) {
        let help = "rename it: letters, digits, `-`, `_` and `.`, at most 253";
        return Err(("has a name that a ConfigMap does not take", help));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_the_folder_have_a_name() {
        for (path, expected) in [
            ("a.csv", Some("a.csv")),
            ("data/a.csv", Some("a.csv")),
            ("./a.csv", Some("a.csv")),
            (".env", Some(".env")),
            ("", None),
            ("data/", None),
            (".", None),
            ("/etc/passwd", None),
            ("~/a.csv", None),
            ("../a.csv", None),
            ("data/../../a.csv", None),
            ("..\\a.csv", None),
            ("a b.csv", None),
            ("..data", None),
            ("ü.csv", None),
        ] {
            assert_eq!(file_name(path).ok(), expected, "of {path:?}");
        }
    }
}
