//! Aborts that do not just delete the resource of the attempt.

use longshore_core::{ObjectRef, Resource};
use longshore_plugins::AbortBehavior;

use super::*;
use crate::model::{Abort, AbortRefused};

const SUSPEND: &str = r#"patch r-a-0 with {"spec":{"suspend":true}}"#;
const GOES: &str = "report ABORTED.0 of 1; release r-a; await";

/// A pod that runs, of an action that is being deleted.
fn running() -> World {
    let running = action().started(Phase::Running, 1, "").deleting();
    running.pod(of(Phase::Running))
}

fn suspend() -> AbortBehavior {
    AbortBehavior::patch(json!({"spec": {"suspend": true}}))
}

fn object(is_suspended: bool) -> Seen<Value> {
    Seen::Present(json!({
        "metadata": {"name": "other", "namespace": "flyte", "uid": "o"},
        "spec": {"suspend": is_suspended},
    }))
}

fn other(behavior: AbortBehavior) -> AbortBehavior {
    behavior.with_object(ObjectRef {
        resource: Resource::CONFIG_MAP,
        namespace: "flyte".to_owned(),
        name: "other".to_owned(),
        uid: None,
    })
}

fn refused(uid: &str, ago: i64) -> Option<AbortRefused> {
    Some(AbortRefused {
        uid: uid.to_owned(),
        at: EPOCH - jiff::SignedDuration::from_secs(ago),
        message: "no such field".to_owned(),
    })
}

fn aborted(world: &World, abort: Abort) -> String {
    let mut observed = world.observed();
    if let Seen::Present(action) = &mut observed.action {
        action.children.abort = Some(abort);
    }
    words(&world::plan_of(&world.config, observed))
}

/// The same without a refusal.
fn done(world: &World, behavior: AbortBehavior, object: Seen<Value>) -> String {
    let abort = Abort {
        behavior,
        object,
        refused: None,
    };
    aborted(world, abort)
}

#[test]
fn an_abort_changes_its_object_once_and_then_the_action_goes() {
    let patched = format!("{SUSPEND}; {GOES}");
    let patched_other = patched.replace("r-a-0", "other");
    let deleted_other = format!("delete other; {GOES}");
    let blind = || Seen::unknown(UnknownCause::Unreachable, "no answer");
    for (name, behavior, object, expected) in [
        ("not yet", suspend(), object(false), patched.as_str()),
        ("done", suspend(), object(true), GOES),
        ("left alone", AbortBehavior::keep(), object(false), GOES),
        (
            "not seen",
            suspend(),
            blind(),
            "note that it is not seen; after 1s",
        ),
        (
            "another object",
            other(suspend()),
            object(false),
            patched_other.as_str(),
        ),
        ("another object, done", other(suspend()), object(true), GOES),
        ("another object, gone", other(suspend()), Seen::Absent, GOES),
        (
            "another object, to be deleted",
            other(AbortBehavior::delete()),
            object(false),
            deleted_other.as_str(),
        ),
    ] {
        assert_eq!(done(&running(), behavior, object), expected, "{name}");
    }
}

#[test]
fn what_an_abort_keeps_is_let_go_of_as_the_configuration_says() {
    let held = running().pod_of(of(Phase::Running), |pod| {
        pod["metadata"]["finalizers"] = json!([FINALIZER_RESOURCE]);
    });
    assert_eq!(
        done(&held, suspend(), object(true)),
        format!("release r-a-0; {GOES}")
    );
    let eager = running().with(|it| it.config.delete_resource_on_finalize = true);
    assert_eq!(
        done(&eager, suspend(), object(false)),
        format!("{SUSPEND}; delete r-a-0; after 10s")
    );
    let ended = action().started(Phase::Success, 0, "").deleting();
    let ended = ended.pod(of(Phase::Success));
    assert_eq!(
        done(&ended, suspend(), object(false)),
        format!("{SUSPEND}; release r-a; await")
    );
}

#[test]
fn an_abort_that_is_refused_is_repeated_or_deletes() {
    let refusal = |behavior: AbortBehavior, refused: Option<AbortRefused>| {
        let abort = Abort {
            behavior,
            object: object(false),
            refused,
        };
        aborted(&running(), abort)
    };
    let patched = format!("{SUSPEND}; {GOES}");
    let deleted_other = format!("delete other; {GOES}");
    for (name, behavior, refused, expected) in [
        (
            "just now",
            suspend(),
            refused("pod", 0),
            "warn FailedPluginHandle; after 10s",
        ),
        (
            "a while ago",
            suspend(),
            refused("pod", 10),
            patched.as_str(),
        ),
        (
            "another one",
            suspend(),
            refused("before", 0),
            patched.as_str(),
        ),
        (
            "with a way out",
            suspend().or_delete(),
            refused("pod", 0),
            "delete r-a-0; after 10s",
        ),
        (
            "with a way out, of another object",
            other(suspend()).or_delete(),
            refused("o", 0),
            deleted_other.as_str(),
        ),
    ] {
        assert_eq!(refusal(behavior, refused), expected, "{name}");
    }
}
