//! The types of bodies have the members of their schemas, and the check refuses what the types cannot hold.

use serde_json::{Map, Value, json};

use super::{asset::*, dag_run::*, sample::Members, store::*, task_instance::*, *};
use crate::api::check::check_body;

/// A schema, and what its type makes of a value of it.
type Typed = (&'static Schema, fn(Value) -> Value);

fn types() -> Vec<Typed> {
    use schemas as s;
    vec![
        (&s::ASSET, through::<Asset>),
        (&s::ASSETS_EVENTS, through::<AssetEvents>),
        (&s::ASSET_EVENT, through::<AssetEvent>),
        (&s::ASSET_PROFILE, through::<AssetProfile>),
        (&s::DAG_RUN_OF_EVENT, through::<DagRunOfEvent>),
        (&s::INACTIVE_ASSETS, through::<InactiveAssets>),
        (&s::ASSET_ALIAS_REFERENCE, through::<AssetAliasReference>),
        (&s::ASSET_EVENT_REFERENCE, through::<AssetEventReference>),
        (&s::ASSET_REFERENCE, through::<AssetReference>),
        (&s::DAG, through::<DagAnswer>),
        (&s::DAG_RUN, through::<DagRun>),
        (&s::DAG_RUN_STATE, through::<DagRunStateAnswer>),
        (&s::TRIGGER, through::<TriggerDagRun>),
        (&s::ASSET_STORE_PUT, through::<StoreValue>),
        (&s::ASSET_STORE_VALUE, through::<StoreValue>),
        (&s::CONNECTION, through::<Connection>),
        (&s::CONNECTION_TEST, through::<Connection>),
        (&s::CONNECTION_TEST_RESULT, through::<ConnectionTestResult>),
        (&s::HITL_REQUEST, through::<HitlRequest>),
        (&s::HITL_RESPONSE, through::<HitlResponse>),
        (&s::HITL_UPDATE, through::<HitlUpdate>),
        (&s::HITL_USER, through::<HitlUser>),
        (&s::TASK_STORE_PUT, through::<TaskStorePut>),
        (&s::TASK_STORE_VALUE, through::<StoreValue>),
        (&s::VARIABLE, through::<Variable>),
        (&s::VARIABLE_KEYS, through::<VariableKeys>),
        (&s::VARIABLE_PUT, through::<VariablePut>),
        (&s::XCOM, through::<XCom>),
        (&s::AWAITING_INPUT, through::<StateUpdate>),
        (&s::BREADCRUMBS, through::<Breadcrumbs>),
        (&s::DEFERRED, through::<StateUpdate>),
        (&s::ENTER_RUNNING, through::<EnterRunning>),
        (&s::HEARTBEAT, through::<HeartbeatInfo>),
        (&s::PREVIOUS_SUCCESSFUL, through::<PreviousSuccessfulRun>),
        (&s::PREVIOUS_TI, through::<PreviousTaskInstance>),
        (&s::RESCHEDULE, through::<StateUpdate>),
        (&s::RETRY, through::<StateUpdate>),
        (&s::RUN_CONTEXT, through::<RunContext>),
        (&s::SKIP_DOWNSTREAM, through::<SkipDownstream>),
        (&s::STATES, through::<TaskStates>),
        (&s::SUCCESS, through::<StateUpdate>),
        (&s::TARGET, through::<StateUpdate>),
        (&s::TERMINAL, through::<StateUpdate>),
    ]
}

/// A text that is a state where the schema only says that it is a text.
fn sample(schema: &Schema, members: Members) -> Value {
    let mut value = sample::object(schema, members);
    if schema.name == "PreviousTIResponse" && members == Members::All {
        value["state"] = json!("success");
    }
    if schema.name == "TITargetStatePayload" {
        value["state"] = json!("scheduled");
    }
    value
}

#[test]
fn types_have_the_members_of_their_schemas() {
    let types = types();
    let all: Vec<&str> = schemas::ALL.iter().map(|it| it.name).collect();
    let typed: Vec<&str> = types.iter().map(|(schema, _)| schema.name).collect();
    for name in &all {
        assert!(typed.contains(name), "{name} has no type");
    }
    for (schema, through) in types {
        let full = sample(schema, Members::All);
        assert_eq!(through(full.clone()), full, "{}", schema.name);
        // What may be left out may be left out; what then comes back has it, or leaves it out, too.
        let least = sample(schema, Members::Required);
        let written = through(least.clone());
        let least: &Map<String, Value> = least.as_object().unwrap();
        for (name, value) in least {
            assert_eq!(&written[name], value, "{} {name}", schema.name);
        }
    }
}

#[test]
fn what_a_schema_allows_passes_the_check_and_nothing_else_does() {
    let version = ApiVersion::LATEST;
    for schema in schemas::ALL {
        let kind = ValueKind::Object(schema);
        let full = sample(schema, Members::All);
        assert_eq!(check_body(&kind, &full, version), Ok(()), "{}", schema.name);
        for member in schema.members_in(version) {
            let mut without = full.clone();
            without.as_object_mut().unwrap().remove(member.name);
            let missing = check_body(&kind, &without, version);
            let is_required = member.presence == Presence::Required;
            assert_eq!(
                missing.is_err(),
                is_required,
                "{} {}",
                schema.name,
                member.name
            );
            let mut wrong = full.clone();
            // No kind but `Json` allows a list of lists of nothing.
            wrong[member.name] = json!([[[]]]);
            let wrong = check_body(&kind, &wrong, version);
            assert_eq!(
                wrong.is_ok(),
                member.kind == ValueKind::Json,
                "{} {}",
                schema.name,
                member.name
            );
        }
        let mut more = full;
        more["unheard_of"] = json!(1);
        let is_strict = schema.others == Others::Forbidden;
        assert_eq!(
            check_body(&kind, &more, version).is_err(),
            is_strict,
            "{}",
            schema.name
        );
    }
}

#[test]
fn problems_are_told_as_pydantic_tells_them() {
    let running = ValueKind::Object(&schemas::ENTER_RUNNING);
    let state = &schemas::STATE_UPDATE;
    for (kind, body, expected) in [
        (
            &running,
            json!({"state": "queued", "unixname": 5, "pid": 1.5, "start_date": "2026-01-01T00:00:00", "x": 1}),
            json!([
                {"type": "literal_error", "loc": ["body", "state"], "msg": "Input should be 'running'",
                 "input": "queued", "ctx": {"expected": "'running'"}},
                {"type": "missing", "loc": ["body", "hostname"], "msg": "Field required"},
                {"type": "string_type", "loc": ["body", "unixname"], "msg": "Input should be a valid string", "input": 5},
                {"type": "int_type", "loc": ["body", "pid"], "msg": "Input should be a valid integer", "input": 1.5},
                {"type": "timezone_aware", "loc": ["body", "start_date"], "msg": "Input should have timezone info",
                 "input": "2026-01-01T00:00:00"},
                {"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs are not permitted", "input": 1},
            ]),
        ),
        (
            state,
            json!({"state": "failed"}),
            json!([{"type": "missing", "loc": ["body", "_terminal_", "end_date"], "msg": "Field required",
                    "input": {"state": "failed"}}]),
        ),
        (
            state,
            json!({"state": "running"}),
            json!([{"type": "enum", "loc": ["body", "_other_", "state"], "input": "running",
                "msg": "Input should be 'scheduled', 'queued', 'restarting', 'up_for_retry', 'up_for_reschedule', \
                        'deferred' or 'awaiting_input'",
                "ctx": {"expected": "'scheduled', 'queued', 'restarting', 'up_for_retry', 'up_for_reschedule', \
                        'deferred' or 'awaiting_input'"}}]),
        ),
        (
            &running,
            json!([]),
            json!([{"type": "model_attributes_type", "loc": ["body"], "input": [],
                "msg": "Input should be a valid dictionary or object to extract fields from"}]),
        ),
    ] {
        let error = ApiError::from(check_body(kind, &body, ApiVersion::LATEST).unwrap_err());
        assert_eq!(error.status(), 422);
        let mut found = error.body()["detail"].clone();
        // The input of a missing member is the object that lacks it: told once in the expectations is enough.
        for (found, expected) in found
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .zip(expected.as_array().unwrap())
        {
            if expected.get("input").is_none() {
                assert_eq!(found["input"], body);
                found.as_object_mut().unwrap().remove("input");
            }
        }
        assert_eq!(found, expected);
        assert_eq!(ApiError::read(422, &error.body()), Some(error));
    }
}
