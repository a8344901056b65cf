//! OpenAPI documents: what kubectl explains, validates and merges by.
//!
//! Types come from a cut of Kubernetes' own document (`openapi/` of this crate), paths from the
//! registry. The server makes a document at the first request for it, keeps it compressed, and
//! makes it again when the resources that are served have changed.

mod binary;
mod custom;
mod document;
mod paths;
mod serve;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{
    error::{ApiError, Result},
    registry::{Registry, Resource},
};

pub(crate) use serve::{Request, answer};

/// The definitions of upstream's types, compressed JSON.
static DEFINITIONS: &[u8] = include_bytes!("../../../openapi/definitions.json.gz");

/// Where definitions refer to one another.
pub(super) const V2_REFERENCE: &str = "#/definitions/";

/// The mark of values that keep unknown members.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Decodes the definitions.
pub(super) fn definitions() -> Result<Map<String, Value>> {
    serde_json::from_reader(io::BufReader::new(GzDecoder::new(DEFINITIONS)))
        .map_err(ApiError::internal)
}

/// A document and its tag.
#[derive(Debug, Clone)]
struct Document {
    compressed: Bytes,
    tag: String,
}

impl Document {
    fn new(document: &[u8], tag: String) -> Result<Document> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(document).map_err(ApiError::internal)?;
        let compressed = encoder.finish().map_err(ApiError::internal)?.into();
        Ok(Document { compressed, tag })
    }

    fn decompressed(&self) -> Result<Bytes> {
        let mut plain = Vec::new();
        GzDecoder::new(&*self.compressed)
            .read_to_end(&mut plain)
            .map_err(ApiError::internal)?;
        Ok(plain.into())
    }
}

/// The documents that clients have requested so far.
#[derive(Default)]
pub(crate) struct Documents {
    made: Mutex<Made>,
}

/// Documents by name: `v2`, `v2 in protobuf`, or the path below `/openapi/v3/`.
#[derive(Default)]
struct Made {
    documents: BTreeMap<String, Document>,
    /// The resources that they describe.
    resources: Vec<Arc<Resource>>,
}

impl Documents {
    /// A document; made now if it is not there yet, or describes other resources.
    fn get(
        &self,
        name: &str,
        resources: &[Arc<Resource>],
        tag: &str,
        make: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Document> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_same(&made.resources, resources) {
            *made = Made {
                documents: BTreeMap::new(),
                resources: resources.to_vec(),
            };
        }
        if let Some(document) = made.documents.get(name) {
            return Ok(document.clone());
        }
        let document = Document::new(&make()?, tag.to_owned())?;
        made.documents.insert(name.to_owned(), document.clone());
        Ok(document)
    }
}

/// Whether two lists hold the very same resources. A definition that changes is a new value.
fn is_same(left: &[Arc<Resource>], right: &[Arc<Resource>]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The resources that are served now.
fn resources(registry: &Registry) -> Vec<Arc<Resource>> {
    registry
        .all()
        .into_iter()
        .map(|served| served.resource)
        .collect()
}

/// `api/v1`, `apis/apps/v1`: the name of a group version's document.
fn document_name(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

fn document_names(resources: &[Arc<Resource>]) -> BTreeSet<String> {
    resources
        .iter()
        .map(|resource| document_name(resource))
        .collect()
}

/// Changes whenever the document of these resources does.
fn tag(resources: &[&Resource]) -> String {
    let mut digest = Sha256::new();
    digest.update(DEFINITIONS);
    for resource in resources {
        digest.update(format!("{resource:?}"));
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests;
