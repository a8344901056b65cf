use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::document;

/// A DAG with edges like `a>b a>c`, and weights like `b=5`.
fn dag(edges: &str, rule: WeightRule) -> Dag {
    let mut text = format!(
        "dag_id: d\ndefault_args: {{image: i, weight_rule: {}}}\ntasks:\n",
        rule.as_str()
    );
    let mut tasks: BTreeMap<&str, (Vec<&str>, i64)> = BTreeMap::new();
    for word in edges.split_whitespace() {
        if let Some((from, to)) = word.split_once('>') {
            tasks.entry(from).or_insert((vec![], 1));
            tasks.entry(to).or_insert((vec![], 1)).0.push(from);
        } else if let Some((id, weight)) = word.split_once('=') {
            tasks.entry(id).or_insert((vec![], 1)).1 = weight.parse().unwrap();
        }
    }
    for (id, (upstream, weight)) in tasks {
        let upstream = upstream.join(", ");
        text += &format!("  {id}: {{priority_weight: {weight}, depends_on: [{upstream}]}}\n");
    }
    document::parse("d.yaml", &text)
        .and_then(|document| document.validate(&mut |_| unreachable!("no files")))
        .unwrap()
}

#[test]
fn the_order_is_topological_and_stable() {
    let dag = dag("c>b b>d a>d z>a", WeightRule::Absolute);
    assert_eq!(dag.topological_order(), ["c", "b", "z", "a", "d"]);
}

#[test]
fn weights_follow_the_rule() {
    let edges = "a>b a>c b>d c>d a=1 b=10 c=100 d=1000";
    let weights = |rule| {
        let dag = dag(edges, rule);
        ["a", "b", "c", "d"].map(|id| dag.weight(id))
    };
    // The diamond's end counts once.
    assert_eq!(weights(WeightRule::Downstream), [1111, 1010, 1100, 1000]);
    assert_eq!(weights(WeightRule::Upstream), [1, 11, 101, 1111]);
    assert_eq!(weights(WeightRule::Absolute), [1, 10, 100, 1000]);
}

#[test]
fn weights_are_clipped_to_what_the_database_holds() {
    let dag = dag("a>b a=2147483647 b=2147483647", WeightRule::Downstream);
    assert_eq!(dag.weight("a"), i64::from(i32::MAX));
    assert_eq!(dag.weight("nobody"), 0);
}

#[test]
fn downstream_is_the_inverse_of_upstream() {
    let dag = dag("a>b a>c b>d", WeightRule::Absolute);
    assert_eq!(
        dag.tasks["a"].downstream,
        ["b", "c"].map(str::to_owned).into()
    );
    assert_eq!(dag.descendants("a"), BTreeSet::from(["b", "c", "d"]));
    assert_eq!(dag.ancestors("d"), BTreeSet::from(["a", "b"]));
}

fn cycles(edges: &[(&'static str, &'static str)]) -> Vec<String> {
    let mut upstream: Upstream<'_> = BTreeMap::new();
    for (from, to) in edges {
        upstream.entry(from).or_default();
        upstream.entry(to).or_default().insert(from);
    }
    let cycles = find_cycles(&upstream);
    cycles.iter().map(|cycle| cycle.join(" -> ")).collect()
}

#[test]
fn cycles_are_paths_along_the_flow() {
    assert_eq!(cycles(&[("a", "b"), ("b", "c")]), [""; 0]);
    assert_eq!(cycles(&[("a", "a")]), ["a -> a"]);
    assert_eq!(
        cycles(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]),
        ["a -> b -> c -> a"]
    );
    assert_eq!(
        cycles(&[("x", "y"), ("y", "x"), ("b", "a"), ("a", "b"), ("b", "x")]),
        ["a -> b -> a", "x -> y -> x"]
    );
    assert_eq!(
        cycles(&[("z", "a"), ("a", "b"), ("b", "a")]),
        ["a -> b -> a"]
    );
}

#[test]
fn long_chains_and_rings_are_no_trouble() {
    let names: Vec<String> = (0..20_000).map(|n| format!("t{n:05}")).collect();
    let mut upstream: Upstream<'_> = names
        .windows(2)
        .map(|w| (w[1].as_str(), [w[0].as_str()].into()))
        .collect();
    upstream.insert(&names[0], BTreeSet::new());
    assert!(find_cycles(&upstream).is_empty());
    upstream.insert(&names[0], [names[19_999].as_str()].into());
    assert_eq!(find_cycles(&upstream)[0].len(), 20_001);
}
