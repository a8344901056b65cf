//! What it means to a user that the cluster in the data directory cannot be opened.

use longshore_cluster::OpenError;

pub(super) fn code(error: &OpenError) -> &'static str {
    match error {
        OpenError::Locked { .. } => "LS1702",
        OpenError::Full { .. } => "LS1703",
        OpenError::NoPermission { .. } | OpenError::Io { .. } => "LS1701",
        OpenError::Damaged { .. } => "LS1705",
        OpenError::NewerFormat { .. } => "LS1706",
    }
}

pub(super) fn help(error: &OpenError) -> &'static str {
    match error {
        OpenError::Locked { .. } => {
            "wait for it to end, or choose another with --data-dir DIR or --ephemeral"
        }
        OpenError::Full { .. } => {
            "free some space or choose another disk with --data-dir DIR; nothing that was recorded is lost"
        }
        OpenError::NoPermission { .. } | OpenError::Io { .. } => {
            "make it writable, or choose another with --data-dir DIR"
        }
        OpenError::Damaged { .. } => {
            "restore a backup, or move the file away: runs stay, and their unfinished tasks start again"
        }
        OpenError::NewerFormat { .. } => {
            "use the version that wrote it, or choose another with --data-dir DIR"
        }
    }
}
