//! A log file that does not fill the disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Appends to a file up to a size; then the file becomes `<name>.1`, in place of the one before, and a new one begins.
#[derive(Debug)]
pub(super) struct BoundedFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
    max_bytes: u64,
}

impl BoundedFile {
    /// Goes on with what is there.
    pub(super) fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let file = append(path)?;
        Ok(Self {
            path: path.to_owned(),
            n_bytes: file.metadata()?.len(),
            file,
            max_bytes,
        })
    }

    /// Begins a new file.
    fn turn(&mut self) -> io::Result<()> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        fs::rename(&self.path, older)?;
        self.file = append(&self.path)?;
        self.n_bytes = 0;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for BoundedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.n_bytes >= self.max_bytes {
            self.turn()?;
        }
        let n_written = self.file.write(line)?;
        self.n_bytes = self.n_bytes.saturating_add(n_written as u64);
        Ok(n_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_makes_room_and_the_newest_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        for restart in 0..3 {
            let mut log = BoundedFile::open(&path, 40).unwrap();
            for line in 0..10 {
                let line = format!("{restart} {line} 23456789\n");
                log.write_all(line.as_bytes()).unwrap();
            }
        }
        let newest = fs::read_to_string(&path).unwrap();
        let older = fs::read_to_string(folder.path().join("a.log.1")).unwrap();
        assert!((older + &newest).ends_with("2 7 23456789\n2 8 23456789\n2 9 23456789\n"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(newest.len() <= 52, "{newest}");
    }
}
