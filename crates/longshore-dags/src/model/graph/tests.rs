use std::collections::BTreeSet;

use super::*;

fn graph(edges: &[(&'static str, &'static str)]) -> Upstream<'static> {
    let mut upstream = Upstream::new();
    for (from, to) in edges {
        upstream.entry(from).or_default();
        upstream.entry(to).or_default().insert(from);
    }
    upstream
}

#[test]
fn ancestors_are_found_through_others() {
    let upstream = graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("x", "y")]);
    assert_eq!(ancestors(&upstream, "d"), BTreeSet::from(["a", "b"]));
    assert_eq!(ancestors(&upstream, "a"), BTreeSet::new());
    assert_eq!(ancestors(&upstream, "nobody"), BTreeSet::new());
    let ring = graph(&[("a", "b"), ("b", "a")]);
    assert_eq!(ancestors(&ring, "a"), BTreeSet::from(["a", "b"]));
}

fn cycles(edges: &[(&'static str, &'static str)]) -> Vec<String> {
    let upstream = graph(edges);
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
