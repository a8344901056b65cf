//! Why a cron expression cannot be read.

use std::ops::Range;

/// What is wrong with a cron expression, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CronError {
    /// Bytes of the expression.
    pub range: Range<usize>,
    /// What was expected and what was found.
    pub message: String,
    /// What to write instead.
    pub help: String,
}
