//! Connect's error codes.

use std::fmt;

use http::StatusCode;

/// Why a service refused: Connect's codes, which are gRPC's, in the order of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The caller gave up.
    Canceled,
    /// Not said.
    Unknown,
    /// The request is wrong, whatever the state of the service.
    InvalidArgument,
    /// It took too long.
    DeadlineExceeded,
    /// What was asked for is not there.
    NotFound,
    /// What was to be made is there.
    AlreadyExists,
    /// The caller is known, and may not.
    PermissionDenied,
    /// A quota is used up.
    ResourceExhausted,
    /// The state of the service does not allow it.
    FailedPrecondition,
    /// Another caller was first.
    Aborted,
    /// Beyond the end.
    OutOfRange,
    /// The service has no such method.
    Unimplemented,
    /// The service is broken.
    Internal,
    /// The service is not there for the moment.
    Unavailable,
    /// Data is lost for good.
    DataLoss,
    /// The caller has no valid credentials.
    Unauthenticated,
}

impl Code {
    pub(crate) const ALL: [Self; 16] = [
        Self::Canceled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// As it is on the wire, and the status of an answer with it.
    fn wire(self) -> (&'static str, u16) {
        match self {
            Self::Canceled => ("canceled", 499),
            Self::Unknown => ("unknown", 500),
            Self::InvalidArgument => ("invalid_argument", 400),
            Self::DeadlineExceeded => ("deadline_exceeded", 504),
            Self::NotFound => ("not_found", 404),
            Self::AlreadyExists => ("already_exists", 409),
            Self::PermissionDenied => ("permission_denied", 403),
            Self::ResourceExhausted => ("resource_exhausted", 429),
            Self::FailedPrecondition => ("failed_precondition", 400),
            Self::Aborted => ("aborted", 409),
            Self::OutOfRange => ("out_of_range", 400),
            Self::Unimplemented => ("unimplemented", 501),
            Self::Internal => ("internal", 500),
            Self::Unavailable => ("unavailable", 503),
            Self::DataLoss => ("data_loss", 500),
            Self::Unauthenticated => ("unauthenticated", 401),
        }
    }

    /// `not_found`.
    pub fn name(self) -> &'static str {
        self.wire().0
    }

    /// The status of an answer with this code.
    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.wire().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The code of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// gRPC's number, from 1.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The code of this number of gRPC's.
    pub fn of_number(number: u32) -> Self {
        let at = usize::try_from(number)
            .ok()
            .and_then(|it| it.checked_sub(1));
        at.and_then(|at| Self::ALL.get(at).copied())
            .unwrap_or(Self::Unknown)
    }

    /// What an answer means that something between here and the service gave.
    pub fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502..=504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
