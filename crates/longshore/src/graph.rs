//! The order of tasks in tables and on boards.

use std::collections::BTreeMap;

use longshore_dags::model::Dag;

/// The tasks of a DAG, each after the tasks that it waits for; tasks of the same depth by their ids.
pub(crate) fn in_order(dag: &Dag) -> Vec<&str> {
    let mut n_open: BTreeMap<&str, usize> = BTreeMap::new();
    let mut downstream: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, task) in &dag.tasks {
        n_open.insert(id, task.upstream.len());
        for before in &task.upstream {
            downstream.entry(before).or_default().push(id);
        }
    }
    let mut ordered = Vec::new();
    let free = n_open.iter().filter(|(_, n)| **n == 0);
    let mut level: Vec<&str> = free.map(|(id, _)| *id).collect();
    while !level.is_empty() {
        let mut next = Vec::new();
        for after in level.iter().filter_map(|id| downstream.get(id)).flatten() {
            if let Some(n) = n_open.get_mut(after) {
                *n = n.saturating_sub(1);
                if *n == 0 {
                    next.push(*after);
                }
            }
        }
        next.sort_unstable();
        ordered.extend(std::mem::replace(&mut level, next));
    }
    ordered
}

/// Sorts what belongs to tasks as [`in_order`]; what belongs to no task of the DAG comes last, as it was.
pub(crate) fn sort<T>(items: &mut [T], order: &[impl AsRef<str>], task_id: impl Fn(&T) -> &str) {
    let places = order.iter().enumerate();
    let places: BTreeMap<&str, usize> = places.map(|(at, id)| (id.as_ref(), at)).collect();
    items.sort_by_key(|item| places.get(task_id(item)).copied().unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dag(tasks: &str) -> Dag {
        let text = format!("dag_id: d\ntasks:\n{tasks}");
        let document = longshore_dags::document::parse("d.yaml", &text).unwrap();
        let no_files = &mut |_: &str| Err(std::io::ErrorKind::NotFound.into());
        document.validate(no_files).unwrap()
    }

    #[test]
    fn a_task_comes_after_those_that_it_waits_for() {
        let dag = dag(
            "  merge: {command: [a], depends_on: [y, x]}\n  x: {command: [a], depends_on: [split]}\n  \
             y: {command: [a], depends_on: [split]}\n  split: {command: [a]}\n  alone: {command: [a]}\n",
        );
        let order = in_order(&dag);
        assert_eq!(order, ["alone", "split", "x", "y", "merge"]);
        let mut given = ["merge", "old", "alone", "x"];
        sort(&mut given, &order, |id| id);
        assert_eq!(given, ["alone", "x", "merge", "old"]);
    }

    #[test]
    fn long_chains_and_wide_levels_take_no_time() {
        let chain: String = (0..3_000)
            .map(|n| match n {
                0 => "  t0: {command: [a]}\n".to_owned(),
                n => format!("  t{n}: {{command: [a], depends_on: [t{}]}}\n", n - 1),
            })
            .collect();
        let dag = dag(&chain);
        let order = in_order(&dag);
        assert_eq!((order.len(), order[2_999]), (3_000, "t2999"));
    }
}
