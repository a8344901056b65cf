//! Which form of an answer a client takes.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::server::error::{ApiError, Result};

/// The form of the objects in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// `PartialObjectMetadata`: metadata only.
    Metadata,
}

/// Chooses the first form in the client's list of preferences that this server has.
pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Form> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    if accept.trim().is_empty() {
        return Ok(Form::Whole);
    }
    accept
        .split(',')
        .find_map(form_of)
        .ok_or_else(ApiError::not_acceptable)
}

fn form_of(preference: &str) -> Option<Form> {
    let mut parts = preference.split(';').map(str::trim);
    let media_type = parts.next()?;
    if !matches!(media_type, "application/json" | "application/*" | "*/*") {
        return None;
    }
    match parts.find_map(|parameter| parameter.strip_prefix("as=")) {
        None => Some(Form::Whole),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Metadata),
        Some(_) => None,
    }
}
