//! The embedded server beside a real kube-apiserver: the same requests in the same order, and the
//! same answers.
//!
//! The requests are data, `testdata/differential/*.yaml`, one file for each subject. `answers.json`
//! beside them records the answers of a real server, and every test run compares against it.
//! `LONGSHORE_TEST_KUBECONFIG` may name a real server without controllers and without objects
//! (`cargo xtask real-cluster`): then the test sends the requests to that server as well, and its
//! answers must equal the record. `LONGSHORE_RECORD=1` writes the record and the table in
//! `docs/compatibility.md` anew.
//!
//! Differences are allowed where `differences.json` explains them, and nowhere else. An
//! explanation without a difference fails too.

mod answers;
mod compare;
mod differences;
mod mask;
mod replay;
mod rights;
mod scenario;

use std::collections::BTreeMap;

use kube::config::{KubeConfigOptions, Kubeconfig};
use longshore_cluster::{Authorization, Cluster};
use serde_json::Value;

use answers::Recorded;
use compare::{Found, compare};
use replay::replay;
use scenario::Subject;

/// Fewer requests than this in all prove little.
const LEAST_REQUESTS: usize = 1170;

/// No area has fewer requests than these in its subjects together.
const LEAST_OF_AREAS: [(&[&str], usize); 10] = [
    (&["access"], 120),
    (&["tokens", "reviews"], 50),
    (&["jobs", "services"], 100),
    (&["admission"], 85),
    (&["definitions", "names", "protobuf"], 110),
    (&["pods", "ways-in", "evictions", "runtime-classes"], 200),
    (&["workloads"], 50),
    (&["objects", "data", "stored", "others"], 150),
    (&["lists", "watches", "options", "paths", "namespaces"], 185),
    (&["patches", "strategic", "deletion"], 90),
];

#[tokio::test(start_paused = true)]
async fn differential_embedded_server_answers_as_recorded() {
    let subjects = Subject::all();
    let recorded = Recorded::read();
    let mut found = Vec::new();
    for subject in &subjects {
        // Each on its own, as the order of the files must not matter.
        let builder = Cluster::builder();
        // As the recorded server.
        let cluster = builder.authorization(Authorization::Rbac).build();
        // A webhook is outside, where the time is the real one.
        let needs_time = subject.needs_judge();
        if needs_time {
            tokio::time::resume();
        }
        let ours = replay(&cluster.client(), subject).await;
        if needs_time {
            tokio::time::pause();
        }
        for (id, answer) in &ours {
            match recorded.answers.get(id) {
                Some(theirs) => found.extend(compare(id, theirs, answer)),
                None => found.push(Found::unrecorded(id)),
            }
        }
    }
    let known: Vec<String> = subjects.iter().flat_map(Subject::ids).collect();
    let stale: Vec<&String> = recorded
        .answers
        .keys()
        .filter(|id| !known.contains(id))
        .collect();
    assert!(
        stale.is_empty(),
        "recorded answers without a request: {stale:?}"
    );
    let complaints = differences::judge(&found);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn differential_record_is_what_a_real_server_answers() {
    let Some(path) = environment("LONGSHORE_TEST_KUBECONFIG") else {
        println!("skipped: LONGSHORE_TEST_KUBECONFIG names no real server");
        return;
    };
    let client = real_client(&path).await;
    let version = client.apiserver_version().await.unwrap().git_version;
    let mut answers = BTreeMap::new();
    for subject in Subject::all() {
        answers.extend(replay(&client, &subject).await);
    }
    if environment("LONGSHORE_RECORD").is_some() {
        Recorded::write(&version, &answers);
        return;
    }
    let recorded = Recorded::read();
    assert_eq!(
        recorded.kubernetes, version,
        "recorded from another version"
    );
    let nothing = Value::Null;
    let found: Vec<Found> = answers
        .iter()
        .flat_map(|(id, answer)| compare(id, answer, recorded.answers.get(id).unwrap_or(&nothing)))
        .collect();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(
        found.is_empty(),
        "the record (\"here\") is not what Kubernetes answers; LONGSHORE_RECORD=1 writes it anew:\n{}",
        found.join("\n")
    );
    println!("{} answers of Kubernetes {version}", answers.len());
}

#[test]
fn differential_requests_are_many() {
    let mut left: BTreeMap<String, usize> = Subject::all()
        .into_iter()
        .map(|subject| (subject.name, subject.steps.len()))
        .collect();
    let in_all: usize = left.values().sum();
    assert!(in_all >= LEAST_REQUESTS, "{in_all}");
    for (subjects, least) in LEAST_OF_AREAS {
        let n_requests: usize = subjects
            .iter()
            .map(|name| left.remove(*name).unwrap_or_default())
            .sum();
        assert!(
            n_requests >= least,
            "{subjects:?}: {n_requests}, not {least}"
        );
    }
    assert!(left.is_empty(), "subjects of no area: {left:?}");
}

#[test]
fn differential_document_lists_what_is_explained() {
    if environment("LONGSHORE_RECORD").is_some() {
        differences::write_document();
    }
    differences::check_document();
}

async fn real_client(path: &str) -> kube::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let mut config = config.await.unwrap();
    // Answers like 504 are to be seen, not to be tried again.
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the lane tells its tests where the server is"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
