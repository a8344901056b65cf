//! A container's output as a log file in CRI format: `<RFC 3339> stdout F line`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::PathBuf,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
};

use crate::clock;

/// Longer lines are cut into parts marked `P`, as container runtimes do.
const MAX_LINE: usize = 16 * 1024;

/// The most that is read at once: as much as the largest pipe of an ordinary user holds.
const MAX_READ: usize = 1024 * 1024;

/// The log file of an attempt. It is made with the first entry: many tasks say nothing, and a file costs them as much as
/// anything else on the disk.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    /// A file that need not be there.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn open(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.create(true).append(true).mode(0o600);
            self.file = Some(options.open(&self.path)?);
        }
        let file = self.file.as_mut();
        file.ok_or_else(|| io::Error::other("the log is not open"))
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One of a container's two output streams.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// The read end of a stream and the line that is not complete yet.
#[derive(Debug)]
pub(super) struct LineReader {
    pipe: File,
    stream: Stream,
    pending: Vec<u8>,
    /// A line that is not complete goes to the log at once, marked `P`: clients wait for the prompt.
    is_live: bool,
}

/// Whether a stream can still give something.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Ended,
}

impl LineReader {
    /// Reads a pipe without ever waiting for it.
    pub(super) fn new(pipe: OwnedFd, stream: Stream, is_live: bool) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            pipe: pipe.into(),
            stream,
            pending: Vec::new(),
            is_live,
        })
    }

    /// Moves what the pipe holds into the log, or the first [`MAX_READ`] bytes of it: a program that writes as fast as
    /// we read must not keep us.
    pub(super) fn drain(&mut self, log: &mut impl Write) -> io::Result<Flow> {
        let mut buffer = [0_u8; 32 * 1024];
        for _ in 0..MAX_READ / buffer.len() {
            let n = match self.pipe.read(&mut buffer) {
                Ok(0) => return self.finish(log).map(|()| Flow::Ended),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return self.show(log).map(|()| Flow::Open);
                }
                // A terminal whose last process has gone fails instead of ending.
                Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                    return self.finish(log).map(|()| Flow::Ended);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.pending.extend_from_slice(&buffer[..n]);
            self.write_lines(log)?;
        }
        Ok(Flow::Open)
    }

    /// Writes the last line of a program that did not end it.
    pub(super) fn finish(&mut self, log: &mut impl Write) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rest = std::mem::take(&mut self.pending);
        log.write_all(&entry(self.stream, 'F', &rest))
    }

    /// Writes what there is of a line that others wait for.
    fn show(&mut self, log: &mut impl Write) -> io::Result<()> {
        if !self.is_live || self.pending.is_empty() {
            return Ok(());
        }
        let part = std::mem::take(&mut self.pending);
        log.write_all(&entry(self.stream, 'P', &part))
    }

    fn write_lines(&mut self, log: &mut impl Write) -> io::Result<()> {
        let mut out = Vec::new();
        let mut from = 0;
        while let Some(rest) = self.pending.get(from..).filter(|rest| !rest.is_empty()) {
            let window = &rest[..rest.len().min(MAX_LINE + 1)];
            if let Some(end) = window.iter().position(|b| *b == b'\n') {
                out.extend(entry(self.stream, 'F', &rest[..end]));
                from += end + 1;
            } else if rest.len() > MAX_LINE {
                out.extend(entry(self.stream, 'P', &rest[..MAX_LINE]));
                from += MAX_LINE;
            } else {
                break;
            }
        }
        self.pending.drain(..from);
        log.write_all(&out)
    }
}

impl AsFd for LineReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

fn entry(stream: Stream, tag: char, line: &[u8]) -> Vec<u8> {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let mut out = format!("{} {name} {tag} ", clock::now()).into_bytes();
    out.extend_from_slice(line);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn lines_of(written: &[&[u8]]) -> Vec<String> {
        lines_of_a(written, false)
    }

    fn lines_of_a(written: &[&[u8]], is_live: bool) -> Vec<String> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let mut reader = LineReader::new(read, Stream::Stdout, is_live).expect("a reader");
        let mut log = Vec::new();
        let mut write = File::from(write);
        for chunk in written {
            write.write_all(chunk).expect("the pipe takes it");
            assert_eq!(reader.drain(&mut log).expect("drains"), Flow::Open);
        }
        drop(write);
        // A test beside this one holds a copy of the end between the fork and the exec of a process that it starts.
        while reader.drain(&mut log).expect("drains") == Flow::Open {
            let mut end = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            poll(&mut end, PollTimeout::NONE).expect("the pipe ends");
        }
        let text = String::from_utf8(log).expect("text");
        text.lines()
            .map(|l| l.split_once(' ').expect("a time").1.to_owned())
            .collect()
    }

    #[test]
    fn a_log_is_made_with_its_first_line_and_goes_on_where_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        for expected in ["one\n", "one\ntwo\n"] {
            let mut log = LogFile::new(path.clone());
            let had = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                path.exists(),
                !had.is_empty(),
                "nothing is made without need"
            );
            let new = &expected.as_bytes()[had.len()..];
            log.write_all(new).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("a log"), expected);
        }
    }

    #[test]
    fn lines_are_cut_where_the_program_ended_them() {
        assert_eq!(
            lines_of(&[b"one\ntw", b"o\n\nlast"]),
            ["stdout F one", "stdout F two", "stdout F ", "stdout F last"]
        );
    }

    #[test]
    fn a_prompt_is_shown_before_its_line_ends() {
        assert_eq!(
            lines_of_a(&[b"one\n$ ", b"ls\n", b"$ "], true),
            ["stdout F one", "stdout P $ ", "stdout F ls", "stdout P $ "]
        );
    }

    #[test]
    fn a_line_longer_than_the_limit_comes_in_parts() {
        let long = vec![b'x'; MAX_LINE + 3];
        let lines = lines_of(&[&long]);
        assert_eq!(lines[0].len(), "stdout P ".len() + MAX_LINE);
        assert_eq!(lines[1], "stdout F xxx");
    }
}
