//! ConfigMaps and Secrets that volumes of running pods show. Each is watched once for all pods of the node, and only while a
//! pod follows it. What a watch shows is only that something has changed: the pod then reads all that it refers to.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::sources::Kind;

/// News that wait; a follower waits when there are more.
const BACKLOG: usize = 16;
/// Most pods of a pipeline are over before this time: what they refer to need not be watched.
const SETTLED: Duration = Duration::from_secs(2);

/// Namespace and name of an object.
type Key = (Kind, String, String);

/// The version of an object that may not exist; `None` before it was seen.
type State = Option<Option<String>>;

/// The objects that are watched now.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    watched: Mutex<BTreeMap<Key, Weak<Watched>>>,
}

/// An object that is watched as long as somebody holds this.
#[derive(Debug)]
struct Watched {
    state: watch::Receiver<State>,
    task: AbortOnDropHandle<()>,
}

impl Followed {
    fn watch(&self, client: &Client, key: Key) -> Arc<Watched> {
        let mut all = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, watched| watched.strong_count() > 0);
        let known = all.get(&key).and_then(Weak::upgrade);
        // The watch of an immutable object has ended: another one may have its name by now.
        if let Some(watched) = known.filter(|watched| !watched.task.is_finished()) {
            return watched;
        }
        let (tell, state) = watch::channel(None);
        let (kind, namespace, name) = key.clone();
        let client = client.clone();
        let task = match kind {
            Kind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(client, &namespace);
                let is_fixed = |it: &ConfigMap| it.immutable == Some(true);
                tokio::spawn(keep_watching(api, name, is_fixed, tell))
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(client, &namespace);
                let is_fixed = |it: &Secret| it.immutable == Some(true);
                tokio::spawn(keep_watching(api, name, is_fixed, tell))
            }
        };
        let watched = Arc::new(Watched {
            state,
            task: AbortOnDropHandle::new(task),
        });
        all.insert(key, Arc::downgrade(&watched));
        watched
    }

    /// The names of the objects that are watched.
    #[cfg(test)]
    fn names(&self) -> Vec<String> {
        let all = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let live = all.iter().filter(|(_, it)| {
            let watched = it.upgrade();
            watched.is_some_and(|watched| !watched.task.is_finished())
        });
        live.map(|((_, _, name), _)| name.clone()).collect()
    }
}

/// Tells each version of an object, until it is one that cannot change.
async fn keep_watching<K>(
    api: Api<K>,
    name: String,
    is_fixed: impl Fn(&K) -> bool,
    tell: watch::Sender<State>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut objects = std::pin::pin!(watch_object(api, &name).default_backoff());
    while let Some(object) = objects.next().await {
        match object {
            Ok(object) => {
                let version = object.as_ref().and_then(ResourceExt::resource_version);
                tell.send_replace(Some(version));
                if object.as_ref().is_some_and(&is_fixed) {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, name, "the watch of an object broke, connecting again");
            }
        }
    }
}

/// What one pod follows. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Followers {
    running: BTreeMap<(Kind, String), AbortOnDropHandle<()>>,
    tell: mpsc::Sender<()>,
    told: mpsc::Receiver<()>,
}

impl Followers {
    pub(crate) fn new() -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        Self {
            running: BTreeMap::new(),
            tell,
            told,
        }
    }

    /// Waits until something has changed, or was seen for the first time; never resolves while nothing is followed.
    pub(crate) async fn next(&mut self) {
        match self.told.recv().await {
            Some(()) => {}
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Ends everything.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
    }

    /// Follows an object, if that is not done already.
    pub(crate) fn follow(
        &mut self,
        followed: &Arc<Followed>,
        client: &Client,
        (kind, namespace, name): (Kind, &str, &str),
    ) {
        let of_pod = (kind, name.to_owned());
        if self.running.contains_key(&of_pod) {
            return;
        }
        let key = (kind, namespace.to_owned(), name.to_owned());
        let (followed, client, tell) = (followed.clone(), client.clone(), self.tell.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep(SETTLED).await;
            let watched = followed.watch(&client, key);
            let mut state = watched.state.clone();
            loop {
                let is_seen = state.borrow_and_update().is_some();
                if is_seen && tell.send(()).await.is_err() {
                    return;
                }
                // The object cannot change any more.
                if state.changed().await.is_err() {
                    return;
                }
            }
        });
        self.running.insert(of_pod, AbortOnDropHandle::new(task));
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
    use longshore_cluster::Cluster;
    use serde_json::{from_value, json};

    use super::*;

    struct Rig {
        client: Client,
        followed: Arc<Followed>,
        _cluster: Cluster,
    }

    impl Rig {
        fn new() -> Self {
            let cluster = Cluster::in_memory();
            Self {
                client: cluster.client(),
                followed: Arc::default(),
                _cluster: cluster,
            }
        }

        fn maps(&self) -> Api<ConfigMap> {
            Api::default_namespaced(self.client.clone())
        }

        async fn put(&self, name: &str, value: &str, is_immutable: bool) {
            let map = json!({
                "metadata": {"name": name}, "data": {"key": value}, "immutable": is_immutable,
            });
            let map = from_value(map).unwrap();
            let created = self.maps().create(&PostParams::default(), &map).await;
            created.unwrap();
        }

        fn follow(&self, followers: &mut Followers, name: &str) {
            let object = (Kind::ConfigMap, "default", name);
            followers.follow(&self.followed, &self.client, object);
        }
    }

    async fn next(followers: &mut Followers) {
        let told = tokio::time::timeout(Duration::from_secs(60), followers.next()).await;
        told.expect("news");
    }

    /// Waits until nothing is watched: a task that was ended lets go of its watch a moment later.
    async fn until_nothing_is_watched(rig: &Rig) {
        let ended = async {
            while !rig.followed.names().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("nothing is watched");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_followed_through_its_life_and_watched_once() {
        let rig = Rig::new();
        let (mut one, mut other) = (Followers::new(), Followers::new());
        rig.follow(&mut one, "map");
        rig.follow(&mut one, "map");
        // It does not exist.
        next(&mut one).await;
        rig.put("map", "1", false).await;
        next(&mut one).await;
        rig.follow(&mut other, "map");
        next(&mut other).await;
        assert_eq!(rig.followed.names(), ["map"]);
        let patch = Patch::Merge(json!({"data": {"key": "2"}}));
        let (maps, parameters) = (rig.maps(), PatchParams::default());
        maps.patch("map", &parameters, &patch).await.unwrap();
        for followers in [&mut one, &mut other] {
            next(followers).await;
        }
        let deleted = rig.maps().delete("map", &DeleteParams::default()).await;
        deleted.unwrap();
        next(&mut one).await;
        one.clear();
        other.clear();
        until_nothing_is_watched(&rig).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_immutable_object_is_not_watched() {
        let rig = Rig::new();
        rig.put("fixed", "1", true).await;
        let mut followers = Followers::new();
        rig.follow(&mut followers, "fixed");
        next(&mut followers).await;
        until_nothing_is_watched(&rig).await;
    }
}
