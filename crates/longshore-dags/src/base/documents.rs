//! The DAGs that stored documents hold, each read once: rows of one document share one DAG.

use std::{collections::BTreeMap, sync::Arc};

use longshore_store::{DocumentHash, StoredDocument};

use crate::{
    catalog::Catalog,
    model::{CanonicalError, Dag},
    scheduler::board::Board,
};

/// Documents, and the DAGs that were read from them so far.
#[derive(Debug, Default)]
pub(crate) struct StoredDags {
    documents: BTreeMap<DocumentHash, StoredDocument>,
    read: BTreeMap<DocumentHash, Arc<Dag>>,
}

impl StoredDags {
    /// The DAGs that are in memory already.
    pub(crate) fn known(board: &Board, catalog: &Catalog) -> Self {
        let of_runs = board.runs.values();
        let of_runs = of_runs.map(|active| (&active.run.dag_hash, &active.dag));
        let read = of_runs.chain(catalog.documents());
        Self {
            documents: BTreeMap::new(),
            read: read
                .map(|(hash, dag)| (hash.clone(), Arc::clone(dag)))
                .collect(),
        }
    }

    /// Whether the DAG of this hash can be read without its document.
    pub(crate) fn is_known(&self, hash: &DocumentHash) -> bool {
        self.read.contains_key(hash)
    }

    /// These documents as well.
    pub(crate) fn add(&mut self, documents: impl IntoIterator<Item = StoredDocument>) {
        let documents = documents.into_iter();
        self.documents
            .extend(documents.map(|document| (document.hash().clone(), document)));
    }

    /// The DAG in the document of this hash.
    pub(crate) fn read(&mut self, hash: &DocumentHash) -> Result<Arc<Dag>, CanonicalError> {
        if let Some(dag) = self.read.get(hash) {
            return Ok(Arc::clone(dag));
        }
        let document = self.documents.get(hash);
        let document = document.ok_or_else(|| CanonicalError::NoDocument(hash.clone()))?;
        let dag = Arc::new(Dag::from_text(document.body())?);
        self.read.insert(hash.clone(), Arc::clone(&dag));
        Ok(dag)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_read_once_and_what_is_wrong_with_one_is_said_each_time() {
        let text = "dag_id: a\ntasks: {t: {command: [x]}}\n";
        let document = crate::document::parse("a.yaml", text).unwrap();
        let dag = document.validate(&mut |_| unreachable!("the DAG has no files"));
        let dag = dag.unwrap();
        let good = StoredDocument::of(&dag.to_json());
        let bad = StoredDocument::of(&json!({"dag_id": "b"}));
        let mut stored = StoredDags::default();
        let missing = stored.read(good.hash()).unwrap_err();
        assert!(matches!(&missing, CanonicalError::NoDocument(hash) if hash == good.hash()));
        stored.add([good.clone(), bad.clone()]);
        let first = stored.read(good.hash()).unwrap();
        assert_eq!(*first, dag);
        assert!(Arc::ptr_eq(&first, &stored.read(good.hash()).unwrap()));
        for _ in 0..2 {
            let wrong = stored.read(bad.hash()).unwrap_err();
            assert!(matches!(wrong, CanonicalError::Form(_)), "{wrong}");
        }
        assert!(stored.is_known(good.hash()) && !stored.is_known(bad.hash()));
    }
}
