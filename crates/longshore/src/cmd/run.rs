//! `longshore run FILE`: a DAG file, run to its end by the controllers of this process: on its embedded cluster, or on
//! one of the user's.

use std::{
    fmt::Write,
    io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use jiff::{SignedDuration, Span};
use longshore_dags::model::{Dag, Task};
use longshore_kit::clock::{Clock, SystemClock};
use longshore_store::RunKey;
use serde_json::{Map, Value};

use crate::{
    cli::{Globals, help_end},
    cmd::run::{follow::Followed, report::Report},
    dag_file::DagFile,
    data_dir::{self, DataDir, DataDirArgs},
    engine::{self, Order},
    error::CliError,
    exit::Exit,
    graph,
    images::UnmappedImagesArgs,
    kubernetes::{ClusterArgs, RealCluster},
    logging, open_files, output,
    pids_limit::PidsLimitArgs,
    progress::{
        Progress,
        board::{Board, BoardTask},
    },
    signals::{self, Interrupts, Signals},
    threads,
};

#[cfg(test)]
pub(crate) mod fixtures;
mod follow;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod tail;

/// Run a DAG file to its end
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore run examples/quickstart/dag.yaml --param title=Penguins"))]
pub(crate) struct RunArgs {
    /// The DAG file, or - for stdin
    file: PathBuf,
    /// Set a parameter; VALUE is JSON or text
    #[arg(short, long = "param", value_name = "NAME=VALUE", value_parser = param)]
    params: Vec<(String, Value)>,
    #[command(flatten)]
    data_dir: DataDirArgs,
    /// Go on with a run that was interrupted
    #[arg(long, value_name = "RUN_ID", conflicts_with_all = ["params", "ephemeral"])]
    resume: Option<String>,
    /// Stop after this long, as 90s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Pods at the same time [default: 32]
    #[arg(long, value_name = "N")]
    parallelism: Option<NonZeroU32>,
    #[command(flatten)]
    images: UnmappedImagesArgs,
    #[command(flatten)]
    pids: PidsLimitArgs,
    /// Run in the cluster of this kubeconfig context
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    // Hidden: the help has to fit the first screen; as with kubectl.
    /// Kubeconfig file of the context [default: as kubectl]
    #[arg(long, value_name = "FILE", hide = true, requires = "context")]
    kubeconfig: Option<PathBuf>,
    // Hidden, as above; the error says when it is needed.
    /// Go on also in another cluster than before: unfinished tasks start again there
    #[arg(long, hide = true, requires_all = ["resume", "context"])]
    in_other_cluster: bool,
    // Hidden, as above.
    /// Namespace of the pods [default: that of the context]
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        hide = true,
        requires = "context"
    )]
    namespace: Option<String>,
}

/// Runs the file and follows it to its end.
pub(crate) fn run(args: &RunArgs, globals: &Globals) -> Result<Exit, CliError> {
    let file = DagFile::read(&args.file)?;
    let pools = file.pools()?;
    let dag = file.into_dag()?;
    let params = known_params(&args.params, &dag)?;
    let tasks = board_tasks(&dag);
    let ids: Vec<String> = tasks.iter().map(|task| task.id.clone()).collect();
    let data_dir = DataDir::open(&args.data_dir)?;
    logging::to_file(data_dir.path(), globals.verbose)?;
    open_files::raise();

    let in_data_dir = |source| CliError::in_data_dir(data_dir.path().to_owned(), source);
    let cluster_args = args.cluster();
    let place = match &args.context {
        Some(context) => context_dir(data_dir.path(), context).map_err(in_data_dir)?,
        None => data_dir.path().to_owned(),
    };
    let runtime = threads::runtime()?;
    let (run, followed) = runtime.block_on(async {
        let signals = Signals::listen().map_err(in_data_dir)?;
        let order = Order {
            dag,
            params,
            pools,
            resume: args.resume.clone(),
            parallelism: args.parallelism,
            data_dir: place,
            unmapped_images: args.images.unmapped(),
            pod_pids_limit: args.pids.limit(),
            cluster: find_cluster(&cluster_args).await?,
            in_other_cluster: args.in_other_cluster,
        };
        Box::pin(start_and_follow(
            order,
            tasks,
            signals,
            args.timeout,
            globals,
        ))
        .await
    })?;
    let resume = resume::command(&args.file, &args.data_dir, &cluster_args, &run);
    let (outcome, mut end) = match followed {
        Ok(Followed::Over(outcome, end)) => (outcome, end),
        Ok(Followed::Abandoned) => {
            report::abandoned(&run, resume.as_deref(), globals);
            signals::exit_at_once()
        }
        Err(error) => {
            if let Some(resume) = resume {
                output::note(&format!(
                    "run {run} has stopped; when the cause is gone, go on with: {resume}"
                ));
            }
            return Err(error);
        }
    };
    runtime.shutdown_timeout(Duration::from_secs(1));
    graph::sort(&mut end.tasks, &ids, |task| &task.task_instance.key.task_id);

    let report = Report {
        end: &end,
        outcome,
        file: &args.file,
        data_dir: &args.data_dir,
        cluster: &cluster_args,
    };
    report.print(globals);
    Ok(report.exit())
}

impl RunArgs {
    /// The cluster on which the run is to run.
    fn cluster(&self) -> ClusterArgs {
        ClusterArgs {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

/// The cluster that the flags name, if they name one.
async fn find_cluster(args: &ClusterArgs) -> Result<Option<RealCluster>, CliError> {
    if args.context.is_none() {
        return Ok(None);
    }
    RealCluster::find(args).await.map(Some)
}

/// Runs in a cluster of the user's have a database of their own for each context: a database that meets another cluster
/// starts its unfinished runs again there.
fn context_dir(data_dir: &Path, context: &str) -> io::Result<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let mut name = String::new();
    for c in context.chars() {
        if is_plain(c) {
            name.push(c);
        } else {
            let _ = write!(name, "%{:x}", u32::from(c));
        }
    }
    data_dir::make(&data_dir.join("contexts").join(name))
}

async fn start_and_follow(
    order: Order,
    tasks: Vec<BoardTask>,
    interrupts: impl Interrupts,
    timeout: Option<Duration>,
    globals: &Globals,
) -> Result<(RunKey, Result<Followed, CliError>), CliError> {
    let clock = SystemClock;
    let started = engine::start(order).await?;
    let run = started.run.clone();
    let board = Board::new(started.run.clone(), tasks, clock.now());
    let mut progress = Progress::choose(globals, board);
    let followed = follow::to_the_end(started, &mut progress, interrupts, timeout, &clock).await;
    progress.close();
    Ok((run, followed))
}

/// The tasks in the order of the graph.
fn board_tasks(dag: &Dag) -> Vec<BoardTask> {
    let ids = graph::in_order(dag).into_iter();
    let tasks = ids.filter_map(|id| Some((id, dag.tasks.get(id)?)));
    let task = |(id, task): (&str, &Task)| BoardTask {
        id: id.to_owned(),
        upstream: task.upstream.iter().cloned().collect(),
        max_tries: task.retries.saturating_add(1),
    };
    tasks.map(task).collect()
}

/// The parameters, all of which the DAG must know: a misspelt one would do nothing, silently.
fn known_params(given: &[(String, Value)], dag: &Dag) -> Result<Map<String, Value>, CliError> {
    match given
        .iter()
        .find(|(name, _)| !dag.params.contains_key(name))
    {
        Some((name, _)) => Err(CliError::UnknownParam {
            dag_id: dag.dag_id.clone(),
            name: name.clone(),
            known: dag.params.keys().cloned().collect(),
        }),
        None => Ok(given.iter().cloned().collect()),
    }
}

/// `NAME=VALUE`, where what is no JSON is text.
pub(crate) fn param(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("expected NAME=VALUE, found {text:?}"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// `90s`, `1h30m`, or seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as 90s or 1h30m, found {text:?}");
    let signed = match text.parse::<i64>() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => text
            .parse::<Span>()
            .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
            .map_err(|_| expected())?,
    };
    Duration::try_from(signed).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_json_or_text() {
        for (text, expected) in [
            ("a=1", Ok(("a", json!(1)))),
            ("a=true", Ok(("a", json!(true)))),
            ("a=x=y", Ok(("a", json!("x=y")))),
            ("a=", Ok(("a", json!("")))),
            ("a=\"1\"", Ok(("a", json!("1")))),
            ("=1", Err("expected NAME=VALUE, found \"=1\"")),
            ("a", Err("expected NAME=VALUE, found \"a\"")),
        ] {
            let found = param(text);
            let expected = expected
                .map(|(name, value)| (name.to_owned(), value))
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_have_units() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("1h30m", 5_400), ("1d", 86_400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        assert!(duration("soon").is_err());
        assert!(duration("-5").is_err());
    }
}
