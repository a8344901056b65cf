//! What the program serves at `/metrics` is in `docs/reference/metrics.md`, with its type and its labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::repository;

/// A metric of the reference: its type and its labels.
type Metric = (String, BTreeSet<String>);

/// Compares each metric of a scrape with the reference.
pub(crate) fn all_is_in_the_reference(scrape: &str) {
    let reference = reference();
    let mut kinds = BTreeMap::new();
    let mut n_samples = 0;
    for line in scrape.lines() {
        if let Some((family, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            kinds.insert(family.to_owned(), kind.trim().to_owned());
        }
        let Some((name, labels)) = sample(line) else {
            continue;
        };
        let family = kinds.keys().filter(|family| name.starts_with(*family));
        let Some(family) = family.max_by_key(|family| family.len()) else {
            continue;
        };
        let kind = &kinds[family];
        let (listed, labels) = match kind.as_str() {
            "histogram" => (
                family.clone(),
                labels.into_iter().filter(|label| label != "le").collect(),
            ),
            _ => (name.to_owned(), labels),
        };
        let found = (kind.clone(), labels);
        assert_eq!(reference.get(&listed), Some(&found), "{line}");
        n_samples += 1;
    }
    assert!(n_samples > 0, "{scrape}");
}

/// The name of a sample, and the names of its labels.
fn sample(line: &str) -> Option<(&str, BTreeSet<String>)> {
    let (series, _) = line.rsplit_once(' ')?;
    if line.starts_with('#') {
        return None;
    }
    let Some((name, rest)) = series.split_once('{') else {
        return Some((series, BTreeSet::new()));
    };
    let labels = rest.strip_suffix('}')?.split("\",");
    let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
    Some((name, labels.collect()))
}

/// The rows of the reference, by the name of the metric.
fn reference() -> BTreeMap<String, Metric> {
    let path = repository().join("docs/reference/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, _, _, _] = cells[..] else {
            return None;
        };
        let labels = labels.split(", ").map(|label| label.trim_matches('`'));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        let name = name.trim_matches('`').to_owned();
        Some((name, (kind.to_owned(), labels.collect())))
    });
    rows.collect()
}
