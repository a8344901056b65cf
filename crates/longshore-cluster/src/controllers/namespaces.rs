//! Empties namespaces that are being deleted: pods first, then everything else, then the namespace
//! itself.

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        reflector::ObjectRef,
        watcher::{Config, Event, watcher},
    },
};
use serde_json::{Value, json};

use super::{
    patience::patiently,
    queue::Queue,
    resources::{Listed, discover},
};

/// The finalizer that stands for the content of a namespace.
const FINALIZER: &str = "kubernetes";

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut events = watcher(namespaces, Config::default())
        .default_backoff()
        .boxed();
    let mut queue: Queue<String> = Queue::new();
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => match event {
                Ok(Event::Apply(namespace) | Event::InitApply(namespace)) => {
                    if namespace.metadata.deletion_timestamp.is_some() {
                        queue.add(ObjectRef::from_obj(&namespace).name);
                    }
                }
                Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                Err(error) => tracing::debug!(%error, "watch failed, starting again"),
            },
            name = queue.next() => match empty(&client, &name).await {
                Ok(Progress::Done) => queue.succeed(&name),
                // Pods and finalizers take their time; look again, less and less often.
                Ok(Progress::Waiting) => queue.retry(name),
                Err(error) => {
                    tracing::debug!(%error, namespace = name, "namespace not emptied, trying again");
                    queue.retry(name);
                }
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Done,
    Waiting,
}

/// The objects and finalizers that are left in a namespace.
#[derive(Debug, Default)]
struct Remains {
    /// Resource and number of objects.
    content: Vec<(String, usize)>,
    /// Finalizer and number of objects that have it.
    finalizers: Vec<(String, usize)>,
}

impl Remains {
    fn add(&mut self, resource: &Listed, objects: &[PartialObjectMeta]) {
        if objects.is_empty() {
            return;
        }
        let group = &resource.api.group;
        let dot = if group.is_empty() { "" } else { "." };
        self.content.push((
            format!("{}{dot}{group}", resource.api.plural),
            objects.len(),
        ));
        for finalizer in objects
            .iter()
            .flat_map(|it| it.metadata.finalizers.iter().flatten())
        {
            match self
                .finalizers
                .iter_mut()
                .find(|(name, _)| name == finalizer)
            {
                Some((_, count)) => *count += 1,
                None => self.finalizers.push((finalizer.clone(), 1)),
            }
        }
    }
}

async fn empty(client: &Client, name: &str) -> Result<Progress, Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let Some(namespace) = namespaces.get_opt(name).await? else {
        return Ok(Progress::Done);
    };
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.clone())
        .unwrap_or_default();
    if namespace.metadata.deletion_timestamp.is_none()
        || !finalizers.iter().any(|it| it == FINALIZER)
    {
        return Ok(Progress::Done);
    }
    let mut resources = discover(client).await;
    resources.retain(|resource| resource.is_namespaced);
    let (pods, others): (Vec<_>, Vec<_>) = resources
        .into_iter()
        .partition(|it| it.api.group.is_empty() && it.api.plural == "pods");
    let mut remains = Remains::default();
    // Whatever a pod uses must outlive it.
    for stage in [pods, others] {
        for resource in &stage {
            remains.add(resource, &delete_all(client, name, resource).await?);
        }
        if !remains.content.is_empty() {
            report(&namespaces, &namespace, &remains).await?;
            return Ok(Progress::Waiting);
        }
    }
    // Written last, so that the events of its own deletion go as well.
    finalize(&namespaces, &namespace).await?;
    Ok(Progress::Done)
}

/// Deletes every object of a resource. Returns the objects that still exist.
async fn delete_all(
    client: &Client,
    namespace: &str,
    resource: &Listed,
) -> Result<Vec<PartialObjectMeta>, Error> {
    let api: Api<PartialObjectMeta> =
        Api::namespaced_with(client.clone(), namespace, &resource.api);
    let all = ListParams::default();
    if patiently(|| api.list(&all)).await?.items.is_empty() {
        return Ok(Vec::new());
    }
    api.delete_collection(&DeleteParams::background(), &all)
        .await?;
    Ok(api.list(&all).await?.items)
}

/// Writes into the status what the namespace still waits for.
async fn report(
    namespaces: &Api<Namespace>,
    namespace: &Namespace,
    remains: &Remains,
) -> Result<(), Error> {
    let present: Value = json!(
        namespace
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
    );
    let conditions: Vec<Value> = conditions(remains)
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let old = present.as_array().into_iter().flatten().find(|it| it["type"] == kind);
            let since = old
                .filter(|it| it["status"] == status)
                .map_or_else(|| json!(now()), |it| it["lastTransitionTime"].clone());
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        })
        .collect();
    if json!(conditions) == present {
        return Ok(());
    }
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    namespaces
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map(|_| ())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a controller beside the server, which has no clock of its own"
)]
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Type, status, reason, message of all conditions of a namespace that goes.
fn conditions(remains: &Remains) -> Vec<(&'static str, &'static str, &'static str, String)> {
    let list = |counts: &[(String, usize)], what: &str| -> String {
        counts
            .iter()
            .map(|(name, count)| format!("{name} {what} {count} resource instances"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let remaining = match remains.content.as_slice() {
        [] => (
            "False",
            "ContentRemoved",
            "All content successfully removed".to_owned(),
        ),
        content => (
            "True",
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", list(content, "has")),
        ),
    };
    let finalizers = match remains.finalizers.as_slice() {
        [] => (
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        ),
        some => (
            "True",
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                list(some, "in")
            ),
        ),
    };
    vec![
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        (
            "NamespaceContentRemaining",
            remaining.0,
            remaining.1,
            remaining.2,
        ),
        (
            "NamespaceFinalizersRemaining",
            finalizers.0,
            finalizers.1,
            finalizers.2,
        ),
    ]
}

async fn finalize(namespaces: &Api<Namespace>, namespace: &Namespace) -> Result<(), Error> {
    let mut finalized = namespace.clone();
    // The status report above may have changed the version. Only this controller writes the
    // finalizers.
    finalized.metadata.resource_version = None;
    if let Some(finalizers) = finalized
        .spec
        .as_mut()
        .and_then(|spec| spec.finalizers.as_mut())
    {
        finalizers.retain(|it| it != FINALIZER);
    }
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    match namespaces
        .replace_subresource("finalize", name, &PostParams::default(), &finalized)
        .await
    {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
