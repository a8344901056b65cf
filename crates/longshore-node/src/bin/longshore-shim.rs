//! The shim as a program of its own, for this crate's tests; the real binary re-executes itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore_node::shim::main(std::env::args_os().skip(1))
}
