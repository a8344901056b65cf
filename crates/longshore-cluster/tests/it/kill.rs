//! SIGKILL at random moments, on a real process with a real file. The process is this test binary:
//! it runs [`a_process_that_is_killed`] with a directory, and reports every try, answer and event on
//! its standard output.

#![expect(clippy::print_stdout, reason = "that is how the child reports")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use longshore_cluster::{Cluster, OpenError};
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, events_until, revision};

/// The directory for [`a_process_that_is_killed`].
const DIRECTORY: &str = "LONGSHORE_TEST_KILL_DIRECTORY";
/// How often to kill; the campaign asks for more than a test run.
const KILLS: &str = "LONGSHORE_TEST_KILLS";

const N_WRITERS: usize = 6;
/// More events than the test makes: each life can check the whole history.
const WINDOW: usize = 1_000_000;

#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own child what to do"
)]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn open(directory: &Path) -> Result<Cluster, OpenError> {
    Cluster::builder().watch_window(WINDOW).open(directory)
}

/// Creates, updates and deletes config maps of its own until the process ends; before each write it
/// says `try`, after the answer `ack`.
async fn write(maps: kube::Api<ConfigMap>, life: String, writer: usize) {
    for n in 0.. {
        let name = format!("{life}-{writer}-{n}");
        let map = json!({"metadata": {"name": name}, "data": {"step": "0", "p": "x".repeat(500)}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        println!("try {name} 0");
        let mut map = maps.create(&PostParams::default(), &map).await.unwrap();
        println!("ack {name} 0 {} {}", map.uid().unwrap(), rv(&map));
        for step in 1..3 {
            let data = map.data.get_or_insert_default();
            data.insert("step".into(), step.to_string());
            println!("try {name} {step}");
            map = maps
                .replace(&name, &PostParams::default(), &map)
                .await
                .unwrap();
            println!("ack {name} {step} {} {}", map.uid().unwrap(), rv(&map));
        }
        if n % 2 == 0 {
            println!("try {name} 3");
            maps.delete(&name, &DeleteParams::default()).await.unwrap();
            println!("ack {name} 3 {} 0", map.uid().unwrap());
        }
    }
}

fn rv(map: &ConfigMap) -> String {
    map.resource_version().unwrap_or_default()
}

/// Says `seen` for every event.
async fn observe(maps: kube::Api<ConfigMap>, from: String) {
    let mut events = maps
        .watch(&WatchParams::default(), &from)
        .await
        .unwrap()
        .boxed();
    while let Some(event) = events.try_next().await.unwrap() {
        if let WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) = event
        {
            println!("seen {} {}", map.name_any(), rv(&map));
        }
    }
}

/// What the child says. Without a directory it is no child, and shows that nothing is said then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed() {
    let Some(directory) = told(DIRECTORY) else {
        return;
    };
    let cluster = match open(Path::new(&directory)) {
        Ok(cluster) => cluster,
        Err(error) => return println!("refused {error}"),
    };
    let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cluster.client());
    let list = maps.list(&ListParams::default()).await.unwrap();
    let from = list.metadata.resource_version.unwrap();
    println!("open {from}");
    tokio::spawn(observe(maps.clone(), from.clone()));
    let writers = (0..N_WRITERS).map(|writer| write(maps.clone(), format!("l{from}"), writer));
    futures::future::join_all(writers).await;
}

/// This binary again, as [`a_process_that_is_killed`].
fn child(directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kill::a_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Lets a child process write for `lifetime` after its first answer, and kills it. Returns the
/// lines that it printed.
fn one_life(directory: &Path, lifetime: Duration) -> Vec<String> {
    let mut process = child(directory).spawn().unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let (said, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
    });
    let patience = Duration::from_secs(60);
    let mut heard = Vec::new();
    while !heard
        .last()
        .is_some_and(|it: &String| it.starts_with("ack"))
    {
        heard.push(lines.recv_timeout(patience).unwrap());
    }
    std::thread::sleep(lifetime);
    process.kill().unwrap(); // SIGKILL
    process.wait().unwrap();
    reader.join().unwrap();
    heard.extend(lines.iter());
    heard
}

/// The newest answer about an object, and whether a later write of it was on its way.
#[derive(Debug, Clone, Default)]
struct LastAnswer {
    uid: String,
    step: Option<u64>,
    revision: u64,
    tried: u64,
}

/// Everything that was ever said.
#[derive(Debug, Default)]
struct History {
    objects: BTreeMap<String, LastAnswer>,
    /// The client that got each revision.
    revisions: BTreeMap<u64, String>,
    /// The newest revision that a client has seen.
    newest: u64,
    n_acknowledged: u64,
}

impl History {
    fn note(&mut self, lines: &[String]) {
        assert!(lines.iter().any(|it| it.starts_with("open ")), "{lines:?}");
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words.as_slice() {
                ["open", _] => assert!(number(1) >= self.newest, "{line} after {}", self.newest),
                ["try", name, _] => {
                    self.objects.entry((*name).to_owned()).or_default().tried = number(2);
                }
                ["ack", name, _, uid, _] => {
                    self.n_acknowledged += 1;
                    let known = self.objects.entry((*name).to_owned()).or_default();
                    known.uid = (*uid).to_owned();
                    known.step = Some(number(2));
                    known.revision = number(4);
                    if number(4) > 0 {
                        self.claim(number(4), name);
                    }
                }
                ["seen", name, _] => self.claim(number(2), name),
                _ => assert!(!line.starts_with("refused"), "{line}"),
            }
        }
    }

    /// A revision belongs to one write for ever.
    fn claim(&mut self, revision: u64, name: &str) {
        let owner = self.revisions.entry(revision).or_insert(name.to_owned());
        assert_eq!(owner, name, "revision {revision} was given out twice");
        self.newest = self.newest.max(revision);
    }

    /// Every answer still holds: the same uid and revision, or the one write that was on its way.
    fn check(&self, items: &[Value]) {
        let found: BTreeMap<&str, &Value> = items
            .iter()
            .map(|it| (it["metadata"]["name"].as_str().unwrap(), it))
            .collect();
        for (name, known) in &self.objects {
            let is_certain = known.step == Some(known.tried);
            let Some(object) = found.get(name.as_str()) else {
                let may_be_gone = known.step.is_none() || known.tried == 3;
                assert!(may_be_gone, "{name} is lost: {known:?}");
                continue;
            };
            let step: u64 = object["data"]["step"].as_str().unwrap().parse().unwrap();
            if let Some(acknowledged) = known.step {
                assert_eq!(object["metadata"]["uid"], known.uid.as_str(), "{name}");
                assert!(
                    step >= acknowledged,
                    "{name} fell back to {step}: {known:?}"
                );
                if step == acknowledged {
                    assert_eq!(revision(object), known.revision, "{name}");
                }
            }
            assert!(
                step <= known.tried,
                "{name} went ahead to {step}: {known:?}"
            );
            assert!(
                !is_certain || known.step == Some(step),
                "{name} is back from the dead: {known:?}"
            );
        }
    }

    /// What was found counts as known: the next life must find it again.
    fn adopt(&mut self, items: &[Value]) {
        let mut found = BTreeSet::new();
        for object in items {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let step = object["data"]["step"].as_str().unwrap().parse().unwrap();
            let known = LastAnswer {
                uid: object["metadata"]["uid"].as_str().unwrap().to_owned(),
                step: Some(step),
                revision: revision(object),
                tried: step,
            };
            self.claim(known.revision, &name);
            self.objects.insert(name.clone(), known);
            found.insert(name);
        }
        self.objects.retain(|name, _| found.contains(name));
    }
}

#[test]
fn no_acknowledged_write_is_lost_by_kill_9() {
    let n_kills = told(KILLS).map_or(5, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut history = History::default();
    let mut random = uuid::Uuid::new_v4().as_u128();
    let mut opening = Duration::ZERO;
    let mut n_events = 0;
    for _ in 0..n_kills {
        random = random.rotate_left(13).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lifetime = Duration::from_micros((random >> 64) as u64 % 300_000);
        history.note(&one_life(directory.path(), lifetime));
        opening = opening.max(runtime.block_on(async {
            #[expect(clippy::disallowed_methods, reason = "measures real time")]
            let (started, elapsed) = (Instant::now(), |it: Instant| it.elapsed());
            let cluster = open(directory.path()).unwrap();
            let opening = elapsed(started);
            let api = Api::new(&cluster);
            let (_, list) = api.get(CONFIG_MAPS).await;
            let items = list["items"].as_array().unwrap();
            history.check(items);
            history.adopt(items);
            assert!(revision(&list) >= history.newest);
            // Everything that a client saw is in the window, and a watch from the beginning gets
            // all of it.
            n_events = check_watch(&api, &history).await;
            cluster.close();
            opening
        }));
    }
    let result = json!({
        "kills": n_kills,
        "acknowledged_writes": history.n_acknowledged,
        "objects": history.objects.len(),
        "events": n_events,
        "lost_writes": 0,
        "reused_revisions": 0,
        "slowest_open_ms": opening.as_millis() as u64,
    });
    println!("result {result}");
    assert!(history.n_acknowledged > n_kills * 5, "{result}");
}

/// A watch from the beginning gets every event that a client saw, in the order of revisions.
async fn check_watch(api: &Api, history: &History) -> usize {
    let last = json!({"metadata": {"generateName": "last-"}, "data": {"step": "3"}});
    let last = revision(&api.make(CONFIG_MAPS, last).await);
    let query = format!("{CONFIG_MAPS}?watch=true");
    let is_last = |event: &Value| revision(&event["object"]) >= last;
    let events = events_until(api, &query, 1, is_last).await;
    let revisions: Vec<u64> = events.iter().map(|it| revision(&it["object"])).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b));
    let delivered: BTreeSet<u64> = revisions.into_iter().collect();
    for (revision, name) in &history.revisions {
        assert!(
            delivered.contains(revision),
            "no event {revision} of {name}"
        );
    }
    delivered.len()
}

#[cfg(unix)]
#[test]
fn a_directory_of_somebody_else_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o500)).unwrap();
    match open(directory.path()) {
        Err(error) => assert!(matches!(error, OpenError::NoPermission { .. }), "{error:?}"),
        // The permission does not stop root: the test repeats this as the user nobody.
        Ok(cluster) => {
            cluster.close();
            let mut child = child(directory.path());
            let output = child.uid(65534).gid(65534).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.contains("refused no permission to"), "{said}");
        }
    }
}

#[test]
fn a_second_process_is_told_who_is_first() {
    let directory = tempfile::tempdir().unwrap();
    let _cluster = open(directory.path()).unwrap();
    let output = child(directory.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = format!("is in use by process {}", std::process::id());
    assert!(said.contains(&expected), "{said}");
}
