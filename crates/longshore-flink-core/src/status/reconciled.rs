//! The texts `lastReconciledSpec` and `lastStableSpec`.

use longshore_api::flink::API_VERSION;
use serde::{Deserialize, Serialize};

use crate::{
    jackson,
    json::{Json, Object},
    spec::{Spec, null_is_default},
};

const KEY_SPEC: &str = "spec";
const KEY_METADATA: &str = "resource_metadata";

/// A spec that was deployed, or is being deployed, as the status holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconciledSpec<S> {
    /// The spec.
    pub spec: S,
    /// What upstream keeps beside it. Older operators wrote none.
    pub metadata: Option<ReconciliationMetadata>,
}

/// What upstream keeps beside a reconciled spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReconciliationMetadata {
    /// Group and version of the resource.
    pub api_version: Option<String>,
    /// Whether nothing was deployed before this spec. Then a failed attempt leaves nothing behind.
    #[serde(deserialize_with = "null_is_default")]
    pub first_deployment: bool,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for ReconciliationMetadata {
    fn default() -> Self {
        Self {
            api_version: Some(API_VERSION.to_owned()),
            first_deployment: false,
            other: Object::default(),
        }
    }
}

/// A text in the status that is no spec.
#[derive(Debug, thiserror::Error)]
#[error(
    "status.reconciliationStatus.{field} cannot be read: expected the JSON of a {class}; without it nothing says what runs. \
     Restore the field, or run the operator that wrote it"
)]
pub struct UnreadableSpec {
    field: &'static str,
    class: &'static str,
    #[source]
    source: serde_json::Error,
}

impl<S: Spec> ReconciledSpec<S> {
    /// Reads the text of a field of the status: `{"spec":…,"resource_metadata":…}`, or a bare spec with an `apiVersion`
    /// inside, as older operators wrote it.
    ///
    /// # Errors
    /// The text is no JSON, or no spec of the kind.
    pub fn read(field: &'static str, text: &str) -> Result<Self, UnreadableSpec> {
        Self::parse(text).map_err(|source| UnreadableSpec {
            field,
            class: S::CLASS,
            source,
        })
    }

    fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let mut wrapper: Object = serde_json::from_str(text)?;
        let Some(metadata) = wrapper.remove(KEY_METADATA) else {
            wrapper.remove("apiVersion");
            return Ok(Self {
                spec: from_json(&Json::Object(wrapper))?,
                metadata: None,
            });
        };
        let mut metadata: ReconciliationMetadata = from_json(&metadata)?;
        // Operators before 1.2 kept the object's metadata here.
        metadata.other.remove("metadata");
        let spec = wrapper.get(KEY_SPEC).unwrap_or(&Json::Null);
        Ok(Self {
            spec: from_json(spec)?,
            metadata: Some(metadata),
        })
    }

    /// The text for the status, byte for byte as upstream writes the same spec. A spec without metadata gets some.
    pub fn to_text(&self) -> String {
        #[derive(Serialize)]
        struct Wrapper<'a, S> {
            spec: &'a S,
            resource_metadata: &'a ReconciliationMetadata,
        }
        let default = ReconciliationMetadata::default();
        jackson::to_text(&Wrapper {
            spec: &self.spec,
            resource_metadata: self.metadata.as_ref().unwrap_or(&default),
        })
    }

    /// Whether nothing was deployed before this spec.
    pub fn is_first_deployment(&self) -> bool {
        self.metadata.as_ref().is_some_and(|it| it.first_deployment)
    }

    /// Says that something was deployed.
    pub(super) fn is_not_first_deployment(&mut self) {
        self.metadata.get_or_insert_default().first_deployment = false;
    }
}

/// Reads a value in the order of its keys, which a `serde_json::Value` would sort.
fn from_json<T: serde::de::DeserializeOwned>(json: &Json) -> Result<T, serde_json::Error> {
    serde_json::from_str(&json.to_compact())
}
