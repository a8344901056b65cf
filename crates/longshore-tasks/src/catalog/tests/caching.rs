use longshore_api::flyte::TaskActionSpec;
use longshore_plugins::{Config, TaskContext};
use longshore_proto::flyteidl2::core::{Identifier, TaskMetadata, TaskTemplate, TypedInterface};

use super::*;
use crate::model::ActionKey;

/// Two actions with one key, their stores and their catalog.
struct World {
    directory: tempfile::TempDir,
    clock: Arc<StoppedClock>,
    storage: Arc<Storage>,
    catalog: Arc<dyn Catalog>,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = StoppedClock::new();
        let embedded = open(directory.path(), &clock);
        let service = remote(server::router(embedded)).await;
        Self {
            storage: Arc::new(Storage::local(directory.path().to_owned(), 1000)),
            catalog: Arc::new(service),
            clock,
            directory,
        }
    }

    fn caching(&self) -> Caching {
        self.caching_up_to(Duration::ZERO)
    }

    fn caching_up_to(&self, max_age: Duration) -> Caching {
        let (catalog, storage) = (Arc::clone(&self.catalog), Arc::clone(&self.storage));
        Caching::new(catalog, storage, self.clock.clone(), max_age, HEARTBEAT)
    }

    async fn leave_outputs(&self, entry: &Entry, name: &str) {
        let url = format!("{}/outputs.pb", entry.output_prefix);
        self.storage
            .write(&url, outputs(name).into())
            .await
            .unwrap();
    }

    async fn outputs_of(&self, entry: &Entry) -> File {
        let url = format!("{}/outputs.pb", entry.output_prefix);
        self.storage.read(&url).await.unwrap()
    }
}

fn outputs(name: &str) -> Vec<u8> {
    let literals = [(name.to_owned(), Literal::default())].into();
    LiteralMap { literals }.encode_to_vec()
}

fn entry(action: &str) -> Entry {
    Entry {
        key: key("k"),
        owner: format!("flyte/{action}"),
        is_serializable: true,
        output_prefix: format!("file://out/{action}/1"),
    }
}

const RUN: Found = Found::Run {
    extend_within: Some(HEARTBEAT),
};

fn settled(found: Found) -> (PhaseInfo, CatalogCacheStatus) {
    match found {
        Found::Settled { info, status } => (*info, status),
        Found::Run { .. } => panic!("{found:?}"),
    }
}

#[tokio::test]
async fn one_runs_and_the_other_gets_its_outputs() {
    let world = World::new().await;
    let (caching, a, b) = (world.caching(), entry("a"), entry("b"));
    let before = async |entry, phase, version| caching.before(entry, phase, version).await.unwrap();
    assert_eq!(before(&a, Phase::Undefined, 0).await, RUN);
    let (info, status) = settled(before(&b, Phase::Undefined, 2).await);
    assert_eq!((info.phase, info.version), (Phase::WaitingForCache, 2));
    assert!(
        info.reason.ends_with("owner \"flyte/a\""),
        "{}",
        info.reason
    );
    assert_eq!(status, CatalogCacheStatus::CacheMiss);
    world.clock.pass(29);
    assert_eq!(before(&a, Phase::Running, 0).await, RUN);
    world.clock.pass(29);
    settled(before(&b, Phase::WaitingForCache, 2).await);

    world.leave_outputs(&a, "of a").await;
    let after = caching.after(&a, Phase::Success, Metadata::default()).await;
    assert_eq!(after, Some(CatalogCacheStatus::CachePopulated));
    // A crash before the status was written: it comes again.
    let again = caching.after(&a, Phase::Success, Metadata::default()).await;
    assert_eq!(again, Some(CatalogCacheStatus::CachePopulated));

    let (info, status) = settled(before(&b, Phase::WaitingForCache, 2).await);
    assert_eq!(
        (info.phase, status),
        (Phase::Success, CatalogCacheStatus::CacheHit)
    );
    assert_eq!(
        world.outputs_of(&b).await,
        File::Read(outputs("of a").into())
    );
}

#[tokio::test]
async fn a_failure_lets_the_next_one_run() {
    for phase in [
        Phase::RetryableFailure,
        Phase::PermanentFailure,
        Phase::Aborted,
    ] {
        let world = World::new().await;
        let caching = world.caching();
        caching
            .before(&entry("a"), Phase::Undefined, 0)
            .await
            .unwrap();
        let after = caching.after(&entry("a"), phase, Metadata::default()).await;
        assert_eq!(after, None);
        let found = caching.before(&entry("b"), Phase::Undefined, 0).await;
        assert_eq!(found.unwrap(), RUN, "{phase:?}");
    }
}

#[tokio::test]
async fn a_task_that_is_not_serialized_reserves_nothing_and_its_outputs_are_kept() {
    let world = World::new().await;
    let caching = world.caching();
    let alone = |action| Entry {
        is_serializable: false,
        ..entry(action)
    };
    let free = Found::Run {
        extend_within: None,
    };
    for action in ["a", "b"] {
        let found = caching.before(&alone(action), Phase::Undefined, 0).await;
        assert_eq!(found.unwrap(), free);
    }
    let nothing = caching
        .after(&alone("a"), Phase::Success, Metadata::default())
        .await;
    assert_eq!(
        nothing,
        Some(CatalogCacheStatus::CachePutFailure),
        "no outputs"
    );
    world.leave_outputs(&alone("b"), "of b").await;
    let put = caching
        .after(&alone("b"), Phase::Success, Metadata::default())
        .await;
    assert_eq!(put, Some(CatalogCacheStatus::CachePopulated));
    settled(caching.before(&alone("c"), Phase::Queued, 0).await.unwrap());
}

#[tokio::test]
async fn outputs_that_are_too_old_or_lost_are_made_again() {
    let world = World::new().await;
    let caching = world.caching_up_to(Duration::from_hours(1));
    let run = async |action| {
        let entry = entry(action);
        let found = caching.before(&entry, Phase::Undefined, 0).await.unwrap();
        if found == RUN {
            world.leave_outputs(&entry, action).await;
            caching
                .after(&entry, Phase::Success, Metadata::default())
                .await;
        }
        found == RUN
    };
    assert!(run("a").await);
    world.clock.pass(3600);
    assert!(!run("b").await);
    world.clock.pass(1);
    assert!(run("c").await);
    assert!(!run("d").await, "c's outputs took the place of a's");

    let outputs_of_c = world.directory.path().join("out/c/1/outputs.pb");
    std::fs::write(&outputs_of_c, [255; 9]).unwrap();
    let found = caching
        .before(&entry("e"), Phase::Undefined, 0)
        .await
        .unwrap();
    assert_eq!(
        found,
        Found::Run {
            extend_within: None
        }
    );
    std::fs::remove_file(&outputs_of_c).unwrap();
    let found = caching
        .before(&entry("e"), Phase::Undefined, 0)
        .await
        .unwrap();
    assert_eq!(
        found,
        Found::Run {
            extend_within: None
        }
    );
}

#[tokio::test]
async fn inline_outputs_are_written_down() {
    let world = World::new().await;
    let literals = LiteralMap::decode(outputs("inline").as_slice()).unwrap();
    let inline = CachedOutput {
        metadata: None,
        output: Some(Output::OutputLiterals(literals)),
    };
    let put = world.catalog.put(&key("k"), inline, Replace::Nothing).await;
    assert_eq!(put.unwrap(), Put::Stored);
    settled(
        world
            .caching()
            .before(&entry("a"), Phase::Undefined, 0)
            .await
            .unwrap(),
    );
    let found = world.outputs_of(&entry("a")).await;
    assert_eq!(found, File::Read(outputs("inline").into()));
}

#[tokio::test]
async fn a_cache_that_is_down_keeps_nobody_from_running_or_from_ending() {
    let mut world = World::new().await;
    world.catalog = Arc::new(remote(Router::new()).await);
    let caching = world.caching();
    let found = caching
        .before(&entry("a"), Phase::Undefined, 0)
        .await
        .unwrap();
    assert_eq!(
        found,
        Found::Run {
            extend_within: None
        }
    );
    assert_eq!(
        caching
            .before(&entry("a"), Phase::Running, 0)
            .await
            .unwrap(),
        RUN
    );
    world.leave_outputs(&entry("a"), "of a").await;
    let after = caching
        .after(&entry("a"), Phase::Success, Metadata::default())
        .await;
    assert_eq!(after, Some(CatalogCacheStatus::CachePutFailure));
}

#[tokio::test]
async fn a_cache_that_answers_but_does_not_reserve_makes_a_task_wait() {
    let none = post(async || {
        let headers = [("content-type", "application/json")];
        (
            http::StatusCode::NOT_FOUND,
            headers,
            r#"{"code":"not_found"}"#,
        )
    });
    let mut world = World::new().await;
    let get = Router::new().route(&format!("/{}", remote::method::GET), none);
    world.catalog = Arc::new(remote(get).await);
    let found = world
        .caching()
        .before(&entry("a"), Phase::Undefined, 0)
        .await;
    let error = found.unwrap_err();
    assert!(matches!(error, CachingError::NotReserved(_)), "{error}");
}

#[test]
fn an_attempt_has_an_entry_where_its_template_asks_for_one() {
    let action = serde_json::json!({
        "metadata": {"namespace": "flyte", "name": "r-a"},
        "spec": {"runName": "r", "actionName": "a", "project": "p", "domain": "d",
                 "taskType": "python", "inputUri": "s3://b/in", "runOutputBase": "s3://b/out"},
    });
    let spec = TaskActionSpec::of(&action).unwrap();
    let entry = |template: TaskTemplate| {
        let context = TaskContext::of(&action, &spec, template, 2, &Config::default()).unwrap();
        let key = ActionKey {
            namespace: "flyte".to_owned(),
            name: "r-a".to_owned(),
        };
        let noted = metadata(&context, Timestamp::UNIX_EPOCH);
        Entry::of(&key, &context, "v1").map(|entry| (entry, noted))
    };
    let (none, _) = entry(TaskTemplate::default()).unwrap();
    assert_eq!(none, None);
    let mut cached = TaskTemplate {
        metadata: Some(TaskMetadata {
            discoverable: true,
            cache_serializable: true,
            ..TaskMetadata::default()
        }),
        interface: Some(TypedInterface::default()),
        ..TaskTemplate::default()
    };
    entry(cached.clone()).unwrap_err();
    cached.id = Some(Identifier {
        project: "tp".to_owned(),
        version: "7".to_owned(),
        ..Identifier::default()
    });
    let (entry, noted) = entry(cached.clone()).unwrap();
    let entry = entry.unwrap();
    assert_eq!(
        (entry.owner.as_str(), entry.is_serializable),
        ("flyte/r-a", true)
    );
    assert!(
        entry.output_prefix.ends_with("/out/a/2"),
        "{}",
        entry.output_prefix
    );
    assert_eq!(entry.key.project, "tp", "the task's, not the run's");
    assert!(entry.key.key.ends_with("-v1"), "{}", entry.key.key);
    assert_eq!(noted.source_identifier, cached.id);
    let values = noted.key_map.unwrap().values;
    for (key, value) in [
        ("task-version", "7"),
        ("exec-attempt", "1"),
        ("exec-node", "a"),
    ] {
        assert_eq!(values[key], value, "{key}");
    }
}
