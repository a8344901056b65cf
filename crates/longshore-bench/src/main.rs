//! Drives one subsystem of Longshore and, in the same run, its floor: the same creators, the same node and the same API
//! server, but in place of our controller a bare client that makes exactly the budgeted writes in the same order and
//! reads nothing. What is steered by are the ratio of the two and the requests for each object.

mod cluster;
mod dags;
mod definitions;
mod figures;
mod podops;
mod pods;
mod record;
mod requests;
mod rig;
mod seen;
mod spent;
mod subject;
mod tasks;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use rig::Rig;
use serde_json::Value;

/// Measure a subsystem against its floor
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  cargo run --release -p longshore-bench -- tasks --n 500\nBuild the program under \
                        test first: cargo build --release"
)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The API server itself: creates, patches and deletes of ConfigMaps, and how late its watch tells them
    Cluster(Common),
    /// TaskActions, each with a pod that ends at once
    Tasks(TasksArgs),
    /// What a controller keeps in memory for TaskActions that run, or for those that ended
    TasksMemory(MemoryArgs),
    /// A DAG of tasks that wait for nothing, each with a pod that ends at once
    Dags(DagsArgs),
    /// Lists of runs and DAGs beside a long history, and a scheduler at work beside those who list
    Lists(ListsArgs),
    /// Pods that take part in PodOpsLifecycle, deleted: one by one, at once, with their namespace
    Podops(PodopsArgs),
}

#[derive(Args, Debug)]
struct Common {
    /// How many objects
    #[arg(long, value_name = "N", default_value_t = 500)]
    n: usize,
    /// The API server [default: an embedded one in this process]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Start no controller: measure the one that serves that API server already. Its requests are those that the API
    /// server counts, less ours; the requests of other clients meanwhile are among them
    #[arg(long, requires = "kubeconfig")]
    external: bool,
    /// The process of that controller, for its memory and its CPU time
    #[arg(long, value_name = "PID", requires = "external")]
    pid: Option<u32>,
    /// Where it works [default: a fresh namespace]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    namespace: Option<String>,
    /// How often, each time from the start; what is printed are the medians, the least and the most
    #[arg(long, value_name = "N", default_value = "1")]
    runs: NonZeroUsize,
    /// Keep the figures here too, in a dated file for the server and the subsystem
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program under test [default: longshore, beside this program]
    #[arg(long, value_name = "FILE")]
    longshore: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct DagsArgs {
    #[command(flatten)]
    common: Common,
    /// The folder of DAG files that the controller follows, with --external
    #[arg(long, value_name = "DIR", requires = "external")]
    dags_folder: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct ListsArgs {
    #[command(flatten)]
    of: DagsArgs,
    /// About so many task instances in the history, of a DAG of 900 tasks
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    task_instances: usize,
    /// So many clients list 1,000 runs each second beside the scheduler
    #[arg(long, value_name = "N", default_value_t = 10)]
    readers: usize,
}

#[derive(Args, Debug)]
struct PodopsArgs {
    #[command(flatten)]
    common: Common,
    /// Beside so many PodTransitionRules in the namespace of the pods, each over its share of them
    #[arg(long, value_name = "N", default_value_t = 0)]
    rules: usize,
}

#[derive(Args, Debug)]
struct TasksArgs {
    #[command(flatten)]
    common: Common,
    /// With a cache service, an events service and outputs
    #[arg(long, conflicts_with = "external")]
    with_services: bool,
    /// Create so many in a second, instead of as many as the API server takes [default: no limit]
    #[arg(long, value_name = "N")]
    create_per_second: Option<NonZeroU32>,
    /// So many clients create, each one action after the other [default: 32]
    #[arg(long, value_name = "N")]
    creators: Option<NonZeroUsize>,
}

#[derive(Args, Debug)]
struct MemoryArgs {
    #[command(flatten)]
    common: Common,
    /// Actions that ended, instead of those that run
    #[arg(long)]
    ended: bool,
}

impl MemoryArgs {
    fn kind(&self) -> tasks::memory::Kind {
        if self.ended {
            tasks::memory::Kind::Ended
        } else {
            tasks::memory::Kind::Active
        }
    }
}

impl What {
    fn common(&self) -> &Common {
        match self {
            Self::Cluster(common) => common,
            Self::Podops(args) => &args.common,
            Self::Tasks(args) => &args.common,
            Self::TasksMemory(args) => &args.common,
            Self::Dags(args) => &args.common,
            Self::Lists(args) => &args.of.common,
        }
    }

    /// From the start, in a rig of its own.
    async fn measure(&self) -> Result<Value> {
        let common = self.common();
        let rig = Rig::start(common.kubeconfig.as_deref(), common.namespace.as_deref()).await?;
        let mut figures = match self {
            Self::Cluster(common) => cluster::measure(&rig, common.n).await,
            Self::Tasks(args) => tasks::measure(&rig, args).await,
            Self::TasksMemory(args) => {
                tasks::memory::measure(&rig, &args.common, args.kind()).await
            }
            Self::Dags(args) => dags::measure(&rig, args).await,
            Self::Lists(args) => dags::lists::measure(&rig, args).await,
            Self::Podops(args) => podops::measure(&rig, &args.common, args.rules).await,
        };
        rig.stop().await?;
        if common.external
            && let Ok(figures) = &mut figures
        {
            figures["external"] = true.into();
        }
        figures
    }
}

fn main() -> Result<()> {
    // Another one may be linked as well. An error says that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = runtime.block_on(async {
        let mut figures = Vec::new();
        for _ in 0..cli.what.common().runs.get() {
            figures.push(cli.what.measure().await?);
        }
        anyhow::Ok(figures::summary(&figures))
    })?;
    print(&figures);
    if let Some(folder) = &cli.what.common().out {
        let path = record::add(folder, &figures)?;
        say(&format!("kept in {}", path.display()));
    }
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "the figures are what the program is for"
)]
fn print(figures: &Value) {
    println!("{figures:#}");
}

/// Prints the present step: a measurement takes a while.
#[expect(clippy::print_stderr, reason = "progress, beside the figures")]
fn say(what: &str) {
    eprintln!("{what}");
}
