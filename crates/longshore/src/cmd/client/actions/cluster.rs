//! The cluster that the flags name, and requests about its TaskActions.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use clap::Args;
use kube::{
    Api, Client, Config,
    api::{ListParams, ObjectList},
    core::DynamicObject,
};
use longshore_api::flyte::{KIND, LABEL_ACTION, LABEL_MANAGED, LABEL_RUN, TRUE};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::{ApiError, Requests, api_resource};
use longshore_plugins::TASK_ACTION;
use longshore_tasks::events::{EventLog, LoggedEvent, Wanted};
use serde_json::Value;

use crate::{
    data_dir,
    error::{ActionsError, CliError},
    kubernetes::{KubeconfigFile, current_context},
    output,
};

use super::waiting::Around;

/// Events, of the API group in which Longshore writes them.
const EVENT: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    scope: Scope::Namespaced,
};

/// Which cluster, and where in it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig [default: `longshore standalone`'s, else kubectl's]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig, else of kubectl's
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Data directory of `longshore standalone`, with its kubeconfig
    #[arg(
        long,
        hide = true,
        value_name = "DIR",
        env = "LONGSHORE_DATA_DIR",
        hide_env = true
    )]
    data_dir: Option<PathBuf>,
}

impl ClusterArgs {
    /// The namespace that the command line names.
    pub(in super::super) fn named_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The configuration of the client; its default namespace is the one that the flags mean.
    pub(in super::super) async fn config(&self) -> Result<Config, CliError> {
        let of_standalone = self.of_standalone();
        let is_named = self.kubeconfig.is_some() || self.context.is_some();
        let file = match (&self.kubeconfig, &of_standalone) {
            (Some(path), _) => KubeconfigFile::At(path),
            (None, Some(path)) if !is_named => KubeconfigFile::At(path),
            (None, Some(_) | None) => KubeconfigFile::OfKubectl,
        };
        let config = file.read(self.context.as_deref()).await;
        let mut config = config.map_err(|source| ActionsError::NoKubeconfig {
            source: Box::new(source),
        })?;
        if !is_named && of_standalone.is_none() {
            output::note(&format!(
                "no `longshore standalone` here: asks the cluster {} of kubectl's context {}",
                config.cluster_url,
                current_context().unwrap_or_default()
            ));
        }
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(config)
    }

    /// The kubeconfig of the data directory. The file stays when the service stops, so that a name
    /// that was meant for the service never goes to another cluster. Only the default directory may
    /// have no such file; a directory that the user has named must have one.
    fn of_standalone(&self) -> Option<PathBuf> {
        let file = |data_dir: &Path| data_dir.join("kubeconfig");
        match &self.data_dir {
            Some(named) => Some(file(named)),
            None => {
                let default = data_dir::default_path().ok()?;
                Some(file(&default)).filter(|path| path.exists())
            }
        }
    }

    /// The events of an action, where the event log of its service is on this machine. Returns none
    /// for a log that cannot be read.
    pub(super) fn events(&self, run: &str, action: &str) -> Vec<LoggedEvent> {
        if self.kubeconfig.is_some() || self.context.is_some() {
            return Vec::new();
        }
        let kubeconfig = self.of_standalone();
        let Some(data_dir) = kubeconfig.as_deref().and_then(Path::parent) else {
            return Vec::new();
        };
        let directory = data_dir::event_log(data_dir);
        if !directory.is_dir() {
            return Vec::new();
        }
        EventLog::read(&directory, &Wanted { run, action }).unwrap_or_else(|error| {
            output::note(&format!("{error}; its events are not shown"));
            Vec::new()
        })
    }

    /// The flags that name the same cluster on the next command line, with a blank in front.
    pub(super) fn flags(&self) -> String {
        let path = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref()
                .map(|path| format!(" --{flag} {}", path.display()))
        };
        let text = |flag: &str, text: &Option<String>| {
            text.as_ref().map(|text| format!(" --{flag} {text}"))
        };
        [
            path("kubeconfig", &self.kubeconfig),
            text("context", &self.context),
            text("namespace", &self.namespace),
            path("data-dir", &self.data_dir),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// TaskActions of one namespace of a cluster.
#[derive(Debug)]
pub(super) struct Actions {
    requests: Requests,
    namespace: String,
}

impl Actions {
    /// Builds the client. Sends no request yet.
    pub(super) async fn connect(args: &ClusterArgs) -> Result<Self, CliError> {
        let config = args.config().await?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| ActionsError::NoKubeconfig {
            source: Box::new(error),
        })?;
        Ok(Self {
            requests: Requests::new(client),
            namespace,
        })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) async fn list(&self) -> Result<Vec<Value>, CliError> {
        Self::list_of(self.api()).await
    }

    pub(super) async fn list_everywhere(&self) -> Result<Vec<Value>, CliError> {
        Self::list_of(Api::all_with(self.client(), &api_resource(TASK_ACTION))).await
    }

    pub(super) async fn get(&self, name: &str) -> Result<Value, CliError> {
        let found = self.requests.get(&self.target(name)).await;
        found.map_err(refused)?.ok_or_else(|| {
            let error = ActionsError::NoAction {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            };
            error.into()
        })
    }

    pub(super) async fn create(&self, object: &Value) -> Result<Value, CliError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let target = self.target(name);
        let created = self.requests.create(&target, object).await;
        created
            .and_then(|answer| answer.object_of(&target))
            .map_err(refused)
    }

    /// The pods and Events of an action. Lists that the user may not read are left out: the user
    /// asked for the action itself.
    pub(super) async fn around(&self, name: &str, run: &str, action: &str) -> Around {
        let labels = format!("{LABEL_MANAGED}={TRUE},{LABEL_RUN}={run},{LABEL_ACTION}={action}");
        let of_action = ListParams::default().labels(&labels);
        let about = format!("regarding.kind={KIND},regarding.name={name}");
        let about = ListParams::default().fields(&about);
        let (pods, events) = tokio::join!(
            self.others(&Resource::POD, &of_action),
            self.others(&EVENT, &about)
        );
        Around { pods, events }
    }

    async fn others(&self, resource: &Resource, params: &ListParams) -> Vec<Value> {
        let kind = api_resource(*resource);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), &self.namespace, &kind);
        match api.list(params).await {
            Ok(list) => list.items.iter().map(to_json).collect(),
            Err(error) => {
                tracing::debug!(%error, kind = resource.kind, "not read");
                Vec::new()
            }
        }
    }

    /// Deletes the incarnation that the command has read.
    pub(super) async fn delete(&self, name: &str, object: &Value) -> Result<(), CliError> {
        let target = ObjectRef {
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            ..self.target(name)
        };
        let deleted = self.requests.delete(&target, None).await;
        deleted.map(|_| ()).map_err(refused)
    }

    /// The API of TaskActions in the namespace, for watches.
    pub(super) fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), &self.namespace, &api_resource(TASK_ACTION))
    }

    fn client(&self) -> Client {
        self.requests.client().clone()
    }

    fn target(&self, name: &str) -> ObjectRef {
        ObjectRef {
            resource: TASK_ACTION,
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            uid: None,
        }
    }

    async fn list_of(api: Api<DynamicObject>) -> Result<Vec<Value>, CliError> {
        let list = api.list(&ListParams::default()).await;
        let list: ObjectList<DynamicObject> = list.map_err(|error| {
            let code = if let kube::Error::Api(status) = &error {
                Some(status.code)
            } else {
                None
            };
            failed("list of TaskActions failed".to_owned(), code, &error)
        })?;
        Ok(list.items.iter().map(to_json).collect())
    }
}

/// The object as it came.
pub(super) fn to_json(object: &DynamicObject) -> Value {
    // The object came as JSON, so it becomes JSON again.
    serde_json::to_value(object).unwrap_or_default()
}

fn refused(error: ApiError) -> CliError {
    failed(error.to_string(), error.code(), &error)
}

/// Only the last cause says something new: kube's errors repeat their sources.
fn failed(what: String, status: Option<u16>, error: &dyn Error) -> CliError {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let source = last.to_string().into();
    ActionsError::Request {
        what,
        status,
        source,
    }
    .into()
}
