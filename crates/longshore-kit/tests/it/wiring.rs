use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{Client, Resource as _, client::Body};
use longshore_core::{Resource, Scope, Seen};
use longshore_kit::{Cache, Definition, Kind, Namespaces, RawObject, Referrers, Router, Wiring};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const JOB: Resource = Resource {
    group: "flink.apache.org",
    version: "v1beta1",
    kind: "FlinkSessionJob",
    plural: "flinksessionjobs",
    scope: Scope::Namespaced,
};
const DEPLOYMENT: Resource = Resource {
    kind: "FlinkDeployment",
    plural: "flinkdeployments",
    ..JOB
};
const DEFINITION: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    scope: Scope::Cluster,
};

/// An API server with a few objects.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Objects>>);

#[derive(Default)]
struct Objects {
    version: u64,
    /// By the end of the path, such as `namespaces/a/pods`: what has happened, by version.
    events: BTreeMap<String, Vec<(u64, &'static str, Value)>>,
    /// What was listed, in order.
    lists: Vec<String>,
    changed: watch::Sender<()>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request.uri()).await) }
        });
        Client::new(service, "default")
    }

    /// An object is there from now on, or not any more.
    fn put(&self, plural: &str, name: &str, change: &'static str, fields: Value) {
        let mut objects = self.0.lock().unwrap();
        objects.version += 1;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let mut object = fields;
        let version = objects.version;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut paths = vec![plural.to_owned()];
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
            paths.push(format!("namespaces/{namespace}/{plural}"));
        }
        for path in paths {
            let events = objects.events.entry(path).or_default();
            events.push((version, change, object.clone()));
        }
        objects.changed.send_replace(());
    }

    fn add(&self, plural: &str, name: &str) {
        self.put(plural, name, "ADDED", json!({}));
    }

    async fn answer(&self, uri: &http::Uri) -> http::Response<Body> {
        let path = uri.path().trim_start_matches('/').split('/');
        let skipped = if uri.path().starts_with("/api/") {
            2
        } else {
            3
        };
        let path = path.skip(skipped).collect::<Vec<_>>().join("/");
        let query = uri.query().unwrap_or_default();
        if !query.contains("watch=true") {
            return self.list(path);
        }
        let from = query.split("resourceVersion=").nth(1).unwrap();
        let from: u64 = from.split('&').next().unwrap().parse().unwrap();
        let mut changed = self.0.lock().unwrap().changed.subscribe();
        loop {
            let lines = self.events_after(&path, from);
            if !lines.is_empty() {
                return http::Response::new(Body::from(lines.into_bytes()));
            }
            changed.changed().await.unwrap();
        }
    }

    fn list(&self, path: String) -> http::Response<Body> {
        let mut objects = self.0.lock().unwrap();
        let mut items = BTreeMap::new();
        for (_, change, object) in objects.events.get(&path).into_iter().flatten() {
            let name = object["metadata"]["name"].to_string();
            match *change {
                "DELETED" => items.remove(&name),
                _ => items.insert(name, object.clone()),
            };
        }
        let items: Vec<Value> = items.into_values().collect();
        let version = objects.version.to_string();
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items});
        objects.lists.push(path);
        http::Response::new(Body::from(list.to_string().into_bytes()))
    }

    fn events_after(&self, path: &str, from: u64) -> String {
        let objects = self.0.lock().unwrap();
        let events = objects.events.get(path).into_iter().flatten();
        let events = events.filter(|(version, ..)| *version > from);
        // As API servers write it: the type comes first.
        let line = |(_, change, object): &(u64, &str, Value)| {
            format!("{{\"type\":\"{change}\",\"object\":{object}}}\n")
        };
        events.map(line).collect()
    }

    fn lists(&self) -> Vec<String> {
        self.0.lock().unwrap().lists.clone()
    }
}

fn name(object: &RawObject) -> String {
    let meta = object.meta();
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

fn key(update: longshore_kit::Update<RawObject>) -> Option<String> {
    Some(name(&*update.into_object()?))
}

/// The key that a label names.
fn owner(object: &RawObject) -> Option<String> {
    let labels = object.to_value().ok()?;
    let owner = labels["metadata"]["labels"]["owner"].as_str()?;
    Some(format!("owner of {owner}"))
}

/// The next `n` keys, in order of their names; then none for an hour.
async fn next<T: Ord>(keys: &mut (impl Stream<Item = T> + Unpin), n: usize) -> Vec<T> {
    let mut next = Vec::new();
    let hour = Duration::from_secs(3_600);
    while next.len() < n {
        let key = tokio::time::timeout(hour, keys.next()).await;
        next.push(key.expect("one more key").unwrap());
    }
    let more = tokio::time::timeout(hour, keys.next()).await;
    assert!(more.is_err(), "no more keys than {n}");
    next.sort();
    next
}

#[tokio::test(start_paused = true)]
async fn each_change_leads_to_the_keys_that_it_is_about() {
    let server = Server::default();
    server.add("pods", "a/free");
    server.put(
        "pods",
        "a/owned",
        "ADDED",
        json!({"metadata": {"labels": {"owner": "x"}}}),
    );
    let cache = Cache::new();
    let wiring = Wiring::new(&server.client(), Namespaces::All)
        .owned(Kind::new(Resource::POD, cache.clone()), owner)
        .watched(Kind::new(DEPLOYMENT, Cache::passing_on()), |update| {
            let name = key(update);
            name.map_or_else(Vec::new, |name| {
                vec![format!("one of {name}"), format!("two of {name}")]
            })
        })
        .facts(stream::iter(["a fact".to_owned()]));
    let feeds: Vec<Resource> = wiring.feeds().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(feeds, [Resource::POD], "the others keep nothing");
    let mut keys = wiring.into_triggers().boxed();
    assert_eq!(next(&mut keys, 2).await, ["a fact", "owner of x"]);
    server.add("flinkdeployments", "b/d");
    assert_eq!(next(&mut keys, 2).await, ["one of b/d", "two of b/d"]);
    assert_eq!(server.lists(), ["pods", "flinkdeployments"]);
    assert!(matches!(cache.get("a", "free"), Seen::Present(_)));
}

#[tokio::test(start_paused = true)]
async fn what_comes_first_is_listed_before_the_others_and_triggers_nothing_by_that() {
    let server = Server::default();
    server.add("pods", "a/pod");
    server.add("flinksessionjobs", "a/job");
    let pods: Arc<Cache<RawObject>> = Cache::new();
    let seen = Arc::clone(&pods);
    let (wanted, is_wanted) = watch::channel(false);
    let deployments: Arc<Cache<RawObject>> = Cache::new();
    let wiring = Wiring::new(&server.client(), Namespaces::one("a"))
        .watched(
            Kind::new(DEPLOYMENT, deployments.clone()).once(is_wanted),
            key,
        )
        .keyed(Kind::new(JOB, Cache::new()), move |update| {
            assert!(seen.complete().present().is_some(), "pods come first");
            key(update)
        })
        .owned(Kind::new(Resource::POD, pods).first(), |pod| {
            Some(name(pod))
        });
    let mut keys = wiring.into_triggers().boxed();
    assert_eq!(next(&mut keys, 1).await, ["a/job"]);
    server.add("pods", "a/pod-2");
    assert_eq!(next(&mut keys, 1).await, ["a/pod-2"]);
    let lists = server.lists();
    assert_eq!(
        lists,
        ["namespaces/a/pods", "namespaces/a/flinksessionjobs"]
    );
    server.add("flinkdeployments", "a/d");
    wanted.send_replace(true);
    assert_eq!(next(&mut keys, 1).await, ["a/d"]);
    assert_eq!(server.lists()[2..], ["namespaces/a/flinkdeployments"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_leaves_the_set_takes_its_objects_with_it_and_may_come_back() {
    let server = Server::default();
    for name in ["a/1", "b/2", "c/3"] {
        server.add("pods", name);
        server.add("flinksessionjobs", name);
    }
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|it| (*it).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let (namespaces, following) = watch::channel(set(&["a", "b"]));
    let (jobs, pods) = (Cache::<RawObject>::new(), Cache::<RawObject>::new());
    let wiring = Wiring::new(&server.client(), Namespaces::Following(following))
        .keyed(Kind::new(JOB, jobs.clone()), key)
        .owned(Kind::new(Resource::POD, pods.clone()), |pod| {
            Some(format!("pod {}", name(pod)))
        });
    let mut keys = wiring.into_triggers().boxed();
    assert!(jobs.get("a", "1").is_unknown(), "nothing is listed yet");
    assert!(jobs.all().is_unknown());
    assert_eq!(
        next(&mut keys, 4).await,
        ["a/1", "b/2", "pod a/1", "pod b/2"]
    );
    assert_eq!(jobs.all().present().map(Vec::len), Some(2));
    assert!(jobs.get("a", "2").is_absent());

    namespaces.send_replace(set(&["b", "c"]));
    let left_and_joined = next(&mut keys, 4).await;
    assert_eq!(left_and_joined, ["a/1", "c/3", "pod a/1", "pod c/3"]);
    assert!(
        jobs.get("a", "1").is_absent(),
        "there is nothing to do about it"
    );
    assert!(pods.get("a", "1").is_unknown(), "it may still exist");
    assert!(pods.beginning("a", "").is_unknown());
    assert_eq!(pods.all().present().map(Vec::len), Some(2));
    server.add("pods", "a/4");
    server.add("pods", "b/5");
    assert_eq!(next(&mut keys, 1).await, ["pod b/5"], "`a` is not watched");

    namespaces.send_replace(set(&["a"]));
    let n_lists = server.lists().len();
    let all = next(&mut keys, 8).await;
    let expected = [
        "a/1", "b/2", "c/3", "pod a/1", "pod a/4", "pod b/2", "pod b/5", "pod c/3",
    ];
    assert_eq!(all, expected);
    assert_eq!(server.lists().len(), n_lists + 2);
    assert!(pods.get("a", "4").present().is_some());
}

/// A watch of one namespace says nothing of what was written in another.
#[tokio::test(start_paused = true)]
async fn namespaces_are_listed_and_followed_each_by_itself() {
    let server = Server::default();
    let pods = Cache::<RawObject>::new();
    let set: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
    let wiring = Wiring::new(&server.client(), Namespaces::These(set))
        .owned(Kind::new(Resource::POD, pods.clone()), |pod| {
            Some(name(pod))
        });
    let mut keys = wiring.into_triggers().boxed();
    assert!(next(&mut keys, 0).await.is_empty());
    server.add("pods", "a/1");
    server.add("pods", "b/2");
    assert_eq!(next(&mut keys, 2).await, ["a/1", "b/2"]);
    assert_eq!(pods.progress(), 1, "as far as the one that is behind");
    server.put("pods", "a/1", "DELETED", json!({}));
    assert_eq!(next(&mut keys, 1).await, ["a/1"]);
    assert!(pods.get("a", "1").is_absent());
    assert!(pods.get("b", "2").present().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_object_leads_to_the_keys_that_refer_to_it() {
    let server = Server::default();
    let refers = |deployment: &str| json!({"spec": {"deploymentName": deployment}});
    for (job, deployment) in [("a/1", "d"), ("a/2", "d"), ("a/3", "e"), ("b/4", "d")] {
        server.put("flinksessionjobs", job, "ADDED", refers(deployment));
    }
    let jobs_of = Referrers::new(|job: &RawObject| {
        let spec = job.to_value().unwrap()["spec"].take();
        let deployment = spec["deploymentName"].as_str().unwrap_or_default();
        let namespace = job.meta().namespace.clone().unwrap_or_default();
        vec![format!("{namespace}/{deployment}")]
    });
    let jobs = Cache::followed_by(jobs_of.clone());
    let wiring = Wiring::new(&server.client(), Namespaces::All)
        .keyed(Kind::new(JOB, jobs), key)
        .watched(
            Kind::new(DEPLOYMENT, Cache::<RawObject>::new()),
            move |update| {
                let deployment = key(update);
                let jobs = deployment.map(|deployment| jobs_of.of(&deployment));
                let jobs = jobs.unwrap_or_default().into_iter();
                jobs.map(|(namespace, name)| format!("{namespace}/{name}"))
            },
        );
    let mut keys = wiring.into_triggers().boxed();
    next(&mut keys, 4).await;
    server.add("flinkdeployments", "a/d");
    assert_eq!(next(&mut keys, 2).await, ["a/1", "a/2"]);
    server.put("flinksessionjobs", "a/2", "MODIFIED", refers("e"));
    assert_eq!(next(&mut keys, 1).await, ["a/2"]);
    server.put("flinkdeployments", "a/d", "DELETED", json!({}));
    assert_eq!(next(&mut keys, 1).await, ["a/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_only_while_it_is_served() {
    let server = Server::default();
    let served =
        |is_served: bool| json!({"spec": {"versions": [{"name": "v1beta1", "served": is_served}]}});
    let definition = Definition::new(JOB, |definition| {
        assert!(definition["spec"].is_object());
    });
    let events = Resource {
        plural: "events",
        kind: "Event",
        ..Resource::POD
    };
    let jobs: Arc<Cache<RawObject>> = Cache::new();
    let of_kind = || Kind::new(JOB, jobs.clone()).defined_by(&definition);
    let about = Kind::new(events, Cache::<RawObject>::passing_on());
    let wiring = Wiring::new(&server.client(), Namespaces::All)
        .owned(of_kind(), |job| Some(name(job)))
        .watched(about.defined_by(&definition).after(&jobs), key);
    assert!(!definition.is_missing(), "it was not looked for yet");
    let mut keys = wiring.into_triggers().boxed();
    assert!(next(&mut keys, 0).await.is_empty());
    assert!(definition.is_missing());
    assert_eq!(server.lists(), [DEFINITION.plural], "it is listed once");

    server.add("flinksessionjobs", "a/1");
    let name = definition.name();
    server.put(DEFINITION.plural, &name, "ADDED", served(true));
    assert_eq!(next(&mut keys, 1).await, ["a/1"]);
    assert!(!definition.is_missing());
    assert_eq!(server.lists()[1..], ["flinksessionjobs", "events"]);

    server.put(DEFINITION.plural, &name, "MODIFIED", served(false));
    assert_eq!(next(&mut keys, 1).await, ["a/1"]);
    assert!(definition.is_missing());
    assert!(jobs.get("a", "1").is_unknown());
    server.add("events", "a/e");
    server.add("flinksessionjobs", "a/2");
    assert!(next(&mut keys, 0).await.is_empty());

    server.put(DEFINITION.plural, &name, "MODIFIED", served(true));
    assert_eq!(next(&mut keys, 3).await, ["a/1", "a/2", "a/e"]);
    assert!(jobs.get("a", "3").is_absent());
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_waited_for_without_a_wiring_by_one_list_and_a_watch() {
    let server = Server::default();
    let definition = Definition::new(JOB, |_| {});
    let waiting = {
        let (definition, client) = (definition.clone(), server.client());
        tokio::spawn(async move { definition.until_served(&client).await })
    };
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(definition.is_missing() && !waiting.is_finished());
    let name = definition.name();
    let versions = json!({"spec": {"versions": [{"name": "v1beta1", "served": true}]}});
    server.put(DEFINITION.plural, &name, "ADDED", versions);
    let hour = Duration::from_secs(3_600);
    tokio::time::timeout(hour, waiting).await.unwrap().unwrap();
    assert!(!definition.is_missing());
    assert_eq!(server.lists(), [DEFINITION.plural], "it is listed once");
}

#[tokio::test(start_paused = true)]
async fn each_controller_gets_its_own_keys() {
    let mut router = Router::default();
    let even = router.keys(|n: &u32| n.is_multiple_of(2).then_some(n));
    drop(router.keys(|n| (*n == 3).then_some(n)));
    let others = router.keys(|n| Some(n));
    let shutdown = CancellationToken::new();
    shutdown
        .run_until_cancelled(router.run(stream::iter(0..6)))
        .await;
    assert_eq!(even.collect::<Vec<_>>().await, [0, 2, 4]);
    assert_eq!(others.collect::<Vec<_>>().await, [1, 3, 5], "one has ended");
}
