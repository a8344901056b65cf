//! The request to a webhook and its response, `AdmissionReview` of `admission.k8s.io/v1`. Pure.

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::server::error::ApiError;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The phase of admission: a mutating webhook may answer with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Mutating,
    Validating,
}

/// A question.
pub(super) fn question(request: &Value) -> Value {
    json!({"kind": KIND, "apiVersion": API_VERSION, "request": request})
}

/// The decision of a webhook.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// `None` for a webhook that allows the request.
    pub(super) denial: Option<Denial>,
    /// A JSON patch in its own encoding, not empty.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

/// A `Status` that explains a denial, as the webhook gave it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Denial {
    code: i64,
    reason: String,
    message: String,
    details: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Response>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<Denial>,
    patch: Option<ByteString>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

/// Reads an answer to the question of a uid. The error is what follows `failed calling webhook`, in
/// upstream's words.
pub(super) fn read(phase: Phase, uid: &str, body: &[u8]) -> Result<Answer, String> {
    let review: Review =
        serde_json::from_slice(body).map_err(|error| format!("failed to call webhook: {error}"))?;
    if (review.api_version.as_str(), review.kind.as_str()) == ("admission.k8s.io/v1beta1", KIND) {
        return Err(format!(
            "failed to call webhook: converting (v1beta1.{KIND}) to (v1.{KIND}): unknown conversion"
        ));
    }
    let response = review.response.as_ref();
    let patch_type = response.and_then(|it| it.patch_type.clone());
    let answer = read_v1(phase, uid, review)
        .map_err(|why| format!("received invalid webhook response: {why}"))?;
    match patch_type {
        Some(other) if answer.patch.is_some() && other != "JSONPatch" => {
            Err(format!("unsupported patch type {other:?}"))
        }
        Some(_) | None => Ok(answer),
    }
}

fn read_v1(phase: Phase, uid: &str, review: Review) -> Result<Answer, String> {
    let Some(response) = review.response else {
        return Err("webhook response was absent".to_owned());
    };
    if response.uid != uid {
        let found = &response.uid;
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        let (version, kind) = (review.api_version, review.kind);
        return Err(format!(
            "expected webhook response of {API_VERSION}, Kind={KIND}, got {version}, Kind={kind}"
        ));
    }
    let patch = response.patch.map(|it| it.0).filter(|it| !it.is_empty());
    check_patch(phase, patch.is_some(), response.patch_type.as_deref())?;
    let is_empty = |patch: &[u8]| {
        serde_json::from_slice::<Vec<Value>>(patch).is_ok_and(|operations| operations.is_empty())
    };
    let patch = patch.filter(|patch| !is_empty(patch));
    Ok(Answer {
        denial: (!response.allowed).then(|| response.status.unwrap_or_default()),
        patch,
        warnings: response.warnings.unwrap_or_default(),
    })
}

fn check_patch(phase: Phase, has_patch: bool, patch_type: Option<&str>) -> Result<(), String> {
    let complaint = match (phase, has_patch, patch_type) {
        (Phase::Validating, true, _) => "validating webhook may not return response.patch",
        (Phase::Validating, false, Some(_)) => {
            "validating webhook may not return response.patchType"
        }
        (Phase::Mutating, true, None) => {
            "webhook returned response.patch but not response.patchType"
        }
        (Phase::Mutating, false, Some(_)) => {
            "webhook returned response.patchType but not response.patch"
        }
        (Phase::Mutating, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (Phase::Mutating, true, Some(_)) | (_, false, None) => return Ok(()),
    };
    Err(complaint.to_owned())
}

impl Denial {
    /// The refusal as the client gets it.
    pub(super) fn into_error(self, webhook: &str) -> ApiError {
        let denied = format!("admission webhook {webhook:?} denied the request");
        let message = match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        // A denial with a code of success would not be one.
        let code = u16::try_from(self.code).unwrap_or(400).clamp(400, 599);
        ApiError::denied(code, self.reason, message, self.details)
    }
}

/// The object after a patch; the error says what did not apply.
pub(super) fn patched(object: &Value, patch: &[u8]) -> Result<Value, String> {
    let patch: Patch = serde_json::from_slice(patch).map_err(|error| error.to_string())?;
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &patch).map_err(|error| error.to_string())?;
    Ok(patched)
}

/// The refusal of a dry run that a webhook cannot make.
pub(super) fn dry_run_unsupported(webhook: &str) -> ApiError {
    ApiError::bad_request(format!(
        "admission webhook {webhook:?} does not support dry run"
    ))
}
