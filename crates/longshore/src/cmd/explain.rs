//! `longshore explain CODE`.

use clap::Args;

use crate::{
    cli::help_end,
    error::{CliError, pages},
    exit::Exit,
    output,
};

/// Explain an error code
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore explain LS1203"))]
pub(crate) struct ExplainArgs {
    /// The code, as LS1203
    code: String,
}

/// Prints the page of a code.
pub(crate) fn explain(args: &ExplainArgs) -> Result<Exit, CliError> {
    let code = args.code.to_uppercase();
    let page = pages::page(&code).ok_or_else(|| CliError::UnknownCode {
        nearest: pages::nearest(&code),
        code,
    })?;
    output::text(page);
    Ok(Exit::Success)
}
