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
