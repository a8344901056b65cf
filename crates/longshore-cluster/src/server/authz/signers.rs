//! Who may decide about requests for certificates, and who may sign them: rights on the signer that a request names.

use serde_json::Value;

use super::{Attributes, ResourceTarget};
use crate::server::{
    error::{ApiError, Result},
    meta,
    registry::Strategy,
    verbs::Call,
};

/// Refuses a decision or a signature of a user who may not give it for the signer. `old` is the stored request.
pub(crate) fn check(call: &Call, new: &Value, old: &Value) -> Result<()> {
    if call.resource().strategy != Strategy::SigningRequest {
        return Ok(());
    }
    let is_signed = ["certificate", "conditions"]
        .iter()
        .any(|key| new["status"][*key] != old["status"][*key]);
    let verb = match call.subresource.as_deref() {
        Some("approval") => "approve",
        Some("status") if is_signed => "sign",
        Some(_) | None => return Ok(()),
    };
    let signer = meta::text(old, "/spec/signerName");
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let may = |name: String| {
        let target = ResourceTarget {
            group: call.resource().group.clone(),
            resource: "signers".to_owned(),
            name,
            ..ResourceTarget::default()
        };
        let asked = Attributes::about(verb, target);
        call.server.authorizer.decide(&call.user, &asked).is_allowed
    };
    if may(signer.to_owned()) || may(format!("{domain}/*")) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::forbidden(call.resource(), meta::name(old), &why))
}
