//! One suite for both catalogs: the embedded one, asked directly and as a service.

use longshore_outbound::Permit;
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{Router, routing::post};
use jiff::SignedDuration;
use longshore_connect::ConnectClient;
use longshore_core::error::chain;
use longshore_kit::Clock;
use longshore_object_store::{File, Storage};
use longshore_proto::flyteidl2::core::{Literal, LiteralMap};
use longshore_test::{Answer, Conduct, ForeignServer, serve};
use prost::Message;

use super::*;

mod caching;

const HEARTBEAT: Duration = Duration::from_secs(10);

/// A clock that stands still unless it is moved.
#[derive(Debug)]
pub(super) struct StoppedClock(Mutex<Timestamp>);

impl StoppedClock {
    fn new() -> Arc<Self> {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        Arc::new(Self(Mutex::new(start)))
    }

    fn pass(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap();
        *now += SignedDuration::from_secs(seconds);
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

fn open(directory: &Path, clock: &Arc<StoppedClock>) -> Arc<EmbeddedCatalog> {
    let (path, clock) = (directory.join("catalog.redb"), Arc::clone(clock));
    Arc::new(EmbeddedCatalog::open(&path, clock, Limits::default()).unwrap())
}

async fn remote(router: Router) -> RemoteCatalog {
    RemoteCatalog::new(ConnectClient::new(&serve(router).await, Permit::always()).unwrap())
}

fn key(key: &str) -> CacheKey {
    CacheKey {
        org: String::new(),
        project: "p".to_owned(),
        domain: "d".to_owned(),
        key: key.to_owned(),
    }
}

fn at(url: &str) -> CachedOutput {
    CachedOutput {
        metadata: None,
        output: Some(Output::OutputUri(url.to_owned())),
    }
}

/// Runs a test of both catalogs.
async fn on_both(test: impl AsyncFn(&dyn Catalog, &StoppedClock)) {
    for is_remote in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let clock = StoppedClock::new();
        let embedded = open(directory.path(), &clock);
        if is_remote {
            let service = remote(server::router(embedded)).await;
            test(&service, &clock).await;
        } else {
            test(&*embedded, &clock).await;
        }
    }
}

#[tokio::test]
async fn what_is_put_is_found_and_the_first_one_stays() {
    on_both(async |catalog, clock| {
        assert_eq!(catalog.get(&key("k")).await.unwrap(), None);
        let put = async |url, replace| catalog.put(&key("k"), at(url), replace).await.unwrap();
        assert_eq!(put("s3://b/1", Replace::Nothing).await, Put::Stored);
        assert_eq!(put("s3://b/2", Replace::Nothing).await, Put::AlreadyThere);
        let found = catalog.get(&key("k")).await.unwrap().unwrap();
        assert_eq!(found.output, at("s3://b/1").output);
        let metadata = found.metadata.unwrap();
        assert_eq!(metadata.created_at, Some(to_proto(clock.now())));
        assert_eq!(metadata.last_updated_at, metadata.created_at);
        let other = CacheKey {
            project: "q".to_owned(),
            ..key("k")
        };
        assert_eq!(catalog.get(&other).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn outputs_are_replaced_where_that_is_asked_for() {
    on_both(async |catalog, clock| {
        let put = async |url, replace| catalog.put(&key("k"), at(url), replace).await.unwrap();
        let hour = Replace::OlderThan(Duration::from_hours(1));
        put("s3://b/1", Replace::Nothing).await;
        clock.pass(3600);
        assert_eq!(put("s3://b/2", hour).await, Put::AlreadyThere);
        clock.pass(1);
        assert_eq!(put("s3://b/3", hour).await, Put::Stored);
        assert_eq!(put("s3://b/4", Replace::Anything).await, Put::Stored);
        let found = catalog.get(&key("k")).await.unwrap().unwrap();
        assert_eq!(found.output, at("s3://b/4").output);
        let metadata = found.metadata.unwrap();
        let age = metadata.last_updated_at.unwrap().seconds - metadata.created_at.unwrap().seconds;
        assert_eq!(age, 3601, "the first one's creation is kept");
    })
    .await;
}

#[tokio::test]
async fn one_owner_has_the_reservation_until_it_lets_go() {
    on_both(async |catalog, clock| {
        let k = key("k");
        let ask = async |owner| {
            let asked = catalog.get_or_extend_reservation(&k, owner, Duration::from_hours(1));
            asked.await.unwrap()
        };
        let first = ask("flyte/a").await;
        let end = clock.now() + SignedDuration::from_secs(30);
        assert_eq!((first.owner.as_str(), first.expires_at), ("flyte/a", end));
        assert_eq!(first.heartbeat, HEARTBEAT, "at most");
        clock.pass(20);
        assert_eq!(ask("flyte/b").await, first);
        assert_eq!(ask("flyte/a").await.owner, "flyte/a");
        clock.pass(29);
        assert_eq!(ask("flyte/b").await.owner, "flyte/a", "it was extended");
        clock.pass(1);
        assert_eq!(ask("flyte/b").await.owner, "flyte/b");

        catalog.release_reservation(&k, "flyte/a").await.unwrap();
        assert_eq!(ask("flyte/a").await.owner, "flyte/b", "not a's to release");
        catalog.release_reservation(&k, "flyte/b").await.unwrap();
        catalog.release_reservation(&k, "flyte/b").await.unwrap();
        assert_eq!(ask("flyte/a").await.owner, "flyte/a");
    })
    .await;
}

#[tokio::test]
async fn of_many_that_ask_at_once_one_gets_it() {
    on_both(async |catalog, _| {
        let k = key("k");
        let owners: Vec<String> = (0..50).map(|n| format!("flyte/{n}")).collect();
        let asked = owners
            .iter()
            .map(|owner| catalog.get_or_extend_reservation(&k, owner, HEARTBEAT));
        let answers = futures::future::try_join_all(asked).await.unwrap();
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_restart_forgets_nothing_but_what_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let clock = StoppedClock::new();
    let catalog = open(directory.path(), &clock);
    catalog
        .put(&key("k"), at("s3://b/1"), Replace::Nothing)
        .await
        .unwrap();
    let k = key("held");
    let held = catalog.get_or_extend_reservation(&k, "flyte/a", HEARTBEAT);
    let held = held.await.unwrap();
    drop(catalog);

    clock.pass(29);
    let catalog = open(directory.path(), &clock);
    assert!(catalog.get(&key("k")).await.unwrap().is_some());
    let asked = catalog.get_or_extend_reservation(&k, "flyte/b", HEARTBEAT);
    assert_eq!(asked.await.unwrap(), held);
    drop(catalog);

    clock.pass(1);
    let catalog = open(directory.path(), &clock);
    let asked = catalog.get_or_extend_reservation(&k, "flyte/b", HEARTBEAT);
    assert_eq!(asked.await.unwrap().owner, "flyte/b");
}

#[tokio::test]
async fn a_file_that_is_no_catalog_or_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let clock = StoppedClock::new();
    let path = directory.path().join("catalog.redb");
    std::fs::write(&path, "no catalog").unwrap();
    let opened = EmbeddedCatalog::open(&path, clock.clone(), Limits::default());
    assert!(opened.unwrap_err().to_string().contains("catalog.redb"));
    std::fs::remove_file(&path).unwrap();
    let _first = open(directory.path(), &clock);
    EmbeddedCatalog::open(&path, clock, Limits::default()).unwrap_err();
}

#[tokio::test]
async fn a_service_says_what_a_request_lacks() {
    use longshore_proto::flyteidl2::cacheservice::{self as base, PutCacheResponse, v2};
    let directory = tempfile::tempdir().unwrap();
    let embedded = open(directory.path(), &StoppedClock::new());
    let client =
        ConnectClient::new(&serve(server::router(embedded)).await, Permit::always()).unwrap();
    let mut request = v2::PutCacheRequest::default();
    for expected in [
        "base_request",
        "identifier",
        "base_request.key",
        "base_request.output",
    ] {
        let call = client.call::<PutCacheResponse>(remote::method::PUT, &request);
        let error = call.await.unwrap_err().to_string();
        let expected_end = format!("invalid_argument: {expected} is required");
        assert!(error.ends_with(&expected_end), "{error}");
        match expected {
            "base_request" => request.base_request = Some(base::PutCacheRequest::default()),
            "identifier" => request.identifier = Some(v2::Identifier::default()),
            _ => request.base_request.as_mut().unwrap().key = "k".to_owned(),
        }
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_neither_an_output_nor_a_reservation() {
    use longshore_proto::flyteidl2::cacheservice::GetCacheResponse;
    let cached = GetCacheResponse {
        output: Some(at("file:///x")),
    };
    for (answer, of_get, of_reserve) in [
        (Vec::new(), "without an output", "without a reservation"),
        // The answer to the other question.
        (
            cached.encode_to_vec(),
            "",
            "without the end of a reservation",
        ),
    ] {
        let server = ForeignServer::start(move |_| {
            let answer = Answer::new(http::StatusCode::OK, "application/proto", answer.clone());
            Conduct::Answers(answer)
        });
        let server = server.await.unwrap();
        let catalog =
            RemoteCatalog::new(ConnectClient::new(&server.url(), Permit::always()).unwrap());
        let key = key("k");
        if !of_get.is_empty() {
            let error = catalog.get(&key).await.unwrap_err();
            assert!(chain(&error).contains(of_get), "{error}");
        }
        let reserved = catalog.get_or_extend_reservation(&key, "a", HEARTBEAT);
        let error = reserved.await.unwrap_err();
        assert!(chain(&error).contains(of_reserve), "{}", chain(&error));
    }
}
