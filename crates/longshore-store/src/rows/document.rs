//! Table `document`.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{changes::StoreError, engine::Row, rows::parse_json};

/// Documents by their hash.
pub(crate) type Documents = BTreeMap<String, Value>;

/// A document on its way to its row.
pub(crate) struct Document {
    /// The key of the document: the hash of its text.
    pub(crate) hash: String,
    /// The JSON text of the document.
    pub(crate) body: String,
}

impl Document {
    pub(crate) fn of(document: &Value) -> Self {
        let body = document.to_string();
        let hash = Sha256::digest(&body);
        let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { hash, body }
    }
}

/// A document and its hash from its row.
pub(crate) fn read(row: &Row) -> Result<(String, Value), StoreError> {
    let read = || Ok((row.text("hash")?, parse_json(&row.text("body")?, "body")?));
    read().map_err(|why: String| StoreError::Corrupt {
        what: "a DAG document".to_owned(),
        why: why.into(),
    })
}
