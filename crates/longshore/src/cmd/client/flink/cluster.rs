//! Requests about Flink's resources.

use kube::{Api, Client, api::ListParams};
use longshore_core::Resource;
use longshore_flink::{FLINK_DEPLOYMENT, FLINK_SESSION_JOB};
use longshore_kit::{RawObject, api_resource};

use super::view::FlinkView;
use crate::{
    cmd::client::actions::ClusterArgs,
    error::{ActionsError, CliError, FlinkCliError},
};

/// The namespaces whose resources are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The namespace of the command line, or of the kubeconfig.
    Here,
    /// All of them.
    Everywhere,
}

/// The resources of a cluster.
pub(super) struct Resources {
    client: Client,
    namespace: String,
}

impl Resources {
    /// Builds the client. Sends no request yet.
    pub(super) async fn connect(args: &ClusterArgs) -> Result<Self, CliError> {
        let config = args.config().await?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| ActionsError::NoKubeconfig {
            source: Box::new(error),
        })?;
        Ok(Self { client, namespace })
    }

    /// All of them, by namespace and name. A cluster without FlinkSessionJobs has none.
    pub(super) async fn list(&self, place: Place) -> Result<Vec<FlinkView>, CliError> {
        let params = ListParams::default();
        let deployments = self.api(FLINK_DEPLOYMENT, place).list(&params).await;
        let mut found = deployments
            .map_err(|error| FlinkCliError::request("list of FlinkDeployments failed", &error))?
            .items;
        match self.api(FLINK_SESSION_JOB, place).list(&params).await {
            Ok(jobs) => found.extend(jobs.items),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let what = "list of FlinkSessionJobs failed";
                return Err(FlinkCliError::request(what, &error).into());
            }
        }
        let mut views: Vec<FlinkView> = found.iter().filter_map(view).collect();
        views.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(views)
    }

    /// The FlinkDeployment of this name, or else the FlinkSessionJob.
    pub(super) async fn get(&self, name: &str) -> Result<FlinkView, CliError> {
        for kind in [FLINK_DEPLOYMENT, FLINK_SESSION_JOB] {
            let found = self.api(kind, Place::Here).get_opt(name).await;
            let found = found.map_err(|error| {
                FlinkCliError::request(&format!("get of the {} failed", kind.kind), &error)
            })?;
            if let Some(found) = found.as_ref().and_then(view) {
                return Ok(found);
            }
        }
        let error = FlinkCliError::None {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        };
        Err(error.into())
    }

    fn api(&self, resource: Resource, place: Place) -> Api<RawObject> {
        let (client, kind) = (self.client.clone(), api_resource(resource));
        match place {
            Place::Here => Api::namespaced_with(client, &self.namespace, &kind),
            Place::Everywhere => Api::all_with(client, &kind),
        }
    }
}

fn view(object: &RawObject) -> Option<FlinkView> {
    object.to_value().ok().map(|object| FlinkView::of(&object))
}
