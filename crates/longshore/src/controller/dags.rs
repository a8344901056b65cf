//! The role `dags`: the scheduler, its folder of DAG files and its HTTP API.

use std::sync::Arc;

use longshore_dags::LeftRuns;
use longshore_kit::Gate;
use tokio_util::sync::CancellationToken;

use super::{Context, hosts};
use crate::{
    engine::{
        airflow,
        database::Rights,
        scheduling::{Scheduling, SchedulingPlan, parallelism},
        workers::WorkersPlan,
    },
    error::CliError,
    output,
    progress::phases::Phases,
    service::{
        front::{Front, dags_folder, tell_clients},
        listen,
    },
};

/// Runs the scheduler until `shutdown`.
pub(super) async fn run(
    context: Arc<Context>,
    gate: Gate,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let config = &context.config;
    let (listener, address) = listen("the HTTP API", config.address, "--address").await?;
    let phases = Phases::silent();
    let store = config
        .database
        .open(&config.data_dir, Rights::Leader, &phases);
    let store = store.await?;
    let plan = SchedulingPlan {
        data_dir: config.data_dir.clone(),
        namespace: context.cluster.namespace().to_owned(),
        parallelism: parallelism(config.parallelism),
        disposal: config.disposal,
        gate: gate.clone(),
        metrics: context.metrics.clone(),
        measures: context.counts.measures(),
        left_runs: LeftRuns::GoOn,
        // Pods are elsewhere: where they reach this service, Airflow's configuration or their template says.
        workers: Some(WorkersPlan::default()),
    };
    let client = |name| context.cluster.gated_client(name, &context.metrics, &gate);
    let mut scheduling = Scheduling::start(client("dags")?, store, plan, &phases).await?;
    let folder = dags_folder(config.dags_folder.as_ref(), &config.data_dir)?;
    airflow::follow(config.airflow.as_ref(), &scheduling, &folder)?;
    let front = Front::start(&scheduling, client("console")?, &folder, &phases).await?;
    context.counts.follow(&scheduling.dags, front.tasks());
    let server = format!("http://{address}");
    let token = tell_clients(&config.data_dir, &server)?;
    front.serve(&mut scheduling, listener, token, hosts(address));
    output::note(&format!("dags: runs here, HTTP API {server}"));

    let ended = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        error = scheduling.lost_database(&config.database) => Err(error),
        why = front.broken() => Err(CliError::ServiceBroken { why }),
        why = scheduling.broken() => Err(CliError::ServiceBroken { why }),
    };
    front.stop().await;
    scheduling.stop().await;
    scheduling.store.close().await;
    ended
}
