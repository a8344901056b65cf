//! What a round about a run reads, and what that means.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use longshore_api::{
    airflow::{LABEL_DAG_ID, LABEL_RUN_ID},
    dags::ANNOTATION_RUN,
};
use longshore_core::{Class, Classify, Resource};
use longshore_kit::cache::reference;
use longshore_store::{RunKey, RunState};
use serde_json::Value;

use super::decide::Observed;
use crate::{
    airflow::names,
    base::shared::Shared,
    pods::build::{self, PodConfig},
    scheduler::board::ActiveRun,
};

/// What a round reads. The API server is asked only about runs that are over.
pub(super) enum Loaded {
    /// The run is on the board.
    Active(Arc<ActiveRun>),
    /// The run is over. These ConfigMaps have its labels, which other runs may share.
    Ended(Vec<PartialObjectMeta<ConfigMap>>),
}

/// Why a round about a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunsError {
    /// The ConfigMaps of a run that is over cannot be listed.
    #[error("the files of run {run} cannot be listed")]
    List {
        /// The run.
        run: RunKey,
        /// The error of the client.
        source: Box<kube::Error>,
    },
}

impl Classify for RunsError {
    fn class(&self) -> Class {
        match self {
            Self::List { .. } => Class::Retry,
        }
    }
}

/// Reads the board, and the ConfigMaps of a run that has left it.
pub(super) async fn load(
    shared: &Shared,
    client: &Client,
    key: &RunKey,
) -> Result<Loaded, RunsError> {
    if let Some(active) = shared.board().runs.get(key) {
        return Ok(Loaded::Active(Arc::clone(active)));
    }
    let of_run = format!(
        "{LABEL_DAG_ID}={},{LABEL_RUN_ID}={}",
        names::label_value(&key.dag_id),
        names::label_value(&key.run_id)
    );
    let maps = config_maps(client, &shared.pod_config, &of_run).await;
    maps.map(Loaded::Ended).map_err(|source| RunsError::List {
        run: key.clone(),
        source: Box::new(source),
    })
}

/// What was read, as the decision needs it.
pub(super) fn assemble(loaded: &Loaded, key: &RunKey, config: &PodConfig) -> Observed {
    match loaded {
        Loaded::Active(active) => {
            let is_waiting = active.run.state == RunState::Queued || active.run.is_prepared;
            if is_waiting {
                Observed::Settled
            } else {
                let wanted = wanted(active, config);
                Observed::Unprepared { wanted }
            }
        }
        Loaded::Ended(maps) => Observed::Ended {
            files: maps
                .iter()
                .filter(|map| run_of(map, config).as_ref() == Some(key))
                .map(|map| reference(Resource::CONFIG_MAP, map))
                .collect(),
        },
    }
}

fn wanted(active: &ActiveRun, config: &PodConfig) -> Vec<(Resource, Value)> {
    let files = build::build_files(&active.run.key, &active.dag, config);
    let workspace = build::build_workspace(&active.run.key, &active.dag, config);
    let files = files.map(|object| (Resource::CONFIG_MAP, object));
    let workspace = workspace.map(|object| (Resource::PERSISTENT_VOLUME_CLAIM, object));
    files.into_iter().chain(workspace).collect()
}

/// The runs of ours whose files are in the cluster, whether they are over or not.
pub(crate) async fn left_behind(
    client: &Client,
    config: &PodConfig,
) -> Result<Vec<RunKey>, kube::Error> {
    let maps = config_maps(client, config, LABEL_DAG_ID).await?;
    Ok(maps.iter().filter_map(|map| run_of(map, config)).collect())
}

/// Our ConfigMaps.
async fn config_maps(
    client: &Client,
    config: &PodConfig,
    selector: &str,
) -> Result<Vec<PartialObjectMeta<ConfigMap>>, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &config.namespace);
    let selector = format!("{},{selector}", build::shared_selector(config));
    let params = ListParams::default().labels(&selector);
    Ok(maps.list_metadata(&params).await?.items)
}

fn run_of(map: &PartialObjectMeta<ConfigMap>, config: &PodConfig) -> Option<RunKey> {
    build::run_of(map.annotations().get(ANNOTATION_RUN)?, config)
}
