//! What errors of a service, and of the way to it, mean to a user.

use longshore_console::client::ClientError;

use super::pages;
use crate::exit::Exit;

pub(super) const NO_SERVER_HELP: &str =
    "start one with `longshore standalone`, or name one with --server URL or --data-dir DIR";
pub(super) const FILE_HELP: &str = "`longshore standalone` writes it anew when it starts; it must be readable by you only (chmod 600)";

/// The service's own code where it has one that this version knows.
pub(super) fn code(error: &ClientError) -> &'static str {
    match error {
        ClientError::Address(_) => "LS1025",
        ClientError::Unreachable { .. } | ClientError::Closed(_) => "LS1022",
        ClientError::Foreign { .. } => "LS1023",
        ClientError::Refused(problem) => pages::PAGES
            .iter()
            .find(|(known, _)| **known == *problem.code)
            .map_or("LS1023", |(known, _)| known),
    }
}

pub(super) fn help(error: &ClientError) -> String {
    match error {
        ClientError::Address(_) => {
            "give host and port, as `--server http://127.0.0.1:7080`".to_owned()
        }
        ClientError::Unreachable { .. } | ClientError::Closed(_) => {
            "start it with `longshore standalone`, or name another with --server URL".to_owned()
        }
        ClientError::Foreign { .. } => {
            "check that --server names a Longshore service of the same version".to_owned()
        }
        ClientError::Refused(problem) => problem.help.to_string(),
    }
}

pub(super) fn exit(error: &ClientError) -> Exit {
    match error {
        ClientError::Address(_) => Exit::Usage,
        ClientError::Unreachable { .. } | ClientError::Closed(_) | ClientError::Foreign { .. } => {
            Exit::Failure
        }
        ClientError::Refused(problem) => match problem.status {
            401 | 403 => Exit::NotAuthorised,
            404 | 501 => Exit::NotFoundOrUnsupported,
            400 | 405 | 413 | 415 | 422 => Exit::Usage,
            _ => Exit::Failure,
        },
    }
}
