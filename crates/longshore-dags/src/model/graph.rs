//! Which tasks wait for which, directly or through others, and whether any wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use super::Dag;

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
        self.tasks
            .iter()
            .map(|(id, task)| {
                (
                    id.as_str(),
                    task.upstream.iter().map(String::as_str).collect(),
                )
            })
            .collect()
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

/// Walks from node to upstream node until a node repeats: every node of `rest` waits for another node of `rest`.
/// Returns the nodes of that cycle, along the flow.
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

/// Turns a cycle so that it begins with its smallest node, and closes it.
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
