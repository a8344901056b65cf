//! Which file a DAG is in.

use std::collections::BTreeMap;

use super::{Catalog, Entry, ReadFile};
use crate::{folder::FileState, model::Dag};

/// The file of each DAG by id: the file on record as long as it holds the DAG, else the first file that does. A file
/// that cannot be read keeps the DAG that it had, unless another file has that DAG now.
pub(super) fn owners(catalog: &Catalog) -> BTreeMap<&str, (&str, &ReadFile)> {
    let mut owners = BTreeMap::new();
    let Some(files) = &catalog.files else {
        return owners;
    };
    for (name, read) in files.iter() {
        let FileState::Dag(dag) = &read.state else {
            continue;
        };
        let is_on_record = file_of(catalog.entry(&dag.dag_id)) == Some(name);
        let owner = owners
            .entry(dag.dag_id.as_str())
            .or_insert((name.as_str(), read));
        if is_on_record {
            *owner = (name, read);
        }
    }
    for (dag_id, entry) in catalog.entries.iter() {
        let file = file_of(Some(entry)).and_then(|name| files.get_key_value(name));
        if let Some((name, read)) = file
            && matches!(read.state, FileState::Broken(_))
        {
            owners.entry(dag_id).or_insert((name, read));
        }
    }
    owners
}

/// The file of the folder that holds a DAG; one of a bundle is none.
fn file_of(entry: Option<&Entry>) -> Option<&str> {
    let entry = entry.filter(|entry| !entry.is_python())?;
    entry.row.file.as_deref()
}

/// What is wrong with a file of pools, where it is not the first one.
pub(super) fn second_pools(name: &str, first: &str) -> Option<String> {
    (name != first).then(|| {
        format!(
            "the pools are in `{first}` already, and `{name}` is not used: remove one of the two"
        )
    })
}

/// What is wrong with a second file of a DAG.
pub(super) fn duplicate(dag: &Dag, owner: &str) -> String {
    format!(
        "DAG `{}` is in `{owner}` already; give one of the two another `dag_id`, or remove it",
        dag.dag_id
    )
}
