use longshore_api::flyte::TaskActionSpec;
use longshore_core::Seen;
use longshore_plugins::{Config, TaskContext};
use longshore_proto::flyteidl2::core::{
    Identifier, TaskMetadata, TaskTemplate, TypedInterface, VariableEntry, VariableMap,
};

use super::*;
use crate::{
    catalog::decide::{Before, Facts, Wait},
    model::ActionKey,
};

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
        Caching::new(catalog, storage, self.clock.clone(), max_age)
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

/// What the cache says of an attempt, asked for everything that a decision needs.
async fn before(caching: &Caching, entry: &Entry, is_launched: bool) -> Before {
    let mut claim = None;
    loop {
        let outputs = if is_launched {
            Seen::Absent
        } else {
            caching.look_up(entry).await
        };
        let facts = Facts {
            is_launched,
            is_serializable: entry.is_serializable,
            owner: &entry.owner,
            outputs: &outputs,
            is_look_up_given_up: false,
            claim: claim.as_ref(),
            is_reservation_given_up: false,
        };
        match decide::before(&facts) {
            Before::Reserve => claim = Some(caching.reserve(entry, HEARTBEAT).await),
            Before::Copy(outputs) => {
                caching.copy(entry, outputs.clone()).await.unwrap();
                return Before::Copy(outputs);
            }
            found @ (Before::Run | Before::Wait(_)) => return found,
        }
    }
}

/// It is to be launched: whether its outputs are there already.
async fn is_hit(caching: &Caching, entry: &Entry) -> bool {
    match before(caching, entry, false).await {
        Before::Copy(_) => true,
        Before::Run => false,
        found @ (Before::Reserve | Before::Wait(_)) => panic!("{found:?}"),
    }
}

#[tokio::test]
async fn one_runs_and_the_other_gets_its_outputs() {
    let world = World::new().await;
    let (caching, a, b) = (world.caching(), entry("a"), entry("b"));
    let waits_for_a = Before::Wait(Wait::ForOwner("flyte/a".to_owned()));
    assert_eq!(before(&caching, &a, false).await, Before::Run);
    assert_eq!(before(&caching, &b, false).await, waits_for_a);
    world.clock.pass(29);
    assert_eq!(before(&caching, &a, true).await, Before::Run);
    world.clock.pass(29);
    assert_eq!(before(&caching, &b, false).await, waits_for_a);

    world.leave_outputs(&a, "of a").await;
    let keep = async || caching.keep(&a, Metadata::default()).await;
    assert_eq!(keep().await, CatalogCacheStatus::CachePopulated);
    // A crash before the status was written: it comes again.
    assert_eq!(keep().await, CatalogCacheStatus::CachePopulated);

    assert!(is_hit(&caching, &b).await);
    assert_eq!(
        world.outputs_of(&b).await,
        File::Read(outputs("of a").into())
    );
}

#[tokio::test]
async fn a_release_lets_the_next_one_run() {
    let world = World::new().await;
    let caching = world.caching();
    assert!(!is_hit(&caching, &entry("a")).await);
    caching.release(&entry("b")).await;
    let found = before(&caching, &entry("b"), false).await;
    let waits_for_a = Before::Wait(Wait::ForOwner("flyte/a".to_owned()));
    assert_eq!(found, waits_for_a, "only its owner gives it up");
    caching.release(&entry("a")).await;
    assert!(!is_hit(&caching, &entry("b")).await);
}

#[tokio::test]
async fn a_task_that_is_not_serialized_reserves_nothing_and_its_outputs_are_kept() {
    let world = World::new().await;
    let caching = world.caching();
    let alone = |action| Entry {
        is_serializable: false,
        ..entry(action)
    };
    for action in ["a", "b"] {
        assert!(!is_hit(&caching, &alone(action)).await);
    }
    let keep = async |action| caching.keep(&alone(action), Metadata::default()).await;
    let failed = CatalogCacheStatus::CachePutFailure;
    assert_eq!(keep("a").await, failed, "no outputs");
    world.leave_outputs(&alone("b"), "of b").await;
    assert_eq!(keep("b").await, CatalogCacheStatus::CachePopulated);
    assert!(is_hit(&caching, &alone("c")).await);
}

#[tokio::test]
async fn outputs_that_are_too_old_or_lost_are_made_again() {
    let world = World::new().await;
    let caching = world.caching_up_to(Duration::from_hours(1));
    let runs = async |action| {
        let entry = entry(action);
        let is_hit = is_hit(&caching, &entry).await;
        if !is_hit {
            world.leave_outputs(&entry, action).await;
            caching.keep(&entry, Metadata::default()).await;
            caching.release(&entry).await;
        }
        !is_hit
    };
    assert!(runs("a").await);
    world.clock.pass(3600);
    assert!(!runs("b").await);
    world.clock.pass(1);
    assert!(runs("c").await);
    assert!(!runs("d").await, "c's outputs took the place of a's");

    let outputs_of_c = world.directory.path().join("out/c/1/outputs.pb");
    std::fs::write(&outputs_of_c, [255; 9]).unwrap();
    assert!(!is_hit(&caching, &entry("e")).await);
    std::fs::remove_file(&outputs_of_c).unwrap();
    assert!(!is_hit(&caching, &entry("e")).await);
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
    assert!(is_hit(&world.caching(), &entry("a")).await);
    let found = world.outputs_of(&entry("a")).await;
    assert_eq!(found, File::Read(outputs("inline").into()));
}

fn waits_for_the_cache(found: &Before) -> bool {
    matches!(found, Before::Wait(Wait::ForCache(why)) if !why.is_empty())
}

#[tokio::test]
async fn a_cache_that_is_down_keeps_only_those_waiting_that_must_be_alone() {
    let mut world = World::new().await;
    world.catalog = Arc::new(remote(Router::new()).await);
    let caching = world.caching();
    let found = before(&caching, &entry("a"), false).await;
    assert!(waits_for_the_cache(&found), "{found:?}");
    let among_others = Entry {
        is_serializable: false,
        ..entry("a")
    };
    let found = before(&caching, &among_others, false).await;
    assert_eq!(found, Before::Run);
    let found = before(&caching, &entry("a"), true).await;
    assert_eq!(found, Before::Run);
    world.leave_outputs(&entry("a"), "of a").await;
    let kept = caching.keep(&entry("a"), Metadata::default()).await;
    assert_eq!(kept, CatalogCacheStatus::CachePutFailure);
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
    let found = before(&world.caching(), &entry("a"), false).await;
    assert!(waits_for_the_cache(&found), "{found:?}");
}

/// The context of the second attempt of an action with this template.
fn context(template: TaskTemplate) -> TaskContext {
    let action = serde_json::json!({
        "metadata": {"namespace": "flyte", "name": "r-a"},
        "spec": {"runName": "r", "actionName": "a", "project": "p", "domain": "d",
                 "taskType": "python", "inputUri": "file://in", "runOutputBase": "file://out"},
    });
    let spec = TaskActionSpec::of(&action).unwrap();
    TaskContext::of(&action, &spec, template, 2, &Config::default()).unwrap()
}

/// A cached task with this input.
fn cached(input: Option<&str>) -> TaskTemplate {
    let inputs = input.map(|input| VariableMap {
        variables: vec![VariableEntry {
            key: input.to_owned(),
            value: None,
        }],
    });
    TaskTemplate {
        id: Some(Identifier {
            project: "tp".to_owned(),
            version: "7".to_owned(),
            ..Identifier::default()
        }),
        metadata: Some(TaskMetadata {
            discoverable: true,
            cache_serializable: true,
            ..TaskMetadata::default()
        }),
        interface: Some(TypedInterface {
            inputs,
            outputs: None,
        }),
        ..TaskTemplate::default()
    }
}

#[tokio::test]
async fn an_attempt_has_an_entry_under_the_key_of_its_task() {
    let world = World::new().await;
    let context = context(cached(None));
    let key = world.caching().key(&context, "v1").await.unwrap().unwrap();
    let action = ActionKey {
        namespace: "flyte".to_owned(),
        name: "r-a".to_owned(),
    };
    let entry = Entry::of(&action, &context, key);
    assert_eq!(
        (entry.owner.as_str(), entry.is_serializable),
        ("flyte/r-a", true)
    );
    assert!(
        entry.output_prefix.ends_with("/out/a/2") || entry.output_prefix.ends_with("/a/2"),
        "{}",
        entry.output_prefix
    );
    assert_eq!(entry.key.project, "tp", "the task's, not the run's");
    assert!(entry.key.key.ends_with("-v1"), "{}", entry.key.key);
    let noted = metadata(&context, Timestamp::UNIX_EPOCH);
    assert_eq!(noted.source_identifier, context.template.id);
    let values = noted.key_map.unwrap().values;
    for (key, value) in [
        ("task-version", "7"),
        ("exec-attempt", "1"),
        ("exec-node", "a"),
    ] {
        assert_eq!(values[key], value, "{key}");
    }
}

#[tokio::test]
async fn a_task_has_a_key_only_where_everything_of_it_can_be_read() {
    let world = World::new().await;
    let caching = world.caching();
    let no_id = TaskTemplate {
        id: None,
        ..cached(None)
    };
    let error = caching.key(&context(no_id), "").await.unwrap().unwrap_err();
    assert!(matches!(error, NoKey::Template(_)), "{error}");

    let one = context(cached(Some("x")));
    let error = caching.key(&one, "").await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("they are not there"), "{error}");
    let write = async |bytes: Vec<u8>| {
        let url = &one.paths.input;
        world.storage.write(url, bytes.into()).await.unwrap();
    };
    write(vec![255; 9]).await;
    caching.key(&one, "").await.unwrap().unwrap_err();
    write(vec![0; 1001]).await;
    let error = caching.key(&one, "").await.unwrap().unwrap_err();
    assert!(error.to_string().contains("1001 bytes"), "{error}");
    write(outputs("x")).await;
    let with_x = caching.key(&one, "").await.unwrap().unwrap();
    write(outputs("y")).await;
    let with_y = caching.key(&one, "").await.unwrap().unwrap();
    assert_ne!(with_x, with_y);
}
