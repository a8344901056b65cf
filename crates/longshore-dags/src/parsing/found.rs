//! What a parser found in a unit, as the catalog takes it. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_airflow::{parser::ParsingResult, serialized::Document};
use longshore_core::error::chain;
use longshore_store::{BundleVersion, StoredDocument};

use crate::{
    catalog::{ParsedDag, ParsedUnit},
    model::Dag,
    versions::Content,
};

/// The unit that was parsed.
pub(super) struct Unit {
    /// Its bundle.
    pub(super) bundle: BundleVersion,
    /// Its path in the bundle.
    pub(super) unit: String,
    /// Its text.
    pub(super) source: Option<StoredDocument>,
    /// Whether its DAGs are paused where they do not say so.
    pub(super) are_paused: bool,
    /// When it was parsed.
    pub(super) at: Timestamp,
}

/// Reads the DAGs. One that cannot be scheduled is an import error of its file, by name.
pub(super) fn read(result: ParsingResult, unit: Unit) -> ParsedUnit {
    let mut errors = result.import_errors;
    let mut dags = BTreeMap::new();
    for found in result.dags {
        let document = &found.document;
        let file = file_of(document, &unit.unit);
        match Dag::of_document(document) {
            Ok(dag) => {
                let is_paused = document.dag.settings.is_paused_upon_creation;
                let dag = ParsedDag {
                    dag: Arc::new(dag),
                    content: Content::of(document),
                    source: unit.source.clone().filter(|_| file == unit.unit),
                    is_paused: is_paused.unwrap_or(unit.are_paused),
                    file,
                };
                dags.entry(dag.content.dag_id.clone()).or_insert(dag);
            }
            Err(why) => {
                let text: &mut String = errors.entry(file).or_default();
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&chain(&why));
            }
        }
    }
    ParsedUnit {
        bundle: unit.bundle,
        unit: unit.unit,
        dags: dags.into_values().collect(),
        errors,
        at: unit.at,
    }
}

/// The file of a DAG in its bundle: that which it names, if it is within the unit.
fn file_of(document: &Document, unit: &str) -> String {
    let said = document.dag.settings.relative_fileloc.as_deref();
    let within = said.filter(|file| {
        let rest = file.strip_prefix(unit);
        rest.is_some_and(|rest| rest.starts_with('/'))
    });
    within.unwrap_or(unit).to_owned()
}
