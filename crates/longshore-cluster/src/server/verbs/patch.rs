//! PATCH of an object.

use http::Response;
use serde_json::Value;

use super::{
    Call,
    rewrite::{Part, rewrite},
};
use crate::server::{
    error::{ApiError, Result},
    http::body::ApiBody,
    patch::{self, PatchType},
    schema::{self, FieldValidation},
};

/// Changes the object as the patch says.
pub(crate) async fn patch(
    call: &Call,
    part: Part,
    patch_type: PatchType,
    patch: &Value,
) -> Result<Response<ApiBody>> {
    if patch_type == PatchType::Strategic && call.served.custom.is_some() {
        return Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ]));
    }
    let kind = call.resource().kind.clone();
    let validation = FieldValidation::asked(&call.query)?;
    let change = |old: &Value| {
        let new = patch::apply(patch_type, &kind, old, patch)?;
        let oddities = schema::check_patched(&call.served, validation, old, &new, patch)?;
        call.warnings.add(oddities);
        Ok(new)
    };
    Ok(rewrite(call, part, change).await?.respond(call))
}
