//! Whether the fields of an object are those of its type: `fieldValidation`.

mod duplicates;
mod types;
mod walk;

use serde_json::Value;
use types::Types;

use super::{
    error::{ApiError, Cause, Result},
    http::query::Query,
    meta,
    registry::Resource,
};

/// What happens to fields that are unknown, or given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the option; a request that does not say gets warnings, as upstream.
    pub(crate) fn asked(query: &Query) -> Result<FieldValidation> {
        match query.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
                );
                let cause = Cause {
                    reason: "FieldValueNotSupported",
                    message,
                    field: "fieldValidation".to_owned(),
                };
                Err(ApiError::invalid(
                    "meta.k8s.io",
                    "CreateOptions",
                    "",
                    vec![cause],
                ))
            }
        }
    }
}

/// What is odd about the fields of an object, in upstream's words.
type Oddities = Vec<String>;

/// Validates a body: values of the wrong type are refused, unknown and duplicate fields are treated
/// as `validation` says. Returns warnings.
pub(crate) fn check_body(
    resource: &Resource,
    validation: FieldValidation,
    object: &Value,
    json: Option<&[u8]>,
) -> Result<Oddities> {
    let mut oddities = unknown_fields(resource, object)?;
    if validation == FieldValidation::Ignore {
        return Ok(Oddities::new());
    }
    if let Some(json) = json {
        oddities.extend(duplicates::find(json));
    }
    match validation {
        FieldValidation::Strict if !oddities.is_empty() => {
            Err(undecodable(resource, &strict_error(&oddities)))
        }
        FieldValidation::Ignore | FieldValidation::Warn | FieldValidation::Strict => Ok(oddities),
    }
}

/// Judges what a patch has made of an object: fields that were odd before do not count.
pub(crate) fn check_patched(
    resource: &Resource,
    validation: FieldValidation,
    old: &Value,
    new: &Value,
    patch: &Value,
) -> Result<Oddities> {
    let mut oddities = unknown_fields(resource, new)?;
    if validation == FieldValidation::Ignore || oddities.is_empty() {
        return Ok(Oddities::new());
    }
    let before = unknown_fields(resource, old).unwrap_or_default();
    oddities.retain(|oddity| !before.contains(oddity));
    if validation == FieldValidation::Strict && !oddities.is_empty() {
        let cause = Cause::invalid("patch", &patch.to_string().into(), &strict_error(&oddities));
        let name = meta::name(old);
        return Err(ApiError::invalid_object(resource, name, vec![cause]));
    }
    Ok(oddities)
}

/// The message about a field that the schema does not have.
fn unknown_field(path: &str) -> String {
    format!("unknown field {path:?}")
}

fn strict_error(oddities: &[String]) -> String {
    format!("strict decoding error: {}", oddities.join(", "))
}

fn undecodable(resource: &Resource, why: &str) -> ApiError {
    ApiError::undecodable(&resource.kind, &resource.version, why)
}

/// Fields that the type does not have. Resources without a known type have all fields.
fn unknown_fields(resource: &Resource, object: &Value) -> Result<Oddities> {
    if let Some(custom) = &resource.custom {
        let paths = custom.unknown_fields(object);
        return Ok(paths.iter().map(|path| unknown_field(path)).collect());
    }
    let Some(root) = Types::known().of(&resource.group, &resource.version, &resource.kind) else {
        return Ok(Oddities::new());
    };
    walk::unknown_fields(Types::known(), root, object)
        .map_err(|mismatch| undecodable(resource, &mismatch.to_string()))
}

#[cfg(test)]
mod tests;
