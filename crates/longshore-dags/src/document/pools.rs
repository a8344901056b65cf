//! The pools of a DAG folder: what `airflow pools import` reads, as YAML or JSON.

use std::{collections::BTreeMap, path::Path};

use super::{
    Document,
    node::{self, Key, Kind, Node},
    parse,
    problem::{Code, Problems},
    reader::Reader,
    suggest::quoted,
    text::kubernetes_kind,
};
use crate::scheduler::limits::UNLIMITED;

/// The names of files with pools, at the top of a DAG folder. The first one that is there counts.
pub const POOL_FILES: [&str; 3] = ["pools.json", "pools.yaml", "pools.yml"];

/// What a pool says about itself. `description` and `include_deferred` are Airflow's, and change nothing here: no task
/// defers itself.
const FIELDS: [&str; 3] = ["slots", "description", "include_deferred"];

/// Whether a file is named as one with pools.
pub fn is_pool_file(path: &Path) -> bool {
    let name = path.file_name();
    name.is_some_and(|name| POOL_FILES.iter().any(|file| name == *file))
}

/// Whether a file is meant to hold pools, by its name and its text: a DAG may be in a file of the name, and so may a
/// manifest for kubectl.
pub fn has_pools(path: &Path, text: &str) -> bool {
    is_pool_file(path) && !is_dag(text) && kubernetes_kind(text).is_none()
}

/// Whether it has tasks. A pool that is called `tasks` has slots.
fn is_dag(text: &str) -> bool {
    let Ok((root, _)) = node::read(text) else {
        return false;
    };
    let field = |node: &Node, name: &str| match &node.kind {
        Kind::Map(entries) => {
            let mut entries = entries.iter();
            entries
                .find(|(key, _)| key.text == name)
                .map(|(_, node)| node.clone())
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::List(_) => None,
    };
    field(&root, "tasks").is_some_and(|tasks| {
        let slots = field(&tasks, "slots");
        slots.is_none_or(|slots| !matches!(slots.kind, Kind::Number(_)))
    })
}

/// Reads the slots of pools by name. `file_name` is for messages.
///
/// # Errors
/// Everything that is wrong with the file, by position.
pub fn parse_pools(file_name: &str, text: &str) -> Result<BTreeMap<String, i64>, Problems> {
    let Document {
        file,
        text,
        root,
        problems,
    } = parse(file_name, text)?;
    let mut reader = Reader::new(&file, &text, problems);
    let pools = read(&mut reader, &root);
    let problems = reader.into_problems();
    if problems.is_empty() {
        Ok(pools)
    } else {
        Err(Problems::of(problems))
    }
}

fn read(reader: &mut Reader<'_>, root: &Node) -> BTreeMap<String, i64> {
    // A file that is being written is empty for a moment: that is not the wish to have no pools.
    if root.is_null() {
        let help = "write `{}` for no pools, or `NAME: {slots: 4}`";
        reader.report(Code::MissingField, root.span, "the file is empty", help);
        return BTreeMap::new();
    }
    if !reader.is_mapping("the file of pools", root) {
        return BTreeMap::new();
    }
    let entries = reader.entries("the file of pools", root);
    let entries = entries.unwrap_or_default().iter();
    let pools = entries.filter_map(|(key, node)| {
        let slots = read_slots(reader, key, node)?;
        Some((key.text.clone(), slots))
    });
    pools.collect()
}

fn read_slots(reader: &mut Reader<'_>, key: &Key, node: &Node) -> Option<i64> {
    let place = format!("pool `{}`", quoted(&key.text));
    if matches!(key.text.as_str(), "" | "." | "..") {
        let help = "give the pool another name: the commands could not name it";
        reader.report(
            Code::InvalidId,
            key.span,
            format!("{place} has no usable name"),
            help,
        );
    }
    let fields = reader.object(place, node, &FIELDS, &[])?;
    fields.read("description", |what, node| reader.scalar(what, node));
    fields.read("include_deferred", |what, node| reader.boolean(what, node));
    if fields.get("slots").is_none() {
        let message = format!("{} needs the field `slots`", fields.place);
        let help = "write `slots: 4`, or `slots: -1` for no limit";
        reader.report(Code::MissingField, node.span, message, help);
    }
    fields.read("slots", |what, node| {
        reader.whole(what, node, UNLIMITED..=i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_read_as_airflow_writes_them() {
        let json = r#"{
    "db": {"slots": 4, "description": "the database", "include_deferred": true},
    "tasks": {"slots": -1, "description": ""}
}"#;
        let yaml = "db: {slots: 4}\ntasks: {slots: -1, include_deferred: false}\n";
        let expected = [("db".to_owned(), 4), ("tasks".to_owned(), -1)];
        for (name, text) in [("pools.json", json), ("pools.yaml", yaml)] {
            assert!(has_pools(Path::new(name), text), "{name}");
            assert_eq!(parse_pools(name, text).unwrap(), expected.clone().into());
        }
        assert!(parse_pools("pools.yaml", "{}").unwrap().is_empty());
    }

    #[test]
    fn every_mistake_is_reported() {
        for (text, code, part) in [
            ("", "LS1304", "is empty"),
            ("[db]", "LS1303", "must be a mapping"),
            ("db: 4", "LS1303", "must be a mapping"),
            ("db: {}", "LS1304", "needs the field `slots`"),
            (
                "ok: {slots: 1}\ndb: {slots: many}",
                "2:13: LS1303",
                "a whole number",
            ),
            ("db: {slots: -2}", "LS1309", "at least -1"),
            ("db: {slots: 1, slot: 2}", "LS1302", "no field `slot`"),
            ("a: {slots: 1}\na: {slots: 2}", "LS1305", "occurs twice"),
            ("'': {slots: 1}", "LS1306", "no usable name"),
            ("db: {slots: 1, include_deferred: 1}", "LS1303", "`true`"),
            ("db: [", "LS1301", "not readable as YAML"),
        ] {
            let problems = parse_pools("pools.yaml", text).unwrap_err().to_string();
            assert!(problems.contains(code), "{text}: {problems}");
            assert!(problems.contains(part), "{text}: {problems}");
        }
    }

    #[test]
    fn a_dag_and_a_manifest_may_have_the_name_of_a_file_of_pools() {
        let pools = "db: {slots: 1}";
        for (path, text, expected) in [
            ("pools.yaml", pools, true),
            ("dags/pools.yml", pools, true),
            ("pools.yaml", "db: [", true),
            ("pool.yaml", pools, false),
            ("pools.yaml.bak", pools, false),
            (
                "pools.yaml",
                "dag_id: a\ntasks: {slots: {command: [x]}}",
                false,
            ),
            ("pools.yaml", "apiVersion: v1\nkind: List\nitems: []", false),
        ] {
            assert_eq!(has_pools(Path::new(path), text), expected, "{path}: {text}");
        }
    }
}
