//! The operations of a pod, read from its labels.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::podops::OperationLabel;

use super::Labels;

/// A label that should name an operation, and does not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label {0}")]
pub struct InvalidLabel(pub String);

/// The labels of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation(BTreeMap<OperationLabel, String>);

impl Operation {
    /// Reads all labels of an operation.
    pub fn of(labels: &Labels, id: &str) -> Self {
        let has = |label: OperationLabel| Some((label, labels.get(&label.of(id))?.clone()));
        Self(OperationLabel::ALL.into_iter().filter_map(has).collect())
    }

    /// Whether it has this label.
    pub fn has(&self, label: OperationLabel) -> bool {
        self.0.contains_key(&label)
    }

    /// The value of a label.
    pub fn get(&self, label: OperationLabel) -> Option<&str> {
        self.0.get(&label).map(String::as_str)
    }

    /// The type with which the operation was begun. An empty type counts as none: no label can permit it.
    pub fn wanted_type(&self) -> Option<&str> {
        let wanted = self.get(OperationLabel::OperationType);
        wanted.filter(|of| !of.is_empty())
    }

    /// Its type, also after its work is done.
    pub fn operation_type(&self) -> Option<&str> {
        let done = || self.get(OperationLabel::DoneOperationType);
        self.wanted_type().or_else(done)
    }
}

/// The operations of a pod, by id. An operation that is neither wanted, granted nor done does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations(BTreeMap<String, Operation>);

/// An operation exists while its pod has one of these labels.
const MAKE_IT_EXIST: [OperationLabel; 3] = [
    OperationLabel::Operating,
    OperationLabel::Operate,
    OperationLabel::Operated,
];

impl Operations {
    /// Reads the operations of a pod with these labels.
    pub fn of(labels: &Labels) -> Result<Self, InvalidLabel> {
        let mut ids = BTreeSet::new();
        for key in labels.keys() {
            if has_prefix(key, &MAKE_IT_EXIST) {
                let id = key.split('/').nth(1);
                ids.insert(id.ok_or_else(|| InvalidLabel(key.clone()))?.to_owned());
            }
        }
        let operation = |id: String| {
            let operation = Operation::of(labels, &id);
            (id, operation)
        };
        Ok(Self(ids.into_iter().map(operation).collect()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Operation)> {
        self.0
            .iter()
            .map(|(id, operation)| (id.as_str(), operation))
    }

    /// The operation of this id.
    pub fn get(&self, id: &str) -> Option<&Operation> {
        self.0.get(id)
    }

    /// Whether any of them has this label.
    pub fn any(&self, label: OperationLabel) -> bool {
        self.0.values().any(|operation| operation.has(label))
    }

    /// Whether each of them has this label.
    pub fn all(&self, label: OperationLabel) -> bool {
        self.0.values().all(|operation| operation.has(label))
    }

    /// How many are of this type.
    pub fn count(&self, operation_type: &str) -> usize {
        let types = self.0.values().filter_map(Operation::operation_type);
        types.filter(|of| *of == operation_type).count()
    }
}

/// Whether a key is one of these labels, of whatever operation.
pub(crate) fn has_prefix(key: &str, labels: &[OperationLabel]) -> bool {
    labels.iter().any(|label| label.is_in(key))
}
