//! `longshore shim`: the small process above each container of the process node. The node starts it; people do not.

use std::{ffi::OsString, process::ExitCode};

use clap::Args;

/// Run one container for the process node
#[derive(Args, Debug)]
pub(crate) struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Hands over to the node's shim.
pub(crate) fn run(args: &ShimArgs) -> ExitCode {
    longshore_node::shim::main(args.args.iter().cloned())
}
