//! `longshore standalone`: a cluster, a scheduler and their APIs on this machine, until it is stopped.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use longshore_bundles::git::remote::AllowedRemotes;
use longshore_cluster::Authorization;

use crate::{
    cli::{Globals, help_end},
    data_dir::{DataDir, DataDirArgs},
    engine::{airflow::AirflowArgs, database::DatabaseArgs, scheduling::FailedPodsArgs},
    error::{CliError, counted},
    exit::Exit,
    images::UnmappedImagesArgs,
    local_cluster::Lifetime,
    logging, open_files, output,
    pids_limit::PidsLimitArgs,
    progress::phases::Phases,
    service::{Service, ServiceConfig},
    signals::{self, Interrupts, Signals},
    threads,
};

mod ready;

use ready::Ready;

// Stopping it and killing it are the same to a task, which runs on until the next start takes it over; only
// `--ephemeral` stops tasks. The text of the help is one line, or it would not fit the first screen.
/// Keep a cluster and its pipelines running on this machine
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore standalone --dags-folder examples/quickstart"))]
pub(crate) struct StandaloneArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    /// Folder of DAG files [default: dags in the data directory]
    #[arg(
        long,
        value_name = "DIR",
        env = "LONGSHORE_DAGS_FOLDER",
        hide_env = true
    )]
    dags_folder: Option<PathBuf>,
    /// Port of the HTTP API; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7080)]
    port: u16,
    /// Port of the Kubernetes API; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    kube_port: u16,
    /// Port of health and metrics; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Who may do what: rbac, or always-allow for everybody
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value_t = AuthorizationMode::Rbac,
        hide_possible_values = true
    )]
    authorization: AuthorizationMode,
    /// Pods at the same time [default: 32]
    #[arg(long, value_name = "N")]
    parallelism: Option<NonZeroU32>,
    /// Give each pod a network of its own
    #[arg(long)]
    pod_network: bool,
    #[command(flatten)]
    failed_pods: FailedPodsArgs,
    #[command(flatten)]
    airflow: AirflowArgs,
    #[command(flatten)]
    images: UnmappedImagesArgs,
    #[command(flatten)]
    pids: PidsLimitArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// The values of `--authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AuthorizationMode {
    /// What roles and their bindings grant
    Rbac,
    /// Everybody may do everything
    AlwaysAllow,
}

impl From<AuthorizationMode> for Authorization {
    fn from(mode: AuthorizationMode) -> Self {
        match mode {
            AuthorizationMode::Rbac => Self::Rbac,
            AuthorizationMode::AlwaysAllow => Self::AlwaysAllow,
        }
    }
}

/// Runs the service until a signal stops it.
pub(crate) fn standalone(args: &StandaloneArgs, globals: &Globals) -> Result<Exit, CliError> {
    let phases = Phases::choose(globals);
    phases.wait_for("the data directory");
    let data_dir = DataDir::open(&args.data_dir)?;
    logging::to_file(data_dir.path(), globals.verbose)?;
    open_files::raise();
    let config = config(args, &data_dir)?;
    let in_data_dir = |source| CliError::in_data_dir(data_dir.path().to_owned(), source);
    let runtime = threads::runtime()?;
    let exit = runtime.block_on(async {
        let signals = Signals::listen().map_err(in_data_dir)?;
        serve(args, &config, phases, signals, globals).await
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(exit)
}

fn config(args: &StandaloneArgs, data_dir: &DataDir) -> Result<ServiceConfig, CliError> {
    Ok(ServiceConfig {
        data_dir: data_dir.path().to_owned(),
        database: args.database.database()?,
        lifetime: if args.data_dir.ephemeral {
            Lifetime::OfProcess
        } else {
            Lifetime::OfDataDir
        },
        authorization: args.authorization.into(),
        parallelism: args.parallelism,
        pod_network: args.pod_network,
        disposal: args.failed_pods.disposal(),
        airflow: args
            .airflow
            .plan(data_dir.path(), AllowedRemotes::LocalToo)?,
        unmapped_images: args.images.unmapped(),
        pod_pids_limit: args.pids.limit(),
        dags_folder: args.dags_folder.clone(),
        port: args.port,
        kube_port: args.kube_port,
        metrics_port: args.metrics_port,
    })
}

async fn serve(
    args: &StandaloneArgs,
    config: &ServiceConfig,
    phases: Phases,
    mut interrupts: impl Interrupts,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let service = tokio::select! {
        started = Service::start(config, &phases) => started?,
        // What has started stops as in a crash: nothing is lost by that.
        () = interrupts.next() => return Ok(Exit::Interrupted),
    };
    drop(phases);
    Ready::of(&service, config, args).print(globals);
    tokio::select! {
        () = interrupts.next() => {}
        // A broken part ends the whole process: the next start begins all parts anew. The other
        // parts stop as in a crash, and a crash loses nothing.
        error = service.broken() => return Err(error),
    }

    let is_talkative = !globals.quiet;
    if is_talkative {
        output::note("stopping (once more to leave at once)");
    }
    let n_running = tokio::select! {
        n_running = service.stop() => n_running,
        () = interrupts.next() => signals::exit_at_once(),
    };
    if is_talkative {
        output::note(&stopped(n_running, config.lifetime));
    }
    Ok(Exit::Success)
}

/// What is left when the service has stopped.
fn stopped(n_running: usize, lifetime: Lifetime) -> String {
    match (lifetime, n_running) {
        (Lifetime::OfProcess, _) => "stopped; everything is removed".to_owned(),
        (Lifetime::OfDataDir, 0) => "stopped".to_owned(),
        (Lifetime::OfDataDir, n) => format!(
            "stopped; {} on, and the next start takes over",
            if n == 1 {
                format!("{} runs", counted(n, "pod"))
            } else {
                format!("{} run", counted(n, "pod"))
            }
        ),
    }
}
