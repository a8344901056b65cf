//! Errors as text.

use std::error::Error;

/// An error with everything that caused it, on one line: the last cause is what helps. What says the same as the error
/// that it caused is said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts.dedup();
    texts.join(": ")
}
