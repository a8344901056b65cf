//! The limit of open files of containers.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

const OPEN_FILES: &str = "--open-files=";

/// An argument that goes in front of the others: containers and probes have this soft limit of open files, whatever limit
/// the node has for itself.
pub fn with_open_files(limit: u64) -> OsString {
    format!("{OPEN_FILES}{limit}").into()
}

/// Lowers the soft limit of this process, which everything that it starts inherits, if the argument is the one of
/// [`with_open_files`]; returns whether it is. The hard limit stays, so that a program may raise its own.
pub(super) fn limit(argument: &str) -> bool {
    let Some(limit) = argument.strip_prefix(OPEN_FILES) else {
        return false;
    };
    let Ok(limit) = limit.parse::<u64>() else {
        return true;
    };
    let set = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, limit.min(hard), hard));
    if let Err(error) = set {
        drop(writeln!(
            io::stderr(),
            "shim: the limit of open files stays: {error}"
        ));
    }
    true
}
