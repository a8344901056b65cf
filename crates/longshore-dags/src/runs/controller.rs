//! The shared objects of one run: created before its first pod, and its files removed after its end.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use longshore_api::{
    airflow::{LABEL_DAG_ID, LABEL_RUN_ID},
    dags::ANNOTATION_RUN,
};
use longshore_core::{Class, Classify, Incarnation, Never, ObjectRef, Plan, Resource, Seen};
use longshore_kit::{Answers, Controller, Refusal, cache::reference};
use longshore_store::{RunKey, RunState};

use super::decide::{Observed, RunEffect, decide_run};
use crate::{
    airflow::names,
    base::shared::Shared,
    pods::build::{self, PodConfig},
    scheduler::{board::ActiveRun, facts::Fact},
};

/// Keeps the shared objects of runs.
pub(crate) struct Runs {
    shared: Arc<Shared>,
    client: Client,
}

/// Why a round about a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunsError {
    /// The ConfigMaps of a run that is over cannot be listed.
    #[error("the files of run {run} cannot be listed")]
    List {
        /// The run.
        run: RunKey,
        /// What the client answered.
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

impl Runs {
    pub(crate) fn new(shared: Arc<Shared>, client: Client) -> Self {
        Self { shared, client }
    }

    fn wanted(&self, active: &ActiveRun) -> Vec<(Resource, serde_json::Value)> {
        let config = &self.shared.pod_config;
        let files = build::build_files(&active.run.key, &active.dag, config);
        let workspace = build::build_workspace(&active.run.key, &active.dag, config);
        let files = files.map(|object| (Resource::CONFIG_MAP, object));
        let workspace = workspace.map(|object| (Resource::PERSISTENT_VOLUME_CLAIM, object));
        files.into_iter().chain(workspace).collect()
    }

    async fn files(&self, key: &RunKey) -> Result<Vec<ObjectRef>, kube::Error> {
        let config = &self.shared.pod_config;
        let of_run = format!(
            "{LABEL_DAG_ID}={},{LABEL_RUN_ID}={}",
            names::label_value(&key.dag_id),
            names::label_value(&key.run_id)
        );
        let maps = config_maps(&self.client, config, &of_run).await?;
        Ok(maps
            .iter()
            .filter(|map| run_of(map, config).as_ref() == Some(key))
            .map(|map| reference(Resource::CONFIG_MAP, map))
            .collect())
    }
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

impl Controller for Runs {
    type Key = RunKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = RunEffect;
    type Question = Never;
    type Error = RunsError;

    fn name(&self) -> &'static str {
        "dags.runs"
    }

    async fn observe(
        &self,
        key: &RunKey,
        _now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, RunsError> {
        if let Some(active) = self.shared.board().runs.get(key) {
            let is_waiting = active.run.state == RunState::Queued || active.run.is_prepared;
            return Ok(if is_waiting {
                Observed::Settled
            } else {
                Observed::Unprepared {
                    wanted: self.wanted(active),
                }
            });
        }
        let files = self.files(key).await;
        let files = files.map_err(|source| RunsError::List {
            run: key.clone(),
            source: Box::new(source),
        })?;
        Ok(Observed::Ended { files })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, RunEffect> {
        decide_run(observed)
    }

    async fn persist(&self, _key: &RunKey, status: &Never) -> Result<(), RunsError> {
        match *status {}
    }

    async fn call(&self, key: &RunKey, effect: &RunEffect) -> Result<(), RunsError> {
        match effect {
            RunEffect::ReportPrepared => {
                self.shared.inbox.push(Fact::RunPrepared(key.clone()));
                Ok(())
            }
        }
    }

    fn refused(&self, key: &RunKey, _: &Seen<Incarnation>, refusal: &Refusal) {
        if refusal.create.is_some() {
            self.shared.inbox.push(Fact::RunPrepareRefused {
                run: key.clone(),
                message: refusal.message.clone(),
            });
        }
    }
}
