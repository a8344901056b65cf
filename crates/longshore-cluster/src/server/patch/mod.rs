//! The three patch languages. Each is a pure function from the current object and a patch to the
//! new object.

mod keys;
mod strategic;

use serde_json::Value;

use super::error::{ApiError, Result};

/// Upstream's limit of a JSON patch.
const MAX_OPERATIONS: usize = 10_000;
/// Upstream's limit of what all copies of a JSON patch add: each may copy what the one before has copied, so that a few
/// bytes ask for any amount of memory.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A patch language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl PatchType {
    /// The language of a content type.
    pub(crate) fn of(content_type: &str) -> Result<PatchType> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
            _ => Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ])),
        }
    }
}

/// Applies a patch to an object of a kind.
pub(crate) fn apply(
    patch_type: PatchType,
    kind: &str,
    object: &Value,
    patch: &Value,
) -> Result<Value> {
    let mut patched = object.clone();
    match patch_type {
        PatchType::Json => {
            let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
            let n = operations.0.len();
            if n > MAX_OPERATIONS {
                return Err(ApiError::too_many_operations(MAX_OPERATIONS, n));
            }
            let mut n_copied = 0;
            for operation in &operations.0 {
                if is_absent(&patched, operation) {
                    continue;
                }
                n_copied += copied_bytes(&patched, operation);
                if n_copied > MAX_COPIED_BYTES {
                    return Err(ApiError::patch_does_not_apply(&format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {n_copied}, exceeding \
                         the limit {MAX_COPIED_BYTES}"
                    )));
                }
                json_patch::patch(&mut patched, std::slice::from_ref(operation))
                    .map_err(|error| ApiError::patch_does_not_apply(&error.to_string()))?;
            }
        }
        PatchType::Merge => {
            require_object(patch)?;
            json_patch::merge(&mut patched, patch);
        }
        PatchType::Strategic => {
            require_object(patch)?;
            strategic::merge(kind, &mut patched, patch)?;
        }
    }
    if patched.is_object() {
        Ok(patched)
    } else {
        Err(ApiError::patch_does_not_apply(
            "the result is not an object",
        ))
    }
}

/// Whether an operation tests that a member is absent. Upstream compares an absent member as null;
/// clients use that test to find out whether another client has set the member.
fn is_absent(object: &Value, operation: &json_patch::PatchOperation) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else {
        return false;
    };
    let path = test.path.as_str();
    let parent = path
        .rsplit_once('/')
        .and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && object.pointer(path).is_none() && parent.is_some_and(Value::is_object)
}

/// What an operation adds to the object by copying, as JSON.
fn copied_bytes(object: &Value, operation: &json_patch::PatchOperation) -> usize {
    let json_patch::PatchOperation::Copy(copy) = operation else {
        return 0;
    };
    let copied = object.pointer(copy.from.as_str());
    copied.map_or(0, |copied| copied.to_string().len())
}

fn require_object(patch: &Value) -> Result<()> {
    if patch.is_object() {
        Ok(())
    } else {
        Err(ApiError::bad_request(
            "error decoding patch: expected a JSON object",
        ))
    }
}
