//! Requests about the pods of a cluster that take part in PodOpsLifecycle, and about their rules.

use std::{collections::BTreeSet, error::Error};

use kube::{Api, Client, api::ListParams};
use longshore_api::podops::{ANNOTATION_EVICTED_AT, CONTROLLED, LABEL_CONTROL};
use longshore_core::Resource;
use longshore_kit::{Clock, RawObject, SystemClock, api_resource};
use longshore_podops::{
    eviction::{self, BUDGET, Budget},
    model::Pod,
    rule::{RULE, Rule},
    traffic::{ENDPOINT_SLICE, Slice},
};
use serde::de::DeserializeOwned;

use super::view::{Evictions, PodView};
use crate::{
    cmd::client::actions::ClusterArgs,
    error::{ActionsError, CliError, PodsError},
};

/// The namespaces whose pods are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// In the namespace of the command line, or of the kubeconfig.
    Here,
    /// In all namespaces.
    Everywhere,
}

impl From<bool> for Where {
    fn from(is_everywhere: bool) -> Self {
        if is_everywhere {
            Self::Everywhere
        } else {
            Self::Here
        }
    }
}

/// The pods of a cluster.
pub(super) struct Pods {
    client: Client,
    namespace: String,
}

impl Pods {
    /// Builds the client. Sends no request yet.
    pub(super) async fn connect(args: &ClusterArgs) -> Result<Self, CliError> {
        let config = args.config().await?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| ActionsError::NoKubeconfig {
            source: Box::new(error),
        })?;
        Ok(Self { client, namespace })
    }

    /// All that take part, by namespace and name.
    pub(super) async fn list(&self, place: Where) -> Result<Vec<PodView>, CliError> {
        let controlled = format!("{LABEL_CONTROL}={CONTROLLED}");
        let wanted = ListParams::default().labels(&controlled);
        let objects = self.api(Resource::POD, place).list(&wanted).await;
        let objects = objects.map_err(|error| refused("list of pods failed", &error))?;
        let rules = self.rules(place).await;
        let held = self.evictions(place, &objects.items, &rules).await;
        let now = SystemClock.now();
        let views = objects.items.iter().filter_map(|object| {
            let view = PodView::of(object, &rules, &[], &held)?;
            Some(view.seen_at(now))
        });
        let mut views: Vec<PodView> = views.collect();
        views.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(views)
    }

    /// One of them.
    pub(super) async fn get(&self, name: &str) -> Result<PodView, CliError> {
        let found = self.api(Resource::POD, Where::Here).get_opt(name).await;
        let found = found.map_err(|error| refused("get of the pod failed", &error))?;
        let controlled = found.filter(|object| {
            let pod = object.read::<Pod>();
            pod.is_ok_and(|pod| pod.is_controlled() || pod.is_released())
        });
        let rules = self.rules(Where::Here).await;
        let slices = self.slices().await;
        let held = self.evictions(Where::Here, controlled.as_slice(), &rules);
        let held = held.await;
        let view = controlled.and_then(|object| PodView::of(&object, &rules, &slices, &held));
        let view = view.map(|view| view.seen_at(SystemClock.now()));
        view.ok_or_else(|| {
            let error = PodsError::NoPod {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            };
            error.into()
        })
    }

    /// The disruption budgets that hold the evictions of these pods. Without a pod whose eviction
    /// was requested, nothing is read.
    async fn evictions(&self, place: Where, pods: &[RawObject], rules: &[Rule]) -> Evictions {
        let pods = pods.iter().filter_map(|object| object.read::<Pod>().ok());
        let evicted = pods.filter(|pod| pod.annotations.contains_key(ANNOTATION_EVICTED_AT));
        let namespaces: BTreeSet<String> = evicted.map(|pod| pod.target.namespace).collect();
        if namespaces.is_empty() {
            return Evictions::new();
        }
        // Pods without the label count as well.
        let pods: Vec<Pod> = self.around(Resource::POD, place).await;
        let budgets: Vec<Budget> = self.around(BUDGET, place).await;
        let of = |namespace: String| {
            let pods = pods.iter().filter(|pod| pod.target.namespace == namespace);
            let budgets = budgets.iter().filter(|it| it.namespace == namespace);
            let (pods, budgets): (Vec<Pod>, Vec<Budget>) =
                (pods.cloned().collect(), budgets.cloned().collect());
            let held = eviction::holders(&pods, &budgets, rules, SystemClock.now());
            (namespace, held)
        };
        namespaces.into_iter().map(of).collect()
    }

    async fn rules(&self, place: Where) -> Vec<Rule> {
        self.around(RULE, place).await
    }

    async fn slices(&self) -> Vec<Slice> {
        self.around(ENDPOINT_SLICE, Where::Here).await
    }

    /// Lists the objects of a resource. Returns an empty list for a cluster without the resource
    /// and for a list that the user may not read: the user asked for the pods.
    async fn around<T: DeserializeOwned>(&self, resource: Resource, place: Where) -> Vec<T> {
        match self.api(resource, place).list(&ListParams::default()).await {
            Ok(list) => {
                let objects = list.items.iter();
                objects.filter_map(|object| object.read().ok()).collect()
            }
            Err(error) => {
                let what = resource.plural;
                tracing::debug!(what, %error, "not read");
                Vec::new()
            }
        }
    }

    fn api(&self, resource: Resource, place: Where) -> Api<RawObject> {
        let (client, kind) = (self.client.clone(), api_resource(resource));
        match place {
            Where::Here => Api::namespaced_with(client, &self.namespace, &kind),
            Where::Everywhere => Api::all_with(client, &kind),
        }
    }
}

/// Only the last cause says something new: kube's errors repeat their sources.
pub(in crate::cmd::client) fn refused(what: &str, error: &kube::Error) -> CliError {
    let status = if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    };
    let mut last: &dyn Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    PodsError::Request {
        what: what.to_owned(),
        status,
        source: last.to_string().into(),
    }
    .into()
}
