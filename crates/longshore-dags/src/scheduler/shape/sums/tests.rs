use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::scheduler::shape::reachable;

/// The sums by a walk from each task.
fn naive(next: &[Vec<usize>], own: &[i64]) -> Vec<i64> {
    (0..own.len())
        .map(|task| {
            let all = reachable([task], next);
            all.into_iter().map(|other| own[other]).sum()
        })
        .collect()
}

/// Tasks that lead to tasks of smaller numbers.
fn graph() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<i64>)> {
    let task = (prop::collection::btree_set(any::<usize>(), 0..4), -9_i64..9);
    // Up to three blocks: the tasks of the tape in a row, as often as that takes.
    (prop::collection::vec(task, 1..40), 1_usize..32).prop_map(|(tape, n)| {
        let mut graph = (Vec::new(), Vec::new());
        for (next, own) in tape.iter().cycle().take(tape.len() * n) {
            let task = graph.0.len();
            let next: BTreeSet<usize> = next.iter().filter_map(|it| it.checked_rem(task)).collect();
            graph.0.push(Vec::from_iter(next));
            graph.1.push(*own);
        }
        graph
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sums_are_those_of_a_walk_from_each_task((next, own) in graph()) {
        let order: Vec<usize> = (0..own.len()).collect();
        prop_assert_eq!(sums_of_reachable(&order, &next, &own), naive(&next, &own));
    }
}

/// A walk from each task takes hundreds of millions of steps here, and minutes in a build for tests.
#[test]
fn chains_and_ladders_of_twenty_thousand_tasks_are_no_trouble() {
    const N: usize = 20_000;
    let order: Vec<usize> = (0..N).collect();
    let own = vec![1; N];
    let chain: Vec<Vec<usize>> = (0..N)
        .map(|task| (task.saturating_sub(1)..task).collect())
        .collect();
    // Each task leads to the two before it.
    let ladder: Vec<Vec<usize>> = (0..N)
        .map(|task| (task.saturating_sub(2)..task).collect())
        .collect();
    for next in [chain, ladder] {
        let sums = sums_of_reachable(&order, &next, &own);
        let expected: Vec<i64> = (0..).take(N).collect();
        assert!(sums == expected);
    }
}

#[test]
fn tasks_that_are_nowhere_in_the_order_count_for_nothing() {
    // 0 and 1 lead to each other; 2 to both of them and to 3.
    let next = vec![vec![1], vec![0], vec![0, 1, 3], vec![]];
    let sums = sums_of_reachable(&[3, 2], &next, &[1, 10, 100, 1_000]);
    assert_eq!(sums, [0, 0, 1_000, 0]);
}
