//! ConfigMaps and Secrets that volumes of running pods show. Each is watched once for all pods of the node, and only while a
//! pod follows it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use longshore_k8s::Backoff;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::sources::{self, Data, Kind, Sources};

/// News that wait; a follower waits when there are more.
const BACKLOG: usize = 16;
/// Most pods of a pipeline are over before this time: what they refer to need not be watched.
const SETTLED: Duration = Duration::from_secs(2);

/// Namespace and name of an object.
type Key = (Kind, String, String);

/// The values of an object that may not exist; `None` before it was seen.
type State = Option<Option<Data>>;

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
                let read =
                    |it: ConfigMap| (it.immutable == Some(true), sources::config_map_data(it));
                tokio::spawn(keep_watching(api, name, read, tell))
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(client, &namespace);
                let read = |it: Secret| (it.immutable == Some(true), sources::secret_data(it));
                tokio::spawn(keep_watching(api, name, read, tell))
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

/// Tells each state of an object, until it is one that cannot change.
async fn keep_watching<K>(
    api: Api<K>,
    name: String,
    read: impl Fn(K) -> (bool, Data),
    tell: watch::Sender<State>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut objects = std::pin::pin!(watch_object(api, &name).default_backoff());
    while let Some(object) = objects.next().await {
        match object.map(|object| object.map(&read)) {
            Ok(Some((is_immutable, data))) => {
                tell.send_replace(Some(Some(data)));
                if is_immutable {
                    return;
                }
            }
            Ok(None) => drop(tell.send_replace(Some(None))),
            Err(error) => {
                tracing::debug!(%error, name, "the watch of an object broke, connecting again");
            }
        }
    }
}

/// What a pod hears about the objects of its volumes.
#[derive(Debug)]
pub(crate) enum Told {
    /// All that it refers to.
    Sources(Sources),
    /// An object, which may not exist.
    Object(Kind, String, Option<Data>),
}

/// What one pod follows. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Followers {
    running: BTreeMap<(Kind, String), AbortOnDropHandle<()>>,
    reading: Option<AbortOnDropHandle<()>>,
    tell: mpsc::Sender<Told>,
    told: mpsc::Receiver<Told>,
}

impl Followers {
    pub(crate) fn new() -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        Self {
            running: BTreeMap::new(),
            reading: None,
            tell,
            told,
        }
    }

    /// What comes next; never resolves while nothing is followed.
    pub(crate) async fn next(&mut self) -> Told {
        match self.told.recv().await {
            Some(told) => told,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Ends everything.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
        self.reading = None;
    }

    /// Reads all that the pod refers to, as often as it takes.
    pub(crate) fn read(&mut self, client: Client, pod: Arc<Pod>) {
        if self.reading.is_some() {
            return;
        }
        let tell = self.tell.clone();
        let task = tokio::spawn(async move {
            let mut n_failures = 0;
            loop {
                match sources::read(&client, &pod).await {
                    Ok(sources) => return drop(tell.send(Told::Sources(sources)).await),
                    Err(error) => {
                        tracing::debug!(%error, "cannot read what a pod refers to, trying again");
                        n_failures += 1;
                        tokio::time::sleep(Backoff::RETRY.wait(n_failures)).await;
                    }
                }
            }
        });
        self.reading = Some(AbortOnDropHandle::new(task));
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
            let watched = followed.watch(&client, key.clone());
            let mut state = watched.state.clone();
            loop {
                let now = state.borrow_and_update().clone();
                if let Some(data) = now {
                    let told = Told::Object(key.0, key.2.clone(), data);
                    if tell.send(told).await.is_err() {
                        return;
                    }
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

    /// The value of the next news, or that there is no object.
    async fn next(followers: &mut Followers) -> String {
        let told = tokio::time::timeout(Duration::from_secs(60), followers.next()).await;
        let Told::Object(_, _, data) = told.expect("news") else {
            panic!("expected an object");
        };
        let Some(data) = data else {
            return "none".into();
        };
        String::from_utf8(data["key"].clone()).unwrap()
    }

    #[tokio::test]
    async fn an_object_is_followed_through_its_life_and_watched_once() {
        let rig = Rig::new();
        let (mut one, mut other) = (Followers::new(), Followers::new());
        rig.follow(&mut one, "map");
        rig.follow(&mut one, "map");
        assert_eq!(next(&mut one).await, "none");
        rig.put("map", "1", false).await;
        assert_eq!(next(&mut one).await, "1");
        rig.follow(&mut other, "map");
        assert_eq!(next(&mut other).await, "1");
        assert_eq!(rig.followed.names(), ["map"]);
        let patch = Patch::Merge(json!({"data": {"key": "2"}}));
        let patched = rig.maps().patch("map", &PatchParams::default(), &patch);
        patched.await.unwrap();
        for followers in [&mut one, &mut other] {
            assert_eq!(next(followers).await, "2");
        }
        let deleted = rig.maps().delete("map", &DeleteParams::default()).await;
        deleted.unwrap();
        assert_eq!(next(&mut one).await, "none");
        // An ended task lets go of the watch a moment later.
        one.clear();
        other.clear();
        let ended = async {
            while !rig.followed.names().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("nobody follows it, so it is not watched");
    }

    #[tokio::test]
    async fn an_immutable_object_is_not_watched() {
        let rig = Rig::new();
        rig.put("fixed", "1", true).await;
        let mut followers = Followers::new();
        rig.follow(&mut followers, "fixed");
        assert_eq!(next(&mut followers).await, "1");
        let ended = async {
            while !rig.followed.names().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("it cannot change");
    }
}
