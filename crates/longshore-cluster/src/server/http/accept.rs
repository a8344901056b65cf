//! Which form of a response a client accepts.

use http::{HeaderMap, header::ACCEPT};

use crate::server::error::{ApiError, Result};

/// The form of the objects in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects as they are.
    Whole,
    /// `PartialObjectMetadata`: metadata only.
    Metadata,
    /// `Table`: rows and columns for people.
    Table,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// Chooses the first form in the client's list of preferences that this server has.
pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Form> {
    preferences(headers)
        .find_map(|preference| preference.form())
        .ok_or_else(ApiError::not_acceptable)
}

/// How to write the answer: YAML where a client prefers that to JSON.
pub(crate) fn encoding(headers: &HeaderMap) -> Encoding {
    preferences(headers)
        .find(|preference| preference.form().is_some())
        .map_or(Encoding::Json, |preference| match preference.media_type {
            "application/yaml" => Encoding::Yaml,
            _ => Encoding::Json,
        })
}

/// Whether the client wants all groups in one document rather than the plain list.
pub(crate) fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    preferences(headers)
        .filter(|preference| preference.is_structured())
        .find_map(|preference| match (preference.shape, preference.version) {
            ("APIGroupDiscoveryList", "v2") => Some(true),
            ("", _) => Some(false),
            _ => None,
        })
        .unwrap_or(false)
}

/// Whether JSON is among what the client takes.
pub(crate) fn takes_json(headers: &HeaderMap) -> bool {
    preferences(headers).any(|preference| preference.form() == Some(Form::Whole))
}

/// Whether this very media type is among what the client takes.
pub(crate) fn takes(headers: &HeaderMap, media_type: &str) -> bool {
    preferences(headers).any(|preference| preference.media_type == media_type)
}

/// One entry of an `Accept` header.
struct Preference<'a> {
    media_type: &'a str,
    /// `as`: the kind that objects are converted to.
    shape: &'a str,
    /// `v`: its version.
    version: &'a str,
}

/// The entries, best first as clients of Kubernetes write them; without a header, anything.
fn preferences(headers: &HeaderMap) -> impl Iterator<Item = Preference<'_>> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .filter(|accept| !accept.trim().is_empty())
        .unwrap_or("*/*");
    accept.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or("");
        let (mut shape, mut version) = ("", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "as" => shape = value,
                "v" => version = value,
                _ => {}
            }
        }
        Preference {
            media_type,
            shape,
            version,
        }
    })
}

impl Preference<'_> {
    fn is_structured(&self) -> bool {
        matches!(
            self.media_type,
            "application/json" | "application/yaml" | "application/*" | "*/*"
        )
    }

    fn form(&self) -> Option<Form> {
        if !self.is_structured() {
            return None;
        }
        match (self.shape, self.version) {
            ("", _) => Some(Form::Whole),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1" | "") => {
                Some(Form::Metadata)
            }
            ("Table", "v1" | "") => Some(Form::Table),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_exists_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for (accept, form, expected) in [
            ("", Some(Form::Whole), Encoding::Json),
            ("*/*", Some(Form::Whole), Encoding::Json),
            (kubectl, Some(Form::Table), Encoding::Json),
            ("application/yaml", Some(Form::Whole), Encoding::Yaml),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                Some(Form::Whole),
                Encoding::Json,
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(Form::Whole),
                Encoding::Json,
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some(Form::Metadata),
                Encoding::Json,
            ),
            ("application/vnd.kubernetes.protobuf", None, Encoding::Json),
            ("text/html", None, Encoding::Json),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(negotiate(&headers).ok(), form, "{accept}");
            assert_eq!(encoding(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn aggregated_discovery_is_for_those_who_ask_for_version_two() {
        let list = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        for (accept, expected) in [
            (format!("{list},{old},application/json"), true),
            (format!("{old},application/json"), false),
            (format!("application/json,{list}"), false),
            ("*/*".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(wants_aggregated_discovery(&headers), expected, "{accept}");
        }
    }
}
