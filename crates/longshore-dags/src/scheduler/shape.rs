//! What the scheduler needs of a DAG in each round, by number instead of by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Dag, Task, WeightRule};

mod sums;

use sums::sums_of_reachable;

/// The graph of a DAG. A task's number is its place among the task ids in order, which is also its place in
/// [`ActiveRun::tasks`](super::board::ActiveRun::tasks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of each task.
    pub numbers: BTreeMap<String, usize>,
    /// The tasks that each task waits for.
    pub upstream: Vec<Vec<usize>>,
    /// The tasks that wait for each task.
    pub downstream: Vec<Vec<usize>>,
    /// The setup tasks somewhere before each task that it needs, without its direct upstream tasks: those without a
    /// teardown, and those with a teardown that comes after the task. A teardown needs none.
    pub indirect_setups: Vec<Vec<usize>>,
    /// All tasks, each one after everything that it waits for.
    pub order: Vec<usize>,
    /// The weight of each task in the queue, by its weight rule, as a 32-bit number like upstream's column.
    pub weights: Vec<i64>,
    /// Whether some tasks become TaskActions.
    pub has_plugin_tasks: bool,
}

impl Shape {
    /// The graph of this DAG. Linear in its tasks and edges, times the number of its setup tasks where it has some. Weights
    /// cost some milliseconds more for 10,000 tasks.
    pub fn of(dag: &Dag) -> Self {
        let numbers: BTreeMap<String, usize> = dag
            .tasks
            .keys()
            .enumerate()
            .map(|(number, id)| (id.clone(), number))
            .collect();
        let numbered = |ids: &BTreeSet<String>| -> Vec<usize> {
            ids.iter()
                .filter_map(|id| numbers.get(id).copied())
                .collect()
        };
        let upstream: Vec<Vec<usize>> = dag
            .tasks
            .values()
            .map(|task| numbered(&task.upstream))
            .collect();
        let mut downstream = vec![Vec::new(); upstream.len()];
        for (task, before) in upstream.iter().enumerate() {
            for &other in before {
                downstream[other].push(task);
            }
        }
        let order = topological_order(&upstream, &downstream);
        let tasks: Vec<&Task> = dag.tasks.values().collect();
        let mut indirect_setups = vec![Vec::new(); upstream.len()];
        for setup in (0..tasks.len()).filter(|&task| tasks[task].is_setup) {
            let teardowns = downstream[setup]
                .iter()
                .filter(|&&it| tasks[it].is_teardown);
            let before_teardowns: Option<BTreeSet<usize>> = teardowns
                .map(|&teardown| reachable([teardown], &upstream))
                .reduce(|all: BTreeSet<usize>, of_one| &all | &of_one);
            for task in reachable([setup], &downstream) {
                let needs_it = before_teardowns
                    .as_ref()
                    .is_none_or(|it| it.contains(&task));
                if needs_it && !tasks[task].is_teardown && !upstream[task].contains(&setup) {
                    indirect_setups[task].push(setup);
                }
            }
        }
        let weights = weights(&tasks, &order, &upstream, &downstream);
        Self {
            numbers,
            upstream,
            downstream,
            indirect_setups,
            order,
            weights,
            has_plugin_tasks: dag.has_plugin_tasks(),
        }
    }
}

/// The weight of each task: its own, and by its rule the own weights of all that comes before or after it.
fn weights(
    tasks: &[&Task],
    order: &[usize],
    upstream: &[Vec<usize>],
    downstream: &[Vec<usize>],
) -> Vec<i64> {
    let own: Vec<i64> = tasks.iter().map(|task| task.priority_weight).collect();
    let has = |rule: WeightRule| tasks.iter().any(|task| task.weight_rule == rule);
    let after = has(WeightRule::Downstream).then(|| {
        let backwards: Vec<usize> = order.iter().rev().copied().collect();
        sums_of_reachable(&backwards, downstream, &own)
    });
    let before = has(WeightRule::Upstream).then(|| sums_of_reachable(order, upstream, &own));
    let weight = |(number, task): (usize, &&Task)| {
        let others = match task.weight_rule {
            WeightRule::Absolute => None,
            WeightRule::Downstream => after.as_ref(),
            WeightRule::Upstream => before.as_ref(),
        };
        let others = others.map_or(0, |sums| sums[number]);
        let sum = own[number].saturating_add(others);
        sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX))
    };
    tasks.iter().enumerate().map(weight).collect()
}

/// All tasks that `edges` lead to from one of `starts`; a start only where another one leads to it.
pub(crate) fn reachable(
    starts: impl IntoIterator<Item = usize>,
    edges: &[Vec<usize>],
) -> BTreeSet<usize> {
    let mut is_seen = vec![false; edges.len()];
    let mut stack: Vec<usize> = starts
        .into_iter()
        .flat_map(|it| &edges[it])
        .copied()
        .collect();
    while let Some(task) = stack.pop() {
        if !std::mem::replace(&mut is_seen[task], true) {
            stack.extend(&edges[task]);
        }
    }
    (0..edges.len()).filter(|&task| is_seen[task]).collect()
}

/// Every task after all that it waits for. Tasks of a cycle, which a validated DAG does not have, would be left out.
fn topological_order(upstream: &[Vec<usize>], downstream: &[Vec<usize>]) -> Vec<usize> {
    let mut n_waiting: Vec<usize> = upstream.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..upstream.len())
        .filter(|&task| n_waiting[task] == 0)
        .collect();
    let mut next = 0;
    while let Some(&task) = order.get(next) {
        next += 1;
        for &after in &downstream[task] {
            n_waiting[after] -= 1;
            if n_waiting[after] == 0 {
                order.push(after);
            }
        }
    }
    order
}
