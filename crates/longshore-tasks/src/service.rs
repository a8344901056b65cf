//! The executor, running: three watches, the controller, the collector.

use std::sync::Arc;

use futures::{Stream, StreamExt, future::ready, stream, stream::BoxStream};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
};
use longshore_api::flyte::{KIND, LABEL_MANAGED, TRUE};
use longshore_core::Resource;
use longshore_kit::{Applier, Cache, CacheFeed, Clock, ListWatch, Runner, Update};
use longshore_plugins::{Plugin, Registry};
use tokio_util::sync::CancellationToken;

use crate::{
    collect,
    config::TasksConfig,
    controller::Actions,
    data::{LocalData, TaskData},
    events::{ActionEvents, LoggedEvents},
    happenings::{self, ABOUT_PODS, EVENT, Happenings},
    model::ActionKey,
    noticed::NoticedChanges,
    observe::Observer,
    obstacles::Obstacles,
};

/// Who runs which task type.
pub trait Plugins: std::fmt::Debug + Send + Sync + 'static {
    /// The plugin of a task type; `None` where nobody takes it.
    fn resolve(&self, task_type: &str) -> Option<Arc<dyn Plugin>>;
}

impl Plugins for Registry {
    fn resolve(&self, task_type: &str) -> Option<Arc<dyn Plugin>> {
        self.plugin(task_type).cloned()
    }
}

/// The executor of TaskActions.
#[derive(Debug)]
pub struct Tasks {
    config: TasksConfig,
    plugins: Arc<dyn Plugins>,
    events: Arc<dyn ActionEvents>,
    data: Arc<dyn TaskData>,
    clock: Arc<dyn Clock>,
}

impl Tasks {
    /// An executor that tells nobody but the log, and reads `file://` URLs.
    pub fn new(config: TasksConfig, plugins: Arc<dyn Plugins>, clock: Arc<dyn Clock>) -> Self {
        let data = LocalData::new(config.data_root.clone(), config.max_download);
        Self {
            data: Arc::new(data),
            events: Arc::new(LoggedEvents),
            config,
            plugins,
            clock,
        }
    }

    /// Tells these.
    #[must_use]
    pub fn telling(mut self, events: Arc<dyn ActionEvents>) -> Self {
        self.events = events;
        self
    }

    /// Finds outputs here.
    #[must_use]
    pub fn reading(mut self, data: Arc<dyn TaskData>) -> Self {
        self.data = data;
        self
    }

    /// Runs actions until `shutdown`.
    ///
    /// *Flow*: the pods are listed first, so that no action is decided upon before its pod can be seen.
    ///
    /// *Assumptions*: the `TaskAction` resource is installed; while it is not, the watch tries again with back-off.
    ///
    /// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is
    /// like a crash: nothing is lost.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let (actions, pods) = (Cache::new(), Cache::new());
        let caches: [(Resource, Arc<dyn CacheFeed>); 2] = [
            (Resource::TASK_ACTION, actions.clone()),
            (Resource::POD, pods.clone()),
        ];
        let applier = Applier::new(client.clone(), "tasks", caches)
            .with_metrics(self.config.metrics.clone())
            .learning();
        self.config.measures.restart();
        let namespace = self.config.namespace.as_deref();
        let managed = ListWatch::new(api(&client, Resource::POD, namespace))
            .labels(format!("{LABEL_MANAGED}={TRUE}"))
            .into_cache(pods.clone());
        let asked_for = ListWatch::new(api(&client, Resource::TASK_ACTION, namespace))
            .into_cache(actions.clone());
        let happenings = Arc::new(Happenings::default());
        let events = ListWatch::new(api(&client, EVENT, namespace))
            .fields(ABOUT_PODS)
            .into_cache(Cache::passing_on());
        let happened = happenings::follow(
            events,
            Arc::clone(&happenings),
            pods.clone(),
            Arc::clone(&self.clock),
            owner,
        );
        let triggers = triggers(managed.boxed(), asked_for.boxed(), happened.boxed());
        let collection = collect::run(
            api(&client, Resource::TASK_ACTION, namespace),
            self.config.collection,
            self.config.measures.clone(),
            Arc::clone(&self.clock),
        );
        let observer = Observer {
            actions,
            pods,
            requests: applier.requests().clone(),
            plugins: self.plugins,
            config: self.config.plugins,
            data: self.data,
            obstacles: Obstacles::default(),
            noticed: NoticedChanges::default(),
            happenings,
        };
        let controller = Arc::new(Actions {
            observer,
            policy: self.config.policy,
            applier: applier.clone(),
            events: self.events,
            clock: Arc::clone(&self.clock),
            measures: self.config.measures,
        });
        let rounds = Runner::new(controller, applier, Arc::clone(&self.clock))
            .concurrency(self.config.concurrency)
            .run(triggers, shutdown.clone());
        tokio::join!(rounds, shutdown.run_until_cancelled(collection));
    }
}

/// The objects of a resource, in one namespace or in all.
fn api(client: &Client, resource: Resource, namespace: Option<&str>) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// The actions that something happened to, once all pods were listed.
fn triggers(
    mut pods: BoxStream<'static, Update<DynamicObject>>,
    actions: BoxStream<'static, Update<DynamicObject>>,
    happened: BoxStream<'static, ActionKey>,
) -> impl Stream<Item = ActionKey> + Send {
    let listed = async move {
        while let Some(update) = pods.next().await {
            if matches!(update, Update::Reached(_)) {
                break;
            }
        }
        let owners =
            pods.filter_map(|update| ready(update.into_object().and_then(|pod| owner(&pod))));
        let changed = stream::select(owners, actions.filter_map(|update| ready(key(update))));
        stream::select(changed, happened)
    };
    stream::once(listed).flatten()
}

fn key(update: Update<DynamicObject>) -> Option<ActionKey> {
    let metadata = &update.into_object()?.metadata;
    Some(ActionKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone()?,
    })
}

/// The action that controls a pod.
fn owner(pod: &DynamicObject) -> Option<ActionKey> {
    let metadata = &pod.metadata;
    let owners = metadata.owner_references.as_ref()?;
    let owner = owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == KIND)?;
    Some(ActionKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: owner.name.clone(),
    })
}
