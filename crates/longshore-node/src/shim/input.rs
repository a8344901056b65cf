//! The standard input of a container: a named pipe in the attempt's directory, which the node opens for a client that
//! attaches. So the node that comes back can write to a program that an earlier one has started.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use nix::{libc, poll::PollFlags, sys::stat::Mode, unistd::mkfifo};

use super::terminal;

/// The name of the pipe.
pub(crate) const STDIN_FILE: &str = "stdin";

/// What is carried to a terminal at once; as much as one takes.
const CHUNK: usize = 4096;

/// The shim's part of a container's input.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Keeps the pipe open while no client is attached: its writing end for a program that reads the pipe itself, both
    /// ends where we read it for a terminal.
    pipe: Option<File>,
    /// Our end of the terminal.
    terminal: Option<File>,
    /// What the terminal did not take yet.
    pending: Vec<u8>,
}

impl Input {
    /// The input of a program without a terminal, and the program's end of it.
    pub(super) fn pipe(dir: &Path) -> io::Result<(Input, OwnedFd)> {
        let both = make(dir)?;
        let path = dir.join(STDIN_FILE);
        let programs = File::open(&path)?;
        let pipe = OpenOptions::new().write(true).open(&path)?;
        drop(both);
        let input = Input {
            pipe: Some(pipe),
            ..Input::default()
        };
        Ok((input, programs.into()))
    }

    /// The input of a program with a terminal.
    pub(super) fn terminal(dir: &Path, ours: &OwnedFd, has_stdin: bool) -> io::Result<Input> {
        Ok(Input {
            pipe: has_stdin.then(|| make(dir)).transpose()?,
            terminal: Some(ours.try_clone()?.into()),
            pending: Vec::new(),
        })
    }

    /// What to wait for before the next [`Input::advance`].
    pub(super) fn fd(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let terminal = self.terminal.as_ref()?;
        if self.pending.is_empty() {
            Some((self.pipe.as_ref()?.as_fd(), PollFlags::POLLIN))
        } else {
            Some((terminal.as_fd(), PollFlags::POLLOUT))
        }
    }

    /// Carries some of the pipe to the terminal; never waits. A program that does not read stops its client, because we read
    /// no more before the terminal has taken what we have.
    pub(super) fn advance(&mut self) {
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        if self.pending.is_empty()
            && let Some(pipe) = &mut self.pipe
        {
            let mut chunk = [0_u8; CHUNK];
            match pipe.read(&mut chunk) {
                Ok(n) => self.pending.extend_from_slice(&chunk[..n]),
                Err(e) if is_temporary(&e) => {}
                Err(_) => self.pipe = None,
            }
        }
        match terminal.write(&self.pending) {
            Ok(n) => drop(self.pending.drain(..n)),
            Err(e) if is_temporary(&e) => {}
            // Nobody has the terminal open any more.
            Err(_) => {
                self.pending.clear();
                self.pipe = None;
            }
        }
    }

    /// The end of the input, once clients that are attached have let go of it.
    pub(super) fn close(&mut self) {
        self.pipe = None;
    }

    /// Tells the terminal its size.
    pub(super) fn resize(&self, width: u16, height: u16) {
        if let Some(terminal) = &self.terminal {
            terminal::resize(terminal, width, height);
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Makes the pipe and opens both of its ends, which waits for nobody.
fn make(dir: &Path) -> io::Result<File> {
    let path = dir.join(STDIN_FILE);
    drop(fs::remove_file(&path));
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::terminal::Terminal;

    fn client(dir: &Path) -> File {
        OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(dir.join(STDIN_FILE))
            .expect("the pipe has a reader")
    }

    #[test]
    fn a_program_reads_what_one_client_after_the_other_writes_until_the_input_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut input, programs) = Input::pipe(dir.path()).expect("a pipe");
        for text in ["one ", "two"] {
            client(dir.path())
                .write_all(text.as_bytes())
                .expect("writes");
        }
        assert!(input.fd().is_none());
        input.close();
        let mut found = String::new();
        File::from(programs)
            .read_to_string(&mut found)
            .expect("ends");
        assert_eq!(found, "one two");
    }

    #[test]
    fn a_terminal_that_takes_nothing_stops_the_client() {
        let dir = tempfile::tempdir().expect("a directory");
        let Terminal { ours, programs } = Terminal::open().expect("a terminal");
        let mut input = Input::terminal(dir.path(), &ours, true).expect("an input");
        let mut client = client(dir.path());
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let mut n_written = 0;
        let stopped = (0..100_000).find(|_| {
            match client.write(&line) {
                Ok(n) => n_written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) => panic!("{e}"),
            }
            input.advance();
            false
        });
        assert!(stopped.is_some(), "took {n_written} bytes");
        assert!(input.pending.len() <= CHUNK);
        assert_eq!(input.fd().expect("waits").1, PollFlags::POLLOUT);
        drop(programs);
    }
}
