//! Which end of a child it was: a pure function of what happened.

use std::time::Duration;

use crate::{
    end::{End, Exit, TooLarge, TooLong},
    frame::FrameError,
};

/// Why we ended a child. The first cause counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Stop,
    TooLong(TooLong),
    TooLarge(TooLarge),
    Garbage(FrameError),
    ClosedPipe { after: Duration },
}

impl From<FrameError> for Cause {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::TooLarge { found, max } => Self::TooLarge(TooLarge::Frame { found, max }),
            other @ (FrameError::NotMsgpack(_)
            | FrameError::Trailing(_)
            | FrameError::NotAnArray(_)
            | FrameError::TooShort(_)
            | FrameError::Id(_)
            | FrameError::Truncated { .. }
            | FrameError::NotWritable(_)) => Self::Garbage(other),
        }
    }
}

/// `cause`: why we ended it; `last`: what is wrong with the end of its stream; `exit`: what the keeper saw.
pub(super) fn end(cause: Option<Cause>, last: Result<(), FrameError>, exit: Exit) -> End {
    match (cause, exit) {
        // It never got to its program: whatever else we saw follows from that.
        (_, Exit::Refused(why)) => End::NotStarted(why),
        (Some(Cause::Stop), _) => End::Stopped,
        (Some(Cause::TooLong(what)), _) => End::TooLong(what),
        (Some(Cause::TooLarge(what)), _) => End::TooLarge(what),
        (Some(Cause::Garbage(why)), _) => End::Garbage(why),
        (Some(Cause::ClosedPipe { after }), _) => End::ClosedPipe { after },
        (None, Exit::KeeperLost(why)) => End::KeeperLost(why),
        (None, Exit::Signal(number)) => End::Signalled(number),
        // A frame that is cut says less than the code of a child that failed.
        (None, Exit::Code(0)) => last.err().map_or(End::Exited(0), End::Garbage),
        (None, Exit::Code(code)) => End::Exited(code),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::end::{NotStarted, Step};

    fn refused() -> Exit {
        Exit::Refused(NotStarted::Refused {
            step: Step::Directory,
            source: io::Error::from_raw_os_error(2),
        })
    }

    #[test]
    fn the_first_cause_counts_and_a_refused_start_before_it() {
        let wall = TooLong::Wall(Duration::from_secs(1));
        let memory = TooLarge::Memory { found: 2, max: 1 };
        let cut = FrameError::Truncated { expected: 3 };
        let after = Duration::from_secs(1);
        let cases: [(Option<Cause>, bool, Exit, End); 12] = [
            (None, false, Exit::Code(0), End::Exited(0)),
            (None, true, Exit::Code(0), End::Garbage(cut.clone())),
            (None, true, Exit::Code(3), End::Exited(3)),
            (None, true, Exit::Signal(11), End::Signalled(11)),
            (
                None,
                false,
                Exit::KeeperLost("x".into()),
                End::KeeperLost("x".into()),
            ),
            (Some(Cause::Stop), false, Exit::Code(1), End::Stopped),
            (
                Some(Cause::TooLong(wall)),
                false,
                Exit::Code(0),
                End::TooLong(wall),
            ),
            (
                Some(Cause::TooLarge(memory)),
                false,
                Exit::Signal(9),
                End::TooLarge(memory),
            ),
            (
                Some(cut.clone().into()),
                false,
                Exit::Signal(9),
                End::Garbage(cut.clone()),
            ),
            (
                Some(FrameError::TooLarge { found: 9, max: 8 }.into()),
                true,
                Exit::Signal(9),
                End::TooLarge(TooLarge::Frame { found: 9, max: 8 }),
            ),
            (
                Some(Cause::ClosedPipe { after }),
                true,
                Exit::Signal(9),
                End::ClosedPipe { after },
            ),
            (
                Some(Cause::Stop),
                false,
                Exit::KeeperLost("x".into()),
                End::Stopped,
            ),
        ];
        for (cause, is_cut, exit, expected) in cases {
            let last = if is_cut { Err(cut.clone()) } else { Ok(()) };
            let found = end(cause, last, exit);
            assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
        let found = end(Some(Cause::Stop), Ok(()), refused());
        assert!(matches!(found, End::NotStarted(_)), "{found:?}");
    }
}
