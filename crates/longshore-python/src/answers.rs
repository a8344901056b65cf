//! Who answers a child.

use std::future::Future;

use rmpv::Value;

use crate::frame::Frame;

/// Answers the requests of a child. Several requests are answered at the same time, as many as
/// [`Limits::n_in_flight`](crate::Limits::n_in_flight) allows; the answers go back in the order in which they are ready.
pub trait Answers: Sync {
    /// The answer to one request: its body says what is asked, its third element may be a trace context.
    ///
    /// *Cancellation*: the future is dropped when the child ends by a limit; what it has done stays done.
    fn answer(&self, request: Frame) -> impl Future<Output = Answer> + Send;
}

/// The answer to a request. Airflow's children wait for one after each request, also where it is empty.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The body; nil is an empty answer.
    Body(Value),
    /// The error, which stands in the third place (Airflow: `ErrorResponse`).
    Error(Value),
}

impl Answer {
    pub(crate) fn into_frame(self, id: u64) -> Frame {
        match self {
            Self::Body(body) => Frame::new(id, body),
            Self::Error(error) => Frame::error(id, error),
        }
    }
}
