use std::time::Duration;

use longshore_core::text::{MAX_TEXT, shorten};
use longshore_proto::{
    flyteidl2::{
        connector::{CreateTaskResponse, GetTaskResponse},
        core::Connection,
    },
    from_json,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    K8sState, Launch, PluginState, STATE_VERSION,
    remote::Teller,
    scenarios::{self, digest},
};

mod outputs;

/// States as Go encodes them, in a process that knows no other types. See `testdata/SOURCE.md`.
const GOLDEN: &str = include_str!("../../testdata/webapi-states.txt");

fn golden() -> Vec<Vec<u8>> {
    let bytes = |line: &str| {
        let pairs = line.as_bytes().chunks(2);
        let parse =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.map(parse).collect()
    };
    GOLDEN.lines().map(bytes).collect()
}

fn states() -> Vec<WebApiState> {
    let meta = ResourceMeta {
        output_prefix: "s3://b/o".to_owned(),
        connector_meta: vec![1, 2, 3],
        category: Category {
            project: "p".to_owned(),
            domain: "d".to_owned(),
            task_type: "t".to_owned(),
            version: 1,
        },
        connection: Some(Connection {
            task_type: "t".to_owned(),
            configs: [("k".to_owned(), "v".to_owned())].into(),
            ..Connection::default()
        }),
        connector: String::new(),
    };
    vec![
        WebApiState::default(),
        WebApiState {
            phase: WebApiPhase::AllocationTokenAcquired,
            token_requested_at: Some("2023-11-14T22:13:20Z".parse().unwrap()),
            ..WebApiState::default()
        },
        WebApiState {
            phase: WebApiPhase::ResourcesCreated,
            version: 2,
            resource_meta: Some(meta),
            sync_failures: 1,
            error_message: "e".to_owned(),
            ..WebApiState::default()
        },
        WebApiState {
            phase: WebApiPhase::ResourcesCreated,
            version: 2,
            resource_meta: Some(ResourceMeta {
                output_prefix: "o".to_owned(),
                ..ResourceMeta::default()
            }),
            ..WebApiState::default()
        },
    ]
}

fn stored(bytes: &[u8]) -> StoredState<'_> {
    StoredState {
        version: STATE_VERSION,
        bytes,
    }
}

#[test]
fn states_are_gos() {
    for (state, golden) in states().into_iter().zip(golden()) {
        assert_eq!(WebApiState::read(stored(&golden)).unwrap(), state);
        assert_eq!(state.encode(), golden, "{state:?}");
    }
}

/// Which connector has begun a job is on record beside what the peer records, and only what the peer knows is not.
#[test]
fn a_job_is_asked_about_where_it_was_begun() {
    let world = World::launched();
    let state = WebApiState::read(stored(&world.state)).unwrap();
    let meta = state.resource_meta.clone().unwrap();
    assert_eq!(meta.connector, "c");
    let to = |bytes: &[u8]| world.plugin.addressee(&world.context, stored(bytes));
    let of_job = to(&world.state).unwrap();
    assert_eq!(
        (of_job.connector.as_deref(), of_job.is_begun),
        (Some("c"), true)
    );
    for call in [request::get(&meta), request::delete(&meta)] {
        assert_eq!(call.addressee(), of_job);
    }
    let golden = golden();
    let of_peer = to(&golden[2]).unwrap();
    assert_eq!((of_peer.connector, of_peer.is_begun), (None, true));
    let new = to(&[]).unwrap();
    assert_eq!((new.connector, new.is_begun), (None, false));
    assert_eq!(new.category, of_job.category);
    assert_eq!(to(&golden[1]), None, "about to begin");
    let of_a_pod = PluginState {
        launch: Launch::Started,
        ..PluginState::default()
    };
    for (state, expected) in [
        (Vec::new(), false),
        (world.state.clone(), true),
        (golden[1].clone(), true),
        (of_a_pod.encode(), false),
    ] {
        assert_eq!(
            world.plugin.has_begun(stored(&state)),
            expected,
            "{state:?}"
        );
    }
    for mut state in states() {
        if let Some(meta) = &mut state.resource_meta {
            meta.connector = "c".to_owned();
        }
        assert_eq!(WebApiState::read(stored(&state.encode())).unwrap(), state);
    }
}

#[test]
fn a_state_that_is_cut_anywhere_is_refused_or_read() {
    let whole = states()[2].encode();
    for end in 1..whole.len() {
        assert!(
            WebApiState::read(stored(&whole[..end])).is_err(),
            "cut at {end}"
        );
    }
    assert_eq!(
        WebApiState::read(StoredState {
            version: 2,
            bytes: &whole
        })
        .unwrap_err(),
        StateError::Version(2)
    );
}

/// A task of a connector, and its last reported phase.
struct World {
    plugin: ConnectorPlugin,
    context: TaskContext,
    state: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let config = Config::default();
        let scenario = json!({"template": {
            "type": "task_type_3",
            "taskTypeVersion": 1,
            "id": {"project": "p", "domain": "d", "name": "n", "version": "v"},
            "custom": {"configs": {"host": "h"}, "whatever": 1},
            "container": {"image": "i", "args": ["{{.outputPrefix}}"]},
            "interface": {"outputs": {"variables": [{"key": "o"}]}},
        }});
        let mut context = scenarios::context(&scenario, &config);
        let inputs = json!({"literals": {"x": {"scalar": {}}}});
        context.inputs = Ok(Some(from_json(&inputs).unwrap()));
        Self {
            plugin: ConnectorPlugin::new(Arc::new(config)),
            context,
            state: Vec::new(),
        }
    }

    fn step(&mut self, is_state_ours: bool, answer: Option<Answer>) -> Step {
        self.step_with(true, is_state_ours, answer)
    }

    fn step_with(&mut self, has_slot: bool, is_state_ours: bool, answer: Option<Answer>) -> Step {
        let round = Round {
            state: stored(&self.state),
            is_state_ours,
            answer,
            has_slot,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        let step = self.plugin.step(&self.context, &round).unwrap();
        self.state.clone_from(&step.state);
        self.context.last = K8sState {
            phase: step.info.phase,
            version: step.info.version,
            reason: step.info.reason.clone(),
        };
        step
    }

    /// Up to the record that the connector is about to be asked.
    fn announced() -> Self {
        let mut world = Self::new();
        world.step(true, None);
        let step = world.step(true, None);
        world.state = step.announced.unwrap();
        world
    }

    /// Up to the job that was begun.
    fn launched() -> Self {
        let mut world = Self::announced();
        world.step(true, created(vec![7]));
        world.step(true, None);
        world
    }
}

/// The connector `c` has begun the job of these bytes.
fn created(resource_meta: Vec<u8>) -> Option<Answer> {
    let by = Teller {
        name: "c".to_owned(),
        ..Teller::default()
    };
    let response = CreateTaskResponse { resource_meta };
    Some(Answer::Created { response, by })
}

fn told(resource: &Value) -> Option<Answer> {
    let response: GetTaskResponse = from_json(&json!({"resource": resource})).unwrap();
    Some(Answer::Told {
        response: Box::new(response),
        is_cut: false,
        by: Teller::default(),
    })
}

#[test]
fn the_connector_is_asked_to_begin_once_it_is_remembered_that_it_will_be() {
    let mut world = World::new();
    let first = world.step(false, None);
    assert_eq!((first.call, first.announced), (None, None));
    assert_eq!(first.again, Some(Duration::ZERO));
    // Whoever goes on with it: the connector was not asked.
    let second = world.step(false, None);
    assert_eq!(second.state, first.state);
    assert_eq!(world.step(true, None), second, "it waits for its turn");
    world.state = second.announced.unwrap();
    let announced = WebApiState::read(stored(&world.state)).unwrap();
    let waiting = WebApiState::read(stored(&first.state)).unwrap();
    let phases = (waiting.phase, announced.phase);
    let expected = (
        WebApiPhase::NotStarted,
        WebApiPhase::AllocationTokenAcquired,
    );
    assert_eq!(phases, expected);
    assert_eq!(announced.token_requested_at, waiting.token_requested_at);
    // The record was written, and its answer was lost.
    let again = world.step(true, None);
    assert_eq!((&again.call, again.announced), (&second.call, None));
    let Some(Call {
        category,
        connector: None,
        request: crate::Request::Create(request),
    }) = second.call
    else {
        panic!("expected a call, found {:?}", second.call);
    };
    assert_eq!(category.task_type, "task_type_3");
    assert_eq!(request.output_prefix, world.context.paths.output_prefix);
    assert_eq!(request.inputs.unwrap().literals[0].name, "x");
    let template = serde_json::to_string(&format!("{:?}", request.template)).unwrap();
    assert!(
        template.contains(&world.context.paths.output_prefix),
        "{template}"
    );
    let metadata = request.task_execution_metadata.unwrap();
    assert_eq!(metadata.namespace, "flyte");
    assert_eq!(metadata.max_attempts, 1);
    assert_eq!(request.connection.unwrap().configs["host"], "h");
    let third = world.step(true, created(vec![7]));
    assert_eq!(third.again, Some(Duration::ZERO));
    assert_eq!(
        (digest(&third.info), third.call),
        (digest(&second.info), None),
        "it is remembered before anything is reported"
    );
    let begun = WebApiState::read(stored(&third.state)).unwrap();
    assert_eq!(begun.phase, WebApiPhase::ResourcesCreated);
    assert_eq!(begun.resource_meta.unwrap().connector_meta, [7]);
    // Another process goes on with it.
    let fourth = world.step(false, None);
    assert_eq!(digest(&fourth.info), "Queued v2: launched");
    assert_eq!((fourth.again, fourth.call), (Some(Duration::ZERO), None));
}

/// A job that ran may wait again, and the peer does not report its jobs as we do.
#[test]
fn a_job_is_reported_to_be_launched_once_and_before_anything_else() {
    for (version, phase, is_launched) in [
        (0, Phase::Queued, true),
        (0, Phase::Undefined, true),
        (0, Phase::Running, false),
        (LAUNCHED, Phase::Queued, false),
        (LAUNCHED, Phase::Running, false),
    ] {
        let mut world = World::launched();
        let mut state = WebApiState::read(stored(&world.state)).unwrap();
        state.version = version;
        world.state = state.encode();
        world.context.last = K8sState {
            phase,
            version: 0,
            reason: "the job waits".to_owned(),
        };
        let step = world.step(false, None);
        assert_eq!(step.call.is_none(), is_launched, "{version} {phase:?}");
    }
}

#[test]
fn no_job_begins_without_the_inputs_that_its_task_declares() {
    let step = |interface: Value| {
        let mut world = World::new();
        world.context.inputs = Err("they are garbage".to_owned());
        world.context.template.interface = Some(from_json(&interface).unwrap());
        world.step(true, None);
        world.step(true, None)
    };
    let refused = step(json!({"inputs": {"variables": [{"key": "x"}]}}));
    assert_eq!(refused.call, None);
    assert_eq!(refused.info.phase, Phase::PermanentFailure);
    let why = refused.info.error.unwrap().message;
    assert_eq!(why, "the job needs the task's inputs: they are garbage");
    let begun = step(json!({}));
    assert!(begun.call.is_some(), "{begun:?}");
}

#[test]
fn a_job_waits_for_room_and_takes_it_until_it_ends() {
    let mut world = World::new();
    let slot = |world: &World| world.plugin.slot(stored(&world.state));
    assert_eq!(slot(&world), SlotNeed::Wanted);
    for _ in 0..2 {
        let step = world.step_with(false, true, None);
        assert_eq!(
            digest(&step.info),
            "WaitingForResources: Quota for task has exceeded. Waiting for the resource."
        );
        assert_eq!((step.call, step.again), (None, None));
        assert_eq!(slot(&world), SlotNeed::Wanted);
    }
    let step = world.step(true, None);
    assert_eq!(digest(&step.info), "Queued: asking the connector");
    assert_eq!(slot(&world), SlotNeed::Wanted);
    assert_eq!(slot(&World::announced()), SlotNeed::Taken);
    let mut world = World::launched();
    assert_eq!(slot(&world), SlotNeed::Taken);
    world.step(true, told(&json!({"phase": "SUCCEEDED"})));
    assert_eq!(slot(&world), SlotNeed::Unneeded);
    world.state = vec![1];
    assert_eq!(slot(&world), SlotNeed::Unneeded);
}

#[test]
fn limits_are_those_that_somebody_has_configured() {
    let quota = |section: Value| {
        let document = json!({"plugins": {"connector-service": section}});
        let reading = Config::read(&document, &|_| None).unwrap();
        assert_eq!(reading.warnings, []);
        reading.config.connector.quota
    };
    assert!(quota(json!({})).is_unlimited());
    let configured = json!({
        "webApi": {"resourceQuotas": {"default": 1000}},
        "resourceConstraints": {
            "ProjectScopeResourceConstraint": {"Value": 100},
            "NamespaceScopeResourceConstraint": {"Value": 50},
        },
    });
    let expected = Quota {
        total: Some(1000),
        of_project: Some(100),
        of_domain: Some(50),
    };
    assert_eq!(quota(configured), expected);
}

#[test]
fn a_job_that_may_have_been_begun_is_not_begun_again_in_this_attempt() {
    let mut world = World::announced();
    // The process ended here, and another one goes on.
    let step = world.step(false, None);
    assert_eq!(step.call, None);
    assert!(digest(&step.info).starts_with("RetryableFailure User CreationInterrupted: "));
}

#[test]
fn a_connector_that_does_not_begin_the_job_costs_an_attempt() {
    let mut world = World::announced();
    let step = world.step(true, Some(Answer::Failed("down".to_owned())));
    assert_eq!(
        digest(&step.info),
        "RetryableFailure User TaskFailedWithError: the connector did not begin the job: down"
    );
}

#[test]
fn secrets_of_connections_are_refused_because_nobody_resolves_them() {
    let mut world = World::new();
    world.context.template.custom = Some(crate::proto_json::struct_from_json(
        &json!({"secrets": {"token": "x"}}),
    ));
    world.step(true, None);
    let step = world.step(true, None);
    assert_eq!(step.call, None);
    assert!(
        digest(&step.info).contains("wants the secrets [\"token\"]"),
        "{:?}",
        step.info
    );
}

#[test]
fn each_phase_of_a_connector_is_understood() {
    for (resource, expected) in [
        (json!({"phase": "QUEUED", "message": "m"}), "Queued v3: m"),
        (
            json!({"phase": "WAITING_FOR_RESOURCES", "message": "m"}),
            "WaitingForResources: m",
        ),
        (
            json!({"phase": "INITIALIZING", "message": "m"}),
            "Initializing: m",
        ),
        (json!({"phase": "RUNNING", "message": "m"}), "Running"),
        (json!({"phase": "SUCCEEDED"}), "Success"),
        (
            json!({"phase": "FAILED", "message": "m"}),
            "PermanentFailure User TaskFailedWithError: the job failed: m",
        ),
        (
            json!({"phase": "RETRYABLE_FAILED", "message": "m"}),
            "RetryableFailure User TaskFailedWithError: the job failed: m",
        ),
        (
            json!({"phase": "ABORTED"}),
            "PermanentFailure User TaskFailedWithError: the job was aborted by another client",
        ),
        (
            json!({}),
            "Queued v3: the connector told the unknown phase 0",
        ),
    ] {
        let mut world = World::launched();
        let asked = world.step(false, None);
        assert!(matches!(
            asked.call,
            Some(Call {
                request: crate::Request::Get(_),
                ..
            })
        ));
        assert_eq!(asked.again, Some(Duration::from_secs(30)));
        assert_eq!(digest(&asked.info), "Queued v2: launched");
        let step = world.step(false, told(&resource));
        assert_eq!(digest(&step.info), expected);
        let is_over = step.info.error.is_some() || step.info.phase == Phase::Success;
        assert_eq!(step.again.is_none(), is_over, "{expected}");
    }
}

#[test]
fn an_answer_of_any_length_is_kept_in_short() {
    let long = "a".repeat(1 << 20);
    let resource = json!({
        "phase": "FAILED", "message": long, "customInfo": {"k": long},
        "logLinks": [{"uri": long}, {"uri": "http://logs"}],
    });
    let answer = told(&resource).map(Answer::bounded);
    let Some(Answer::Told { response, .. }) = &answer else {
        panic!("expected the same answer");
    };
    let bounded = response.resource.as_ref().unwrap();
    assert_eq!(bounded.message, shorten(long));
    assert_eq!(bounded.custom_info, None);
    assert_eq!(bounded.log_links.len(), 1);
    let step = World::launched().step(false, answer);
    let why = step.info.error.unwrap().message;
    assert_eq!(why.len(), MAX_TEXT);
    assert!(why.starts_with("the job failed: aaa"), "{why}");
    assert!(why.ends_with("… (1048576 bytes, shortened)"), "{why}");
    let short =
        told(&json!({"message": "m", "customInfo": {"k": "v"}, "logLinks": [{"uri": "l"}]}));
    assert_eq!(short.clone().map(Answer::bounded), short);
}

#[test]
fn a_job_that_cannot_be_stored_is_deleted_and_its_task_fails() {
    for (length, is_stored) in [(MAX_RESOURCE_META, true), (3 << 20, false)] {
        let mut world = World::announced();
        let step = world.step(true, created(vec![7; length]));
        assert_eq!(step.info.phase == Phase::Queued, is_stored, "{length}");
        assert!(step.state.len() < length + 2000, "{length}");
        if is_stored {
            assert_eq!(step.abort, None);
            continue;
        }
        assert_eq!(
            digest(&step.info),
            "PermanentFailure User ResourceMetaTooLarge: the connector identifies the job by a resource_meta of \
             3145728 bytes, and a TaskAction stores at most 262144: the connector is asked to delete the job"
        );
        assert!(step.state.len() < 2000, "{} bytes", step.state.len());
        let abort = step.abort.unwrap();
        assert_eq!(abort.connector.as_deref(), Some("c"));
        let crate::Request::Delete(request) = abort.request else {
            panic!("expected a request to delete the job");
        };
        assert_eq!(request.resource_meta.len(), length);
    }
}

#[test]
fn a_connector_that_cannot_be_asked_is_given_up_after_five_failures_in_a_row() {
    let failed = || Some(Answer::Failed("down".to_owned()));
    let mut world = World::launched();
    for _ in 0..5 {
        assert_eq!(
            digest(&world.step(false, failed()).info),
            "Queued v3: the connector does not say how far the job is: down"
        );
    }
    world.step(false, told(&json!({"phase": "RUNNING"})));
    for _ in 0..5 {
        assert_eq!(world.step(false, failed()).info.phase, Phase::Running);
    }
    let step = world.step(false, failed());
    assert_eq!(
        digest(&step.info),
        "PermanentFailure User AutoRefreshCacheFailed: down"
    );
    assert_eq!(step.again, None);
    let abort = world.plugin.abort(&world.context, stored(&step.state));
    assert!(abort.unwrap().is_some(), "the job may run on");
    assert_eq!(world.step(false, None).call, None);
}

#[test]
fn only_a_job_that_was_begun_is_ended() {
    let world = World::launched();
    let abort = |state: &[u8]| world.plugin.abort(&world.context, stored(state)).unwrap();
    let call = abort(&world.state).unwrap();
    let crate::Request::Delete(request) = call.request else {
        panic!("expected a request to delete, found {:?}", call.request);
    };
    assert_eq!(request.resource_meta, [7]);
    assert_eq!(abort(&[]), None);
}
