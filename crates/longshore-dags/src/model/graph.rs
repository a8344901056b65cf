//! Order, reach and weight of the tasks of a DAG.

use std::collections::{BTreeMap, BTreeSet};

use super::{Dag, Task, WeightRule};

/// More cycles than this are not worth reporting at once.
const MAX_CYCLES: usize = 10;

/// Which tasks each task waits for.
pub(crate) type Upstream<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

impl Dag {
    /// Fills every task's `downstream` from all tasks' `upstream`.
    pub(crate) fn link(&mut self) {
        let edges: Vec<(String, String)> = self
            .tasks
            .values()
            .flat_map(|task| {
                let of = |upstream: &String| (upstream.clone(), task.task_id.clone());
                task.upstream.iter().map(of).collect::<Vec<_>>()
            })
            .collect();
        for task in self.tasks.values_mut() {
            task.downstream.clear();
        }
        for (upstream, downstream) in edges {
            if let Some(task) = self.tasks.get_mut(&upstream) {
                task.downstream.insert(downstream);
            }
        }
    }

    /// Which tasks each task waits for.
    pub(crate) fn upstream(&self) -> Upstream<'_> {
        self.edges(|task| &task.upstream)
    }

    fn downstream(&self) -> Upstream<'_> {
        self.edges(|task| &task.downstream)
    }

    fn edges(&self, of: impl Fn(&Task) -> &BTreeSet<String>) -> Upstream<'_> {
        self.tasks
            .iter()
            .map(|(id, task)| (id.as_str(), of(task).iter().map(String::as_str).collect()))
            .collect()
    }

    /// All task ids, each after those it waits for; among equals by name.
    pub fn topological_order(&self) -> Vec<&str> {
        let mut waiting = self.upstream();
        let mut order = Vec::with_capacity(waiting.len());
        let mut ready: BTreeSet<&str> = waiting
            .iter()
            .filter(|(_, upstream)| upstream.is_empty())
            .map(|(id, _)| *id)
            .collect();
        while let Some(id) = ready.pop_first() {
            order.push(id);
            let Some(task) = self.tasks.get(id) else {
                continue;
            };
            for next in &task.downstream {
                if let Some(upstream) = waiting.get_mut(next.as_str()) {
                    upstream.remove(id);
                    if upstream.is_empty() {
                        ready.insert(next);
                    }
                }
            }
        }
        order
    }

    /// All tasks that a task waits for, directly or through others.
    pub fn ancestors(&self, task_id: &str) -> BTreeSet<&str> {
        ancestors(&self.upstream(), task_id)
    }

    /// All tasks that wait for a task, directly or through others.
    pub fn descendants(&self, task_id: &str) -> BTreeSet<&str> {
        ancestors(&self.downstream(), task_id)
    }

    /// A task's weight in the queue by its weight rule, clipped to what Airflow's database holds (int32). Zero for an
    /// unknown task.
    pub fn weight(&self, task_id: &str) -> i64 {
        let Some(task) = self.tasks.get(task_id) else {
            return 0;
        };
        let others = match task.weight_rule {
            WeightRule::Absolute => BTreeSet::new(),
            WeightRule::Downstream => self.descendants(task_id),
            WeightRule::Upstream => self.ancestors(task_id),
        };
        others
            .iter()
            .filter_map(|id| self.tasks.get(*id))
            .map(|other| other.priority_weight)
            .fold(task.priority_weight, i64::saturating_add)
            .clamp(i64::from(i32::MIN), i64::from(i32::MAX))
    }
}

/// Everything that can be reached from a node over `edges`; the node itself only if it is on a cycle.
pub(crate) fn ancestors<'a>(edges: &Upstream<'a>, of: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = vec![of];
    while let Some(id) = next.pop() {
        for upstream in edges.get(id).into_iter().flatten() {
            if found.insert(*upstream) {
                next.push(upstream);
            }
        }
    }
    found
}

/// Cycles that share no node, at least one if there is any and at most [`MAX_CYCLES`]; each as a path along the flow,
/// from a node to itself.
pub(crate) fn find_cycles<'a>(upstream: &Upstream<'a>) -> Vec<Vec<&'a str>> {
    let mut rest = without_free_nodes(upstream);
    let mut cycles = Vec::new();
    while let Some(start) = rest.keys().next().copied() {
        let cycle = walk_back(&rest, start);
        for id in &cycle {
            rest.remove(id);
        }
        cycles.push(from_smallest(cycle));
        if cycles.len() == MAX_CYCLES {
            break;
        }
        rest = without_free_nodes(&rest);
    }
    cycles
}

/// Walks from node to upstream node until one comes again: every node of `rest` waits for another one of it. Answers
/// the nodes of that round trip, along the flow.
fn walk_back<'a>(rest: &Upstream<'a>, start: &'a str) -> Vec<&'a str> {
    let mut path = Vec::new();
    let mut position = BTreeMap::new();
    let mut here = start;
    loop {
        if let Some(at) = position.insert(here, path.len()) {
            return path.drain(at..).rev().collect();
        }
        path.push(here);
        match rest.get(here).and_then(BTreeSet::first) {
            Some(upstream) => here = upstream,
            None => return path,
        }
    }
}

/// Turns a round trip so that it begins with its smallest node, and closes it.
fn from_smallest(mut path: Vec<&str>) -> Vec<&str> {
    let smallest = (0..path.len()).min_by_key(|at| path[*at]).unwrap_or(0);
    path.rotate_left(smallest);
    path.extend(path.first().copied());
    path
}

/// The graph without the nodes that could run one after the other: what is left waits for itself, or for such nodes.
fn without_free_nodes<'a>(upstream: &Upstream<'a>) -> Upstream<'a> {
    let mut rest: Upstream<'a> = upstream
        .iter()
        .map(|(id, ids)| {
            let known = ids.iter().filter(|id| upstream.contains_key(*id)).copied();
            (*id, known.collect())
        })
        .collect();
    let mut downstream: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, ids) in &rest {
        for waited_for in ids {
            downstream.entry(waited_for).or_default().push(id);
        }
    }
    let mut free: Vec<&str> = rest
        .iter()
        .filter(|(_, ids)| ids.is_empty())
        .map(|(id, _)| *id)
        .collect();
    while let Some(id) = free.pop() {
        rest.remove(id);
        for next in downstream.remove(id).unwrap_or_default() {
            if let Some(ids) = rest.get_mut(next) {
                ids.remove(id);
                if ids.is_empty() {
                    free.push(next);
                }
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests;
