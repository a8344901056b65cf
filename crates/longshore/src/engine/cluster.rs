//! The cluster that a run is in: the embedded one, or one of the user's.

use std::path::Path;

use kube::Client;
use longshore_cluster::Authorization;
use longshore_kit::Metrics;
use longshore_store::RunKey;

use super::{Order, Workspace};
use crate::{
    error::CliError,
    kubernetes::RealCluster,
    local_cluster::{ClusterPlan, Keeping, Lifetime, LocalCluster},
    output,
    progress::phases::Phases,
};

use longshore_dags::pods::build::workspace_name;

/// The cluster of one run.
pub(super) enum RunCluster {
    Embedded(Box<LocalCluster>),
    Real(Box<RealCluster>),
}

impl RunCluster {
    /// Starts the embedded cluster, or checks that the other cluster responds.
    pub(super) async fn start(
        order: &Order,
        parallelism: u32,
        metrics: &Metrics,
    ) -> Result<Self, CliError> {
        if let Some(cluster) = &order.cluster {
            cluster.answers(metrics).await?;
            return Ok(Self::Real(Box::new(cluster.clone())));
        }
        let data_dir: &Path = &order.data_dir;
        let plan = ClusterPlan {
            data_dir,
            parallelism,
            // Nobody but this process sends requests to it.
            keeping: Keeping {
                lifetime: Lifetime::of(data_dir),
                authorization: Authorization::AlwaysAllow,
            },
            unmapped_images: order.unmapped_images,
            pod_pids_limit: order.pod_pids_limit,
            pod_network: false,
        };
        let phases = Phases::silent();
        let cluster = LocalCluster::start(&plan, None, metrics, &phases);
        Ok(Self::Embedded(Box::new(cluster.await?)))
    }

    pub(super) fn client(&self, name: &'static str, metrics: &Metrics) -> Result<Client, CliError> {
        match self {
            Self::Embedded(cluster) => Ok(cluster.client(name)),
            Self::Real(cluster) => cluster.client(name, metrics),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Embedded(cluster) => cluster.namespace(),
            Self::Real(cluster) => cluster.namespace(),
        }
    }

    /// Starts the executor of TaskActions in the embedded cluster; another cluster has an executor of its own.
    pub(super) fn run_actions(&self) -> Result<(), CliError> {
        match self {
            Self::Embedded(cluster) => cluster.run_actions(),
            Self::Real(_) => {
                output::note(
                    "tasks with a plugin wait for the executor of TaskActions in that cluster \
                     (longshore controller --enable tasks)",
                );
                Ok(())
            }
        }
    }

    /// Stops the parts that this process runs. Returns where the workspace of a run is.
    pub(super) async fn stop(self, run: &RunKey) -> Workspace {
        let claim = workspace_name(run);
        match self {
            Self::Embedded(cluster) => {
                let namespace = cluster.namespace();
                let claims = cluster.stop().await;
                Workspace::Directory(claims.join(namespace).join(claim))
            }
            Self::Real(cluster) => Workspace::Claim {
                namespace: cluster.namespace().to_owned(),
                name: claim,
            },
        }
    }
}
