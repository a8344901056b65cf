//! The text of a DAG file.

use std::{
    fmt, fs,
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;

/// Longest text of a DAG file, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 3 * 1024 * 1024;

/// Reads the text of a DAG file from a path.
///
/// # Errors
/// The file cannot be read, is no regular file (a read of a pipe or a device might never end), or holds what
/// [`read_text`] refuses.
pub fn read_file(path: &Path) -> io::Result<String> {
    let is_odd = |kind: fs::FileType| !kind.is_file() && !kind.is_dir();
    if is_odd(fs::metadata(path)?.file_type()) {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    read(file, Some(length))
}

/// Reads the text of a DAG file, up to the size at which it is known to be too long.
///
/// # Errors
/// The text cannot be read, is longer than [`MAX_DOCUMENT_BYTES`], or is no UTF-8.
pub fn read_text(from: impl Read) -> io::Result<String> {
    read(from, None)
}

/// `length` is for the message.
fn read(from: impl Read, length: Option<u64>) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_DOCUMENT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        let why = match length {
            Some(length) => too_long(length),
            None => too_long("more"),
        };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::other(format!("it is not UTF-8 at byte {at}"))
    })
}

/// The kind of the Kubernetes object, or of the first of several, that a text is a manifest of; `None` for any other text.
pub fn kubernetes_kind(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "apiVersion")]
        _version: String,
        kind: String,
    }
    let objects: Vec<Head> = serde_saphyr::from_multiple(text).ok()?;
    Some(objects.into_iter().next()?.kind)
}

/// What is said of a text of this length.
pub(super) fn too_long(length: impl fmt::Display) -> String {
    format!("a DAG file has at most {MAX_DOCUMENT_BYTES} bytes, this one has {length}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_told_from_a_dag() {
        let table = [
            ("apiVersion: v1\nkind: Pod\nspec: {}\n", Some("Pod")),
            (
                "apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Pod\n",
                Some("Secret"),
            ),
            ("apiVersion: v1\nkind: Pod\n---\ndag_id: a\n", None),
            ("dag_id: a\nkind: Pod\n", None),
            ("[", None),
            ("", None),
        ];
        for (text, kind) in table {
            assert_eq!(kubernetes_kind(text).as_deref(), kind, "{text}");
        }
    }
}
