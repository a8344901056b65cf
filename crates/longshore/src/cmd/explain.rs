//! `longshore explain CODE`.

use clap::Args;
use serde_json::json;

use crate::{
    cli::{Format, Globals, help_end},
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
pub(crate) fn explain(args: &ExplainArgs, globals: &Globals) -> Result<Exit, CliError> {
    let code = args.code.to_uppercase();
    let page = pages::page(&code).ok_or_else(|| CliError::UnknownCode {
        nearest: pages::nearest(&code),
        code: code.clone(),
    })?;
    let object = || {
        let [title, happened, todo] = pages::parts(page);
        json!({
            "kind": "ErrorCode", "code": code, "title": title,
            "whatHappened": happened, "whatToDo": todo,
        })
    };
    match globals.output {
        Format::Json => output::json(&object()),
        Format::Yaml => output::yaml(&object()),
        Format::Name => output::line(&code),
        Format::Table | Format::Wide => output::text(page),
    }
    Ok(Exit::Success)
}
