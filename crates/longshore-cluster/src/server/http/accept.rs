//! Which form of a response a client accepts.

use http::{HeaderMap, header::ACCEPT};

use crate::server::{
    error::{ApiError, Result},
    protobuf,
};

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
    Protobuf,
}

/// Which objects have a message in protobuf. The metadata of any object does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Messages {
    /// Whole objects do: those of built-in kinds.
    Whole,
    /// Only their metadata does: custom resources.
    Metadata,
}

/// Chooses the first form and encoding in the client's list of preferences that this server has.
pub(crate) fn negotiate(headers: &HeaderMap, messages: Messages) -> Result<(Form, Encoding)> {
    preferences(headers)
        .find_map(|preference| Some((preference.form(messages)?, preference.encoding())))
        .ok_or_else(ApiError::not_acceptable)
}

/// Chooses the first form of a review that this server has: reviews are no rows of a table.
pub(crate) fn negotiate_review(headers: &HeaderMap) -> Result<Form> {
    preferences(headers)
        .filter_map(|preference| preference.form(Messages::Whole))
        .find(|form| *form != Form::Table)
        .ok_or_else(ApiError::not_acceptable)
}

/// How to write an answer that may be of any kind.
pub(crate) fn encoding(headers: &HeaderMap) -> Encoding {
    negotiate(headers, Messages::Whole).map_or(Encoding::Json, |(_, encoding)| encoding)
}

/// How to write an answer that has no message in protobuf.
pub(crate) fn encoding_without_messages(headers: &HeaderMap) -> Encoding {
    preferences(headers)
        .filter(Preference::is_structured)
        .find(|preference| preference.form(Messages::Metadata).is_some())
        .map_or(Encoding::Json, |preference| preference.encoding())
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
    preferences(headers)
        .filter(Preference::is_structured)
        .any(|preference| preference.form(Messages::Whole) == Some(Form::Whole))
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

    fn encoding(&self) -> Encoding {
        match self.media_type {
            "application/yaml" => Encoding::Yaml,
            protobuf::MEDIA_TYPE => Encoding::Protobuf,
            _ => Encoding::Json,
        }
    }

    fn form(&self, messages: Messages) -> Option<Form> {
        let is_protobuf = self.media_type == protobuf::MEDIA_TYPE;
        if !is_protobuf && !self.is_structured() {
            return None;
        }
        match (self.shape, self.version) {
            ("", _) if is_protobuf && messages == Messages::Metadata => None,
            ("", _) => Some(Form::Whole),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1" | "") => {
                Some(Form::Metadata)
            }
            ("Table", "v1" | "") if !is_protobuf => Some(Form::Table),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_first_form_that_exists_wins() {
        use {Encoding::*, Form::*};
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        for (accept, built_in, custom) in [
            ("", Some((Whole, Json)), Some((Whole, Json))),
            ("*/*", Some((Whole, Json)), Some((Whole, Json))),
            (kubectl, Some((Table, Json)), Some((Table, Json))),
            ("application/yaml", Some((Whole, Yaml)), Some((Whole, Yaml))),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                Some((Whole, Protobuf)),
                Some((Whole, Json)),
            ),
            (
                "application/json, application/vnd.kubernetes.protobuf",
                Some((Whole, Json)),
                Some((Whole, Json)),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some((Whole, Json)),
                Some((Whole, Json)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Some((Metadata, Json)),
                Some((Metadata, Json)),
            ),
            (
                metadata,
                Some((Metadata, Protobuf)),
                Some((Metadata, Protobuf)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
                None,
                None,
            ),
            (
                "application/vnd.kubernetes.protobuf",
                Some((Whole, Protobuf)),
                None,
            ),
            ("text/html", None, None),
        ] {
            let headers = accepting(accept);
            let found = |messages| negotiate(&headers, messages).ok();
            assert_eq!(found(Messages::Whole), built_in, "{accept}");
            assert_eq!(found(Messages::Metadata), custom, "{accept}");
        }
    }

    #[test]
    fn a_review_is_no_table() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        for (accept, expected) in [
            (String::new(), Some(Form::Whole)),
            (table.to_owned(), None),
            (format!("{table},application/json"), Some(Form::Whole)),
            (format!("{table},{metadata}"), Some(Form::Metadata)),
        ] {
            let found = negotiate_review(&accepting(&accept)).ok();
            assert_eq!(found, expected, "{accept}");
        }
    }

    #[test]
    fn what_has_no_message_is_json_or_yaml() {
        for (accept, expected) in [
            ("application/vnd.kubernetes.protobuf", Encoding::Json),
            (
                "application/vnd.kubernetes.protobuf,application/yaml",
                Encoding::Yaml,
            ),
        ] {
            let headers = accepting(accept);
            assert_eq!(encoding(&headers), Encoding::Protobuf, "{accept}");
            assert_eq!(encoding_without_messages(&headers), expected, "{accept}");
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
