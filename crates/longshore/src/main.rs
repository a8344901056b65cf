//! The `longshore` command: reads arguments and environment, wires the crates together, prints, and ends with an exit
//! code that means something.
//!
//! One file per command in [`cmd`]; [`cli`] has the arguments that they share, [`error`] everything that can go wrong
//! in a user's eyes, [`exit`] the exit codes, [`engine`] the controllers and the cluster behind `run`, [`service`] what `standalone` keeps
//! running, [`controller`] what runs on a cluster of the user's.

use std::process::ExitCode;

mod cli;
mod cmd;
mod control;
mod controller;
mod dag_file;
mod data_dir;
mod engine;
mod error;
mod exit;
mod graph;
mod images;
mod kubernetes;
mod local_cluster;
mod logging;
mod open_files;
mod output;
mod panics;
mod pids_limit;
mod pod_streams;
mod printable;
mod progress;
#[cfg(test)]
mod reference;
mod service;
mod signals;
mod storage_file;
mod threads;
mod to_objects;
mod uninstall;

/// Parsing and dropping JSON is most of what happens here: with the allocator of glibc that took half of the processor
/// time of a controller under load.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(ended) = cmd::shim::run(std::env::args_os()) {
        return ended;
    }
    data_dir::keep_files_private();
    panics::report_as_internal_errors();
    cli::main(std::env::args_os())
}
