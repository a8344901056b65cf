//! Pseudo-terminals: for containers and commands that want one.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
    pty::{grantpt, posix_openpt, ptsname_r, unlockpt},
};

/// Both ends of a pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Our end, which never waits.
    pub(crate) ours: OwnedFd,
    /// The program's end.
    pub(crate) programs: OwnedFd,
}

impl Terminal {
    /// A new one. No process that is started meanwhile inherits it: its end is seen when its program has ended.
    pub(crate) fn open() -> io::Result<Terminal> {
        let ours = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let programs: File = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(ptsname_r(&ours)?)?;
        let ours = ours.as_fd().try_clone_to_owned()?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
        Ok(Terminal {
            ours,
            programs: programs.into(),
        })
    }
}

/// Tells a terminal its size in characters; its foreground process gets SIGWINCH.
pub(crate) fn resize(terminal: &impl AsRawFd, width: u16, height: u16) {
    let size = libc::winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    #[expect(unsafe_code, reason = "a size is set through an ioctl")]
    // SAFETY: the call reads one `winsize`, which lives until it returns. A descriptor that is no terminal fails.
    unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
    }
}

/// Makes standard input the controlling terminal of this process, which leads a session without one.
pub(super) fn take_control() -> io::Result<()> {
    #[expect(unsafe_code, reason = "a terminal is taken through an ioctl")]
    // SAFETY: the call takes two numbers.
    let result = unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
