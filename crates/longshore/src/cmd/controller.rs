//! `longshore controller`: the controllers on a cluster of the user's, until a signal stops them.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use longshore_bundles::git::remote::AllowedRemotes;
use longshore_kit::lease::Terms;
use longshore_plugins::ConfigWarning;
use serde_json::json;

use crate::{
    cli::{Format, Globals, help_end},
    cmd::run::duration,
    controller::{
        self, ControllerConfig, Election, config_file,
        namespaces::{self, Others, PlaceArgs, namespace},
        podops,
        podops_args::PodOpsArgs,
        rbac,
        roles::{Role, defaults, role},
        secret_flags, webhook,
    },
    data_dir,
    engine::{airflow::AirflowArgs, database::DatabaseArgs, scheduling::FailedPodsArgs},
    error::CliError,
    exit::Exit,
    kubernetes::RealCluster,
    logging, open_files, output,
    service::flink::FlinkSettings,
    signals::Signals,
    threads,
};

/// Run the controllers on your Kubernetes cluster
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "longshore controller [rbac|crd] [OPTIONS]",
    after_help = help_end("longshore controller --context kind --dags-folder dags/")
)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: Option<ControllerCommand>,
    #[command(flatten)]
    roles: RolesArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Folder of DAG files [default: dags in the data directory]
    #[arg(
        long,
        value_name = "DIR",
        env = "LONGSHORE_DAGS_FOLDER",
        hide_env = true
    )]
    dags_folder: Option<PathBuf>,
    /// Directory of logs and, without Postgres, of runs
    #[arg(long, value_name = "DIR", env = "LONGSHORE_DATA_DIR", hide_env = true)]
    data_dir: Option<PathBuf>,
    /// Pods of DAGs at the same time [default: 32]
    // Hidden: the help has to fit the first screen.
    #[arg(long, hide = true, value_name = "N")]
    parallelism: Option<NonZeroU32>,
    #[command(flatten)]
    failed_pods: FailedPodsArgs,
    #[command(flatten)]
    airflow: AirflowArgs,
    /// Until another takes over; 0: alone
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = election)]
    lease_duration: Election,
    /// Configuration of a Flyte executor; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    // Hidden: what the peer's flags `--section.key=value` become.
    /// One key of that configuration, which wins over the files; may be repeated
    #[arg(long, hide = true, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    // Hidden: the help has to fit the first screen, and docs/flink.md has it.
    /// Directory with the flink-conf.yaml, or else the config.yaml, of the role flink
    #[arg(
        long,
        hide = true,
        value_name = "DIR",
        env = "FLINK_CONF_DIR",
        hide_env = true
    )]
    flink_conf_dir: Option<PathBuf>,
    /// Address of the HTTP API
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7080")]
    address: SocketAddr,
    /// Address of health and metrics
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9090")]
    metrics_address: SocketAddr,
    #[command(flatten)]
    podops: PodOpsArgs,
}

/// Which roles.
#[derive(Args, Clone, Debug)]
pub(crate) struct RolesArgs {
    /// Roles, separated by commas [default: dags,tasks]
    #[arg(long, value_name = "ROLES", value_delimiter = ',', value_parser = role)]
    enable: Vec<&'static Role>,
}

impl RolesArgs {
    fn roles(&self) -> Vec<&'static Role> {
        if self.enable.is_empty() {
            defaults()
        } else {
            self.enable.clone()
        }
    }
}

#[derive(Debug, Subcommand)]
enum ControllerCommand {
    // Hidden, as the next one: the usage has it, and the help has to fit the first screen.
    #[command(hide = true)]
    Rbac(RbacArgs),
    #[command(hide = true)]
    Crd(CrdArgs),
}

/// A key of the configuration and its value.
fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// How short a lease may be: a renewal that is a little late must not depose its holder.
const MIN_LEASE: Duration = Duration::from_secs(2);

/// By leases of this duration, or without any.
fn election(text: &str) -> Result<Election, String> {
    match duration(text)? {
        Duration::ZERO => Ok(Election::None),
        time if time < MIN_LEASE => Err(format!("expected 0 or at least 2s, found {text:?}")),
        time => Ok(Election::ByLease(Terms::lasting(time))),
    }
}

/// Print the service account and the roles that it needs
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore controller rbac -n pipelines | kubectl apply -f -"))]
struct RbacArgs {
    #[command(flatten)]
    roles: RolesArgs,
    /// Its namespace, then others; -A: all
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        default_value = "longshore",
        value_parser = namespace
    )]
    namespace: Vec<String>,
    // Hidden, as above.
    /// Run the TaskActions of all namespaces
    #[arg(short = 'A', long, hide = true)]
    all_namespaces: bool,
    /// Let the role webhook read all Secrets of this namespace, where those of tasks are
    #[arg(long, value_name = "NAMESPACE")]
    secrets_namespace: Option<String>,
    /// Leave out the admission policies, which API servers know since 1.30
    #[arg(long)]
    without_policies: bool,
    /// Let the webhooks of podops be at a loopback address, where their --webhook-address is one
    #[arg(long)]
    webhook_on_loopback: bool,
    /// Configuration of a Flyte executor, which names the webhook's objects; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    // Hidden: what the peer's flags `--section.key=value` become.
    /// One key of that configuration, which wins over the files; may be repeated
    #[arg(long, hide = true, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl RbacArgs {
    /// Notes about flags that change nothing.
    fn unused(&self, roles: &[&'static Role]) -> Vec<&'static str> {
        let has = |name: &str| roles.iter().any(|role| role.name == name);
        let mut unused = Vec::new();
        if self.webhook_on_loopback && !has(podops::ROLE) {
            unused.push(
                "--webhook-on-loopback changes nothing without podops in --enable, the only role whose webhooks API servers reach by URL: add it, or leave the flag out",
            );
        } else if self.webhook_on_loopback && self.without_policies {
            unused.push(
                "--webhook-on-loopback changes nothing beside --without-policies, because it changes a policy: leave one of them out",
            );
        }
        if self.secrets_namespace.is_some() && !has(webhook::ROLE) {
            unused.push(
                "--secrets-namespace changes nothing without webhook in --enable, the only role that reads the Secrets of tasks: add it, or leave the flag out",
            );
        }
        unused
    }
}

/// Print the definitions of the resources that roles work on, for clusters without them
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore controller crd | kubectl apply -f -"))]
struct CrdArgs {
    #[command(flatten)]
    roles: RolesArgs,
}

/// Runs the controllers, or prints what they need.
pub(crate) fn controller(args: &ControllerArgs, globals: &Globals) -> Result<Exit, CliError> {
    match &args.command {
        Some(ControllerCommand::Rbac(rbac)) => {
            print_rbac(rbac, globals)?;
            Ok(Exit::Success)
        }
        Some(ControllerCommand::Crd(crd)) => {
            let roles = crd.roles.roles();
            let definitions = roles.iter().flat_map(|role| role.definitions);
            output::text(&definitions.copied().collect::<Vec<_>>().join("---\n"));
            Ok(Exit::Success)
        }
        None => serve(args, globals),
    }
}

fn print_rbac(args: &RbacArgs, globals: &Globals) -> Result<(), CliError> {
    note_secrets(&args.set);
    let (settings, _) = config_file::read(&args.config, &args.set)?;
    let mut webhook = settings.webhook;
    let reads_secrets = args.secrets_namespace.is_some();
    if let Some(namespace) = &args.secrets_namespace {
        namespace.clone_into(&mut webhook.secrets_namespace);
    }
    let roles = args.roles.roles();
    for note in args.unused(&roles) {
        output::note(note);
    }
    let (named, is_all) = (&args.namespace, args.all_namespaces);
    for note in namespaces::unused(named, is_all, &roles) {
        output::note(&note);
    }
    // There is a default.
    let own = named.first().cloned().unwrap_or_default();
    if roles.iter().any(|role| role.name == webhook::ROLE) {
        let found = &webhook.secrets_namespace;
        if !reads_secrets {
            output::note(&format!(
                "the right to read the Secrets of tasks is not in it, because it is one to read all Secrets of their namespace: add --secrets-namespace {found}"
            ));
        } else if *found == own {
            output::note(&webhook::reads_its_own(found));
        }
    }
    let installation = rbac::Installation {
        namespace: own,
        others: Others::named(named, is_all),
        webhook,
        reads_secrets,
        has_policies: !args.without_policies,
        webhooks_on_loopback: args.webhook_on_loopback,
    };
    let objects = rbac::objects(&roles, &installation);
    match globals.output {
        Format::Json => {
            output::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        }
        Format::Name => {
            for object in &objects {
                let text = |at: &str| {
                    object
                        .pointer(at)
                        .and_then(|text| text.as_str())
                        .unwrap_or_default()
                };
                let kind = text("/kind").to_ascii_lowercase();
                output::line(&format!("{kind}/{}", text("/metadata/name")));
            }
        }
        Format::Table | Format::Wide | Format::Yaml => output::text(&rbac::yaml(&objects)),
    }
    Ok(())
}

/// Warns of secrets in flags of the configuration.
fn note_secrets(pairs: &[(String, String)]) {
    for note in secret_flags::notes(pairs) {
        output::note(&note);
    }
}

fn serve(args: &ControllerArgs, globals: &Globals) -> Result<Exit, CliError> {
    logging::to_stderr(globals.verbose);
    open_files::raise();
    note_secrets(&args.set);
    let (settings, warnings) = config_file::read(&args.config, &args.set)?;
    for ConfigWarning { path, instead } in warnings {
        output::note(&format!("{path} is not supported: {instead}"));
    }
    let roles = args.roles.roles();
    let mut unused = args.place.unused(&roles);
    unused.extend(args.podops.unused_by(&roles));
    for note in unused {
        output::note(&note);
    }
    let serves_api = roles.iter().any(|role| role.name == "dags");
    if serves_api && !args.address.ip().is_loopback() {
        let address = args.address;
        return Err(CliError::PlainApi { address });
    }
    let data_dir = data_dir::shared(args.data_dir.as_ref())?;
    let in_data_dir = |source| CliError::in_data_dir(data_dir.clone(), source);
    let config = ControllerConfig {
        roles,
        others: args.place.others(),
        election: args.podops.election(args.lease_duration),
        data_dir: data_dir.clone(),
        database: args.database.database()?,
        parallelism: args.parallelism,
        disposal: args.failed_pods.disposal(),
        airflow: args.airflow.plan(&data_dir, AllowedRemotes::HttpsAndSsh)?,
        dags_folder: args.dags_folder.clone(),
        settings,
        flink: FlinkSettings::of_directory(args.flink_conf_dir.as_deref())?,
        podops: args.podops.settings(),
        webhook_address: args.podops.webhook_address(),
        client_authority: args.podops.client_authority(),
        address: args.address,
        metrics_address: args.podops.metrics_address(args.metrics_address),
        health_address: args.podops.health_address(),
    };
    let runtime = threads::runtime()?;
    runtime.block_on(async {
        let signals = Signals::listen().map_err(in_data_dir)?;
        let cluster = RealCluster::find(&args.place.cluster()).await?;
        let (url, namespace) = (cluster.url(), cluster.namespace().to_owned());
        controller::run(config, cluster, signals, |metrics| {
            let metrics = format!("http://{metrics}");
            if globals.output == Format::Json {
                output::json(&json!({
                    "kind": "Ready",
                    "pid": std::process::id(),
                    "kubernetes": url,
                    "namespace": namespace,
                    "metrics": metrics,
                }));
            } else if !globals.quiet {
                output::line(&format!(
                    "ready: namespace {namespace} of {url}, metrics {metrics}/metrics"
                ));
            }
        })
        .await
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    if !globals.quiet {
        output::note("stopped; pods run on, and the next one takes over");
    }
    Ok(Exit::Success)
}
