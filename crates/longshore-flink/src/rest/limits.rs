//! How many questions to JobManagers are in flight, and how long they may take.

use std::time::Duration;

use longshore_kit::{AskLimits, KindLimits};

use super::kind;

/// The time limit of a request that only reads, and of one that only starts an operation (upstream:
/// `flink.client.timeout`).
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a cancellation (upstream: `flink.client.cancel.timeout`).
const CANCEL_TIMEOUT: Duration = Duration::from_mins(1);
/// The time limit for the fetch, the upload and the start of a jar (upstream: `job.submission.timeout`).
const SUBMIT_TIMEOUT: Duration = Duration::from_mins(10);
/// The largest response that is read, in bytes: stack traces and lists of jobs are long.
const ANSWER_BYTES: usize = 4 << 20;
/// How many jars are held in memory at once.
const SUBMISSIONS: usize = 4;

/// The limits of all questions of a controller.
pub fn limits() -> AskLimits {
    let each = KindLimits {
        timeout: TIMEOUT,
        answer_bytes: ANSWER_BYTES,
        in_flight_per_host: 8,
        ..KindLimits::default()
    };
    let of_cancel = KindLimits {
        timeout: CANCEL_TIMEOUT,
        ..each
    };
    let of_submit = KindLimits {
        timeout: SUBMIT_TIMEOUT,
        in_flight: SUBMISSIONS,
        in_flight_per_host: 1,
        ..each
    };
    AskLimits {
        in_flight: 1024,
        each,
        ..AskLimits::default()
    }
    .kind(kind::CANCEL, of_cancel)
    .kind(kind::SUBMIT, of_submit)
}
