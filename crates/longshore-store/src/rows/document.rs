//! Table `document`.

use crate::{changes::StoreError, engine::Row, model::StoredDocument};

/// A document from its row.
pub(crate) fn read(row: &Row) -> Result<StoredDocument, StoreError> {
    let read = || Ok(StoredDocument::stored(row.text("hash")?, row.text("body")?));
    read().map_err(|why: String| StoreError::Corrupt {
        what: "a DAG document".to_owned(),
        why: why.into(),
    })
}
