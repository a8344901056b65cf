//! A panic is a bug of Longshore, and the user should see it as one: a code, a place to name in a report, no dump.

use std::panic;

use crate::{error::CliError, output};

/// Prints panics as internal errors, unless RUST_BACKTRACE asks for the panic itself.
pub(crate) fn report_as_internal_errors() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        return;
    }
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(
            || "an unknown place".to_owned(),
            |at| format!("{}:{}", at.file(), at.line()),
        );
        output::error(&CliError::Internal { place });
    }));
}
