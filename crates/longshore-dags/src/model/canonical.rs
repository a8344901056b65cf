//! The form in which a DAG is stored with each of its runs.

use longshore_airflow::serialized::{Document, Unreadable};
use longshore_store::DocumentHash;
use serde::Deserialize;
use serde_json::Value;

use super::{Dag, NotSchedulable, graph};

/// Why a stored DAG cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The document is not in the database.
    #[error("there is no stored DAG {0}")]
    NoDocument(DocumentHash),
    /// A field is missing or has another type.
    #[error("stored DAG does not have the form that this version writes")]
    Form(#[from] serde_json::Error),
    /// It is a DAG from Python that another version of Longshore could read.
    #[error("stored DAG from Python cannot be read")]
    Serialized(#[from] Unreadable),
    /// It is a DAG from Python that another version of Longshore could schedule.
    #[error("stored DAG from Python cannot be scheduled")]
    NotSchedulable(#[from] NotSchedulable),
    /// A task is stored under another id than its own.
    #[error("stored DAG `{dag_id}` has task `{task_id}` under the key `{key}`")]
    Key {
        /// The DAG.
        dag_id: String,
        /// The task's own id.
        task_id: String,
        /// What it is stored under.
        key: String,
    },
    /// A task waits for one that is not there.
    #[error(
        "task `{task_id}` of stored DAG `{dag_id}` waits for `{upstream}`, which is no task of it"
    )]
    UnknownUpstream {
        /// The DAG.
        dag_id: String,
        /// The task that waits.
        task_id: String,
        /// What it waits for.
        upstream: String,
    },
    /// Tasks wait for each other.
    #[error("tasks of stored DAG `{dag_id}` wait for each other: {path}")]
    Cycle {
        /// The DAG.
        dag_id: String,
        /// The tasks, from the first to itself.
        path: String,
    },
}

/// The member that documents of Airflow's parser have, and ours do not.
#[derive(Deserialize)]
struct Probe {
    #[serde(rename = "__version")]
    version: Option<serde::de::IgnoredAny>,
}

impl Dag {
    /// The canonical form: everything that a run needs, files included (base64). Equal DAGs have equal forms.
    pub fn to_json(&self) -> Value {
        #[expect(
            clippy::expect_used,
            reason = "all keys are strings and no field's serializer fails"
        )]
        serde_json::to_value(self).expect("a DAG is JSON")
    }

    /// Reads a stored document, and checks the invariants of the graph: the canonical form of a container DAG, or what
    /// Airflow's parser wrote of a DAG from Python.
    pub fn from_text(text: &str) -> Result<Self, CanonicalError> {
        if serde_json::from_str::<Probe>(text)?.version.is_some() {
            let document = Document::read(serde_json::from_str(text)?)?;
            return Ok(Self::of_document(&document)?);
        }
        let mut dag: Self = serde_json::from_str(text)?;
        dag.check_stored()?;
        dag.link();
        Ok(dag)
    }

    pub(super) fn check_stored(&self) -> Result<(), CanonicalError> {
        let dag_id = || self.dag_id.clone();
        for (key, task) in &self.tasks {
            if *key != task.task_id {
                return Err(CanonicalError::Key {
                    dag_id: dag_id(),
                    task_id: task.task_id.clone(),
                    key: key.clone(),
                });
            }
            if let Some(unknown) = task
                .upstream
                .iter()
                .find(|id| !self.tasks.contains_key(*id))
            {
                return Err(CanonicalError::UnknownUpstream {
                    dag_id: dag_id(),
                    task_id: key.clone(),
                    upstream: unknown.clone(),
                });
            }
        }
        match graph::find_cycles(&self.upstream()).first() {
            None => Ok(()),
            Some(cycle) => Err(CanonicalError::Cycle {
                dag_id: dag_id(),
                path: cycle.join(" -> "),
            }),
        }
    }
}

/// Contents of files as base64, the form that a ConfigMap's `binaryData` has too.
pub(super) mod base64_files {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::model) fn serialize<S: Serializer>(
        files: &BTreeMap<String, Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            files
                .iter()
                .map(|(name, content)| (name, ByteString(content.clone()))),
        )
    }

    pub(in crate::model) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Vec<u8>>, D::Error> {
        let files = BTreeMap::<String, ByteString>::deserialize(deserializer)?;
        Ok(files
            .into_iter()
            .map(|(name, content)| (name, content.0))
            .collect())
    }
}
