//! The query parameters of a request.

use serde_json::Value;

use crate::server::error::{ApiError, Cause, Result};

/// The options of a request, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the part of a URI after `?`.
    pub(crate) fn parse(text: &str) -> Query {
        Query(
            form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// The option's value; empty when it is not given.
    pub(crate) fn text(&self, option: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == option)
            .map_or("", |(_, value)| value)
    }

    /// All values of an option that may be given several times.
    pub(crate) fn all<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        let given = self.0.iter().filter(move |(key, _)| key == option);
        given.map(|(_, value)| value.as_str())
    }

    /// A yes-or-no option, `None` when it is not given.
    pub(crate) fn flag(&self, option: &str) -> Result<Option<bool>> {
        match self.text(option) {
            "" => Ok(None),
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(Some(false)),
            other => {
                let message = format!("strconv.ParseBool: parsing {other:?}: invalid syntax");
                Err(ApiError::bad_request(message))
            }
        }
    }

    /// A whole number, `None` when it is not given.
    pub(crate) fn number(&self, option: &str) -> Result<Option<i64>> {
        match self.text(option) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let message = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
                ApiError::bad_request(message)
            }),
        }
    }

    /// Whether the request is a dry run, which stores nothing.
    pub(crate) fn is_dry_run(&self) -> Result<bool> {
        is_dry_run(
            self.0
                .iter()
                .filter(|(key, _)| key == "dryRun")
                .map(|(_, value)| value.as_str()),
        )
    }
}

/// Judges values of `dryRun`: only `All` is known.
pub(crate) fn is_dry_run<'a>(values: impl Iterator<Item = &'a str>) -> Result<bool> {
    let mut is_dry = false;
    for value in values.filter(|value| !value.is_empty()) {
        if value != "All" {
            let why = format!("Unsupported value: {value:?}: supported values: \"All\"");
            let cause = Cause {
                reason: "FieldValueNotSupported",
                message: why,
                field: "dryRun".to_owned(),
            };
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "WriteOptions",
                "",
                vec![cause],
            ));
        }
        is_dry = true;
    }
    Ok(is_dry)
}

/// The query parameter `resourceVersion` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedRevision {
    /// No revision was given: the newest state.
    Unset,
    /// `0`: any state.
    Any,
    /// At least, exactly or after this revision, as the verb has it.
    At(u64),
}

impl AskedRevision {
    /// Parses a `resourceVersion`.
    pub(crate) fn parse(text: &str) -> Result<AskedRevision> {
        match text {
            "" => Ok(AskedRevision::Unset),
            text => match text.parse::<u64>() {
                Ok(0) => Ok(AskedRevision::Any),
                Ok(revision) => Ok(AskedRevision::At(revision)),
                Err(_) => {
                    let value = Value::from(text);
                    let message = format!("invalid resource version: Invalid value: {value}");
                    Err(ApiError::bad_request(message))
                }
            },
        }
    }
}
