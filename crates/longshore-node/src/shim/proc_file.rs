//! Files of the kernel, which are made as they are read and have no size before.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Holds the `stat` of any process.
pub(super) const STAT: usize = 1024;

/// Reads such a file with two reads where it has less than `n_expected` bytes: `fs::read` asks for the size first, which
/// is 0, and then begins with very small pieces.
pub(super) fn read(path: impl AsRef<Path>, n_expected: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(n_expected);
    // What has a limit is read without a look at its size.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_a_whole_whatever_was_expected() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let content = vec![b'x'; 5_000];
        std::fs::write(&path, &content).expect("a file");
        for n_expected in [0, 5_000, 10_000] {
            assert_eq!(read(&path, n_expected).expect("readable"), content);
        }
        assert!(!read("/proc/self/stat", STAT).expect("readable").is_empty());
    }
}
