//! How many files this process may have open.
//!
//! Each connection, each watch and each followed log is an open file. Shells start programs with a soft limit of 1024
//! for the sake of programs that call `select`, and expect other programs to raise the limit themselves.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit with which this process was started, where [`raise`] has replaced it.
static STARTED_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit to the hard one. A limit that cannot be raised stays.
pub(crate) fn raise() {
    const LIMIT: Resource = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(LIMIT).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(LIMIT, hard, hard)?;
            STARTED_WITH.get_or_init(|| soft);
            tracing::debug!(from = soft, to = hard, "the limit of open files is raised");
        }
        Ok(())
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files is not raised");
    }
}

/// The soft limit that pods get: that of the shell, because a program that calls `select` breaks with a higher limit.
/// `None` where pods inherit the right limit.
pub(crate) fn of_pods() -> Option<u64> {
    STARTED_WITH.get().copied()
}
