//! Label selectors as objects carry them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt};
use serde::Deserialize;
use serde_json::Value;

use crate::model::Labels;

/// A selector that says nothing that can be followed.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSelector {
    /// It does not have the shape of one.
    #[error("not a label selector: {0}")]
    Shape(#[from] serde_json::Error),
    /// One of its expressions makes no sense.
    #[error("not a label selector: {0}")]
    Expression(#[from] ParseExpressionError),
}

/// Reads a selector.
pub fn parse(selector: &Value) -> Result<Selector, InvalidSelector> {
    let selector = LabelSelector::deserialize(selector)?;
    Ok(Selector::try_from(selector)?)
}

/// Whether a selector selects these labels; none where there is no selector, or none that can be read.
pub fn selects(selector: Option<&Value>, labels: &Labels) -> bool {
    let selector = selector.and_then(|selector| parse(selector).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}
