//! Questions pass the gate before they are sent, while they are, and before their answers are used.

use longshore_core::{
    Announcement, ChildIdentity, Create, Delete, EventType, ObjectRef, Patch, PatchKind, Resource,
};
use serde_json::json;

use super::*;

/// A gate that is open for ten seconds from now on.
fn gate(clock: &Arc<dyn Clock>) -> Gate {
    let gate = Gate::closed(Arc::clone(clock));
    gate.hold_until(Instant::now(), clock.now(), secs(10));
    gate
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_lease_was_lost_is_dropped() {
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(12), "yes"),
        |view| {
            Plan::of(vec![if view.asked == Asked::NotAsked {
                Action::Ask(Get::new("a"))
            } else {
                Action::Persist("said yes")
            }])
        },
    );
    let each = KindLimits {
        timeout: secs(60),
        ..KindLimits::default()
    };
    let limits = AskLimits {
        each,
        ..AskLimits::default()
    };
    let runner = runner(&toy).gated_by(gate(&clock())).asking(limits);
    run(runner, [1], secs(30)).await;
    assert!(!toy.found(1).contains(&"yes".to_owned()));
    assert!(toy.persisted.lock().unwrap().is_empty(), "no action passes");
}

/// It connects first, and the process is paused meanwhile.
#[tokio::test(start_paused = true)]
async fn a_question_under_way_when_the_process_was_paused_goes_no_further() {
    let toy = Toy::new(|_, _| Habit::Answers(secs(9), "yes"), once);
    let gate = gate(&clock());
    let running = run(runner(&toy).gated_by(gate), [1], secs(60));
    let pausing = async {
        sleep(secs(1)).await;
        tokio::time::advance(secs(30)).await;
    };
    tokio::join!(running, pausing);
    assert!(
        !toy.found(1).contains(&"yes".to_owned()),
        "{:?}",
        toy.rounds(1)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_or_done_while_the_lease_is_not_held() {
    let clock = clock();
    let gate = Gate::closed(Arc::clone(&clock));
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(1), "yes"),
        |view| {
            if view.asked == Asked::NotAsked {
                Plan::of(vec![Action::Persist("asking"), Action::Ask(Get::new("a"))])
            } else {
                Plan::await_change()
            }
        },
    );
    let running = run(runner(&toy).gated_by(gate.clone()), [1], secs(60));
    let opening = async {
        sleep(secs(20)).await;
        assert_eq!(toy.n_sent(), 0);
        assert!(toy.persisted.lock().unwrap().is_empty());
        gate.hold_until(Instant::now(), clock.now(), secs(60));
    };
    tokio::join!(running, opening);
    assert_eq!(toy.found(1).last().map(String::as_str), Some("yes"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_when_the_lease_is_lost_is_not_sent() {
    let toy = Toy::new(|_, _| Habit::Hangs, once);
    let each = KindLimits {
        in_flight_per_host: 2,
        ..KindLimits::default()
    };
    let limits = AskLimits {
        each,
        ..AskLimits::default()
    };
    let runner = runner(&toy).gated_by(gate(&clock())).asking(limits);
    run(runner, 0..10, secs(60)).await;
    assert_eq!(toy.n_sent(), 2);
}

/// One of each.
fn actions() -> Vec<Action<&'static str, &'static str, Get>> {
    let target = ObjectRef {
        resource: Resource::POD,
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: Some("u".to_owned()),
    };
    vec![
        Action::Persist("record"),
        Action::Call("effect"),
        Action::Ask(Get::new("a")),
        Action::Create(Create {
            resource: Resource::POD,
            object: json!({"metadata": {"name": "a", "annotations": {"id": "1"}}}),
            identity: ChildIdentity::annotation("id", "1"),
        }),
        Action::Patch(Patch {
            target: target.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch: json!({}),
        }),
        Action::Delete(Delete {
            target: target.clone(),
            grace_period_seconds: None,
            resource_version: None,
            waits_for_dependents: false,
        }),
        Action::EnsureFinalizer {
            target: target.clone(),
            finalizer: "hold",
        },
        Action::RemoveFinalizer {
            target: target.clone(),
            finalizer: "hold",
        },
        Action::Announce(Announcement {
            regarding: target,
            event_type: EventType::Normal,
            reason: "Said",
            note: String::new(),
        }),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_action_passes_the_gate_of_the_runner() {
    for action in actions() {
        for is_open in [true, false] {
            let planned = action.clone();
            let toy = Toy::new(
                |_, _| Habit::Hangs,
                move |_| Plan::of(vec![planned.clone()]),
            );
            let clock = clock();
            let gate = if is_open {
                gate(&clock)
            } else {
                Gate::closed(clock)
            };
            let n_requests = Arc::<AtomicUsize>::default();
            let runner = runner_that_counts(&toy, Arc::clone(&n_requests)).gated_by(gate);
            run(runner, [1], secs(1)).await;
            let n_recorded = toy.persisted.lock().unwrap().len();
            let n_done = n_requests.load(Ordering::SeqCst) + n_recorded + toy.n_sent();
            assert_eq!(n_done > 0, is_open, "{action:?}");
        }
    }
}
