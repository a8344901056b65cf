//! What an error means for the round that met it.

use std::error::Error;

use serde::Serialize;

/// What follows from an error. The kit's single error policy maps it to back-off and to a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Class {
    /// The failure may pass by itself (429, 5xx, transport): again with back-off, for ever.
    Retry,
    /// Another writer was first: observe again at once, then with back-off.
    Conflict,
    /// The input is wrong and stays wrong until a user changes it: a condition and an Event, never a hot retry.
    Invalid,
    /// A bug of Longshore. Counted, logged as an error, retried slowly.
    Bug,
}

/// Every error enum of the workspace says what follows from it.
pub trait Classify {
    /// What follows from this error.
    fn class(&self) -> Class;
}

/// An error with everything that caused it, on one line: the last cause is what helps. A cause with the text of the
/// error that it caused is written once.
pub fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl std::fmt::Display for Link {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let source: &Link = self.1.as_deref()?;
            Some(source)
        }
    }

    #[test]
    fn causes_follow_their_error_and_repetitions_are_left_out() {
        let link = |text, source| Link(text, Some(Box::new(source)));
        let last = Link("connection refused", None);
        let error = link("no answer", link("no answer", last));
        assert_eq!(chain(&error), "no answer: connection refused");
        assert_eq!(chain(&Link("alone", None)), "alone");
    }
}
