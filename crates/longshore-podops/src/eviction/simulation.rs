//! Pods of a workload under a budget, and all that act on them, in any order: evictors, other operations, a node, the
//! disruption controller, and our controllers, which see budgets late and are killed between any two writes. A user
//! edits the budget meanwhile, and the disruption controller may fail to count. Some of the pods may be without the
//! label: the API server alone evicts those.

mod world;

use proptest::prelude::*;

use self::world::World;
use crate::model::Pod;

/// One actor does one thing.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client asks for the eviction of a pod, and retries.
    Evict(usize),
    /// Another operation begins on a pod, whatever its budget says.
    Operate(usize),
    /// The operation is over.
    Finish(usize),
    /// A pod breaks, or is whole again.
    Break(usize),
    /// The workload makes the pods that it lacks.
    Replace,
    /// A new pod starts.
    Start(usize),
    /// The node says which pods are Ready.
    Node,
    /// The disruption controller counts.
    Count,
    /// Our watches deliver: the budget, and maybe the pods.
    Look { pods: bool },
    /// Evictions are decided upon, and the controller is killed after so many writes.
    Act(usize),
    /// A pod is decided upon.
    Round(usize),
    /// A user edits the budget: so many pods have to stay from now on.
    Edit(usize),
    /// The disruption controller cannot count, until it counts the next time.
    Fail,
    /// Time passes in which no controller of ours runs: what was reserved ends.
    Pass,
}

fn steps(disturbs: bool) -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..4_usize;
    let step = prop_oneof![
        4 => n().prop_map(Step::Evict),
        1 => n().prop_map(Step::Operate),
        1 => n().prop_map(Step::Break),
        1 => n().prop_map(Step::Finish),
        2 => Just(Step::Replace),
        2 => n().prop_map(Step::Start),
        3 => Just(Step::Node),
        2 => Just(Step::Count),
        4 => any::<bool>().prop_map(|pods| Step::Look { pods }),
        4 => (0..3_usize).prop_map(Step::Act),
        8 => n().prop_map(Step::Round),
        1 => n().prop_map(Step::Edit),
        1 => Just(Step::Fail),
        1 => Just(Step::Pass),
    ];
    let steps = prop::collection::vec(step, 0..120);
    steps.prop_map(move |mut steps| {
        steps.retain(|step| disturbs || !matches!(step, Step::Operate(_) | Step::Break(_)));
        steps
    })
}

fn check(replicas: usize, spare: usize, is_mixed: bool, steps: Vec<Step>) {
    let desired = i64::try_from(replicas.saturating_sub(spare)).unwrap();
    let mut world = World::new(replicas, desired, is_mixed);
    for step in steps {
        world.step(step);
    }
    world.settle();
    let left = world.all();
    let is_wanted = |pod: &&Pod| {
        pod.target
            .uid
            .as_ref()
            .is_some_and(|it| world.wanted.contains(it))
    };
    let left: Vec<&Pod> = left.iter().filter(is_wanted).collect();
    if spare > 0 {
        assert!(left.is_empty(), "not evicted: {left:#?}");
    } else if !world.is_disturbed {
        assert_eq!(
            left.len(),
            world.wanted.len(),
            "evicted although all have to stay"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evictions_never_take_more_than_the_budget_spares_and_all_end(
        replicas in 1..5_usize, spare in 0..4_usize, steps in steps(false),
    ) {
        check(replicas, spare, false, steps);
    }

    #[test]
    fn evictions_take_nothing_that_others_have_taken_and_all_end(
        replicas in 1..5_usize, spare in 0..4_usize, steps in steps(true),
    ) {
        check(replicas, spare, false, steps);
    }

    /// The API server gives disruptions to pods without the label, which our watches do not deliver, out of the same
    /// budget.
    #[test]
    fn evictions_share_a_budget_with_pods_that_the_api_server_evicts_and_all_end(
        replicas in 2..5_usize, spare in 0..3_usize, steps in steps(false),
    ) {
        check(replicas, spare, true, steps);
    }
}

/// An operation is begun again while it completes, and given up: its pod serves again, and gives the budget its place.
#[test]
fn a_pod_whose_operation_was_begun_again_and_given_up_holds_no_eviction() {
    use Step::{Break, Evict, Finish, Operate, Round};

    let begun = [
        Operate(0),
        Round(0),
        Round(0),
        Finish(0),
        Break(1),
        Operate(0),
    ];
    let steps = [&[Break(1)][..], &begun, &[Evict(1)]].concat();
    check(2, 1, false, steps);
}
