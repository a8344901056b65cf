//! AdmissionReview `admission.k8s.io/v1`: request and response. Pure.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What an API server is about to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// Of the request; the response repeats it.
    pub uid: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Of the object; empty for objects outside of namespaces.
    pub namespace: String,
    /// Of the object, also where it is deleted as one of a collection; empty where the API server has yet to make one up.
    pub name: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Part of the object that is written, as `status`; empty for all of it.
    pub subresource: String,
    /// Whether nothing is to be written: a webhook must not leave anything behind either.
    pub is_dry_run: bool,
    /// The user who makes the request.
    pub user: String,
    /// As it would be written; null where it is deleted.
    pub object: Value,
    /// As it is; null where it is created.
    pub old_object: Value,
    /// The options of the request, as `DeleteOptions`; null where the request has none.
    pub options: Value,
}

/// Why a body is no request of an API server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReview {
    /// The body is no JSON.
    #[error("expected an AdmissionReview: {0}")]
    NoJson(String),
    /// The body is another object.
    #[error(
        "expected an AdmissionReview of admission.k8s.io/v1, found {kind:?} of {api_version:?}"
    )]
    OtherKind {
        /// The kind of the object that was sent.
        kind: String,
        /// Its API version.
        api_version: String,
    },
    /// The review contains no request.
    #[error("expected an AdmissionReview with request.uid")]
    NoRequest,
}

impl Review {
    /// Reads a request.
    ///
    /// # Errors
    /// The body is no request.
    pub fn read(body: &[u8]) -> Result<Self, NoReview> {
        let mut review: Value =
            serde_json::from_slice(body).map_err(|error| NoReview::NoJson(error.to_string()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if review["kind"] != KIND || review["apiVersion"] != API_VERSION {
            return Err(NoReview::OtherKind {
                kind: text(&review["kind"]),
                api_version: text(&review["apiVersion"]),
            });
        }
        let request = &mut review["request"];
        let uid = text(&request["uid"]);
        if uid.is_empty() {
            return Err(NoReview::NoRequest);
        }
        // API servers name no object in the reviews of a collection that is deleted, one review for each object.
        let names = [
            text(&request["name"]),
            text(&request["oldObject"]["metadata"]["name"]),
            text(&request["object"]["metadata"]["name"]),
        ];
        let name = names.into_iter().find(|name| !name.is_empty());
        Ok(Self {
            uid,
            operation: text(&request["operation"]),
            namespace: text(&request["namespace"]),
            name: name.unwrap_or_default(),
            resource: text(&request["resource"]["resource"]),
            subresource: text(&request["subResource"]),
            is_dry_run: request["dryRun"] == true,
            user: text(&request["userInfo"]["username"]),
            object: request["object"].take(),
            old_object: request["oldObject"].take(),
            options: request["options"].take(),
        })
    }
}

/// The response of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Whether the request is allowed.
    pub verdict: Verdict,
    /// Shown to the client of the API server.
    pub warnings: Vec<String>,
}

/// Whether a request is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The request is allowed as it is.
    Allowed,
    /// The request is allowed with this object.
    Changed(Value),
    /// The request is refused.
    Denied(Denial),
    /// The webhook cannot say, for this reason. The HTTP status tells API servers that the call failed, so that the
    /// failure policy of the webhook decides.
    Unknown(String),
}

/// Why a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status, as 400.
    pub code: u16,
    /// Why, for programs; empty where the status says it.
    pub reason: String,
    /// Why, for people; empty where the reason says it.
    pub message: String,
    /// How long the client is to wait before another try, in seconds.
    pub retry_after_seconds: Option<u32>,
}

impl Denial {
    /// With this status, for people.
    pub fn because(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            ..Self::default()
        }
    }

    /// The `Status` that API servers pass on.
    fn to_status(&self) -> Value {
        let mut status = json!({"code": self.code});
        for (field, text) in [("reason", &self.reason), ("message", &self.message)] {
            if !text.is_empty() {
                status[field] = text.as_str().into();
            }
        }
        if let Some(seconds) = self.retry_after_seconds {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        status
    }
}

impl From<Denial> for Response {
    fn from(denial: Denial) -> Self {
        Verdict::Denied(denial).into()
    }
}

impl From<Verdict> for Response {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            warnings: Vec::new(),
        }
    }
}

impl Response {
    /// The response to a request.
    pub(crate) fn to_review(&self, review: &Review) -> Value {
        let mut response = json!({"uid": review.uid, "allowed": true});
        match &self.verdict {
            Verdict::Allowed => {}
            Verdict::Changed(object) => {
                let mut patch = Vec::new();
                difference("", &review.object, object, &mut patch);
                if !patch.is_empty() {
                    let patch = Value::Array(patch).to_string();
                    response["patchType"] = "JSONPatch".into();
                    response["patch"] = BASE64_STANDARD.encode(patch).into();
                }
            }
            Verdict::Denied(denial) => {
                response["allowed"] = false.into();
                response["status"] = denial.to_status();
            }
            // The server sends no review then: in one, there is nothing between yes and no.
            Verdict::Unknown(why) => {
                response["allowed"] = false.into();
                response["status"] = Denial::because(503, why.as_str()).to_status();
            }
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    }
}

/// A JSON patch (RFC 6902) from one value to another. Lists are replaced as a whole.
fn difference(path: &str, from: &Value, to: &Value, patch: &mut Vec<Value>) {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        if from != to {
            patch.push(json!({"op": "replace", "path": path, "value": to}));
        }
        return;
    };
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.push(json!({"op": "remove", "path": pointer(path, key)}));
    }
    for (key, value) in after {
        let path = pointer(path, key);
        match before.get(key) {
            Some(old) => difference(&path, old, value, patch),
            None => patch.push(json!({"op": "add", "path": path, "value": value})),
        }
    }
}

fn pointer(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Whether everything in `ours` is in `found`, which may have more fields: those that an API server fills in. API servers
/// do not store empty lists.
pub(crate) fn covers(found: &Value, ours: &Value) -> bool {
    match (found, ours) {
        (Value::Object(found), Value::Object(ours)) => has_fields(found, ours),
        (Value::Array(found), Value::Array(ours)) => {
            found.len() == ours.len() && found.iter().zip(ours).all(|(a, b)| covers(a, b))
        }
        (found, ours) => found == ours,
    }
}

fn has_fields(found: &Map<String, Value>, ours: &Map<String, Value>) -> bool {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    ours.iter().all(|(key, value)| {
        let same = found.get(key).map(|it| covers(it, value));
        same.unwrap_or_else(|| is_empty(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(object: Value) -> Review {
        let request = json!({
            "uid": "u1", "operation": "CREATE", "namespace": "ns", "resource": {"resource": "pods"},
            "userInfo": {"username": "me"}, "object": object, "oldObject": null, "dryRun": true,
            "options": {"gracePeriodSeconds": 0},
        });
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "request": request});
        Review::read(review.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_question_is_read() {
        let review = review(json!({"a": 1}));
        assert_eq!(review.object, json!({"a": 1}));
        assert_eq!(review.old_object, Value::Null);
        assert_eq!(review.options, json!({"gracePeriodSeconds": 0}));
        assert!(review.is_dry_run);
        let texts = [
            &review.operation,
            &review.namespace,
            &review.name,
            &review.resource,
            &review.user,
        ];
        assert_eq!(texts, ["CREATE", "ns", "", "pods", "me"]);
    }

    #[test]
    fn an_object_of_a_collection_has_its_own_name() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        for (name, old_object, object, expected) in [
            (json!("a"), named("b"), named("c"), "a"),
            (json!(""), named("b"), Value::Null, "b"),
            (Value::Null, named("b"), named("c"), "b"),
            (json!(""), Value::Null, named("c"), "c"),
            (
                json!(""),
                Value::Null,
                json!({"metadata": {"generateName": "d-"}}),
                "",
            ),
            (json!(""), Value::Null, Value::Null, ""),
        ] {
            let request =
                json!({"uid": "u1", "name": name, "oldObject": old_object, "object": object});
            let review = json!({"apiVersion": API_VERSION, "kind": KIND, "request": request});
            let read = Review::read(review.to_string().as_bytes()).unwrap();
            assert_eq!(read.name, expected, "{request}");
            assert_eq!((read.old_object, read.object), (old_object, object));
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for (body, expected) in [
            ("", "expected an AdmissionReview: "),
            ("{}", "found \"\" of \"\""),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
                "v1beta1",
            ),
            (
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
                "request.uid",
            ),
        ] {
            let error = Review::read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_change_is_the_shortest_patch_that_does_not_look_into_lists() {
        let before = json!({"metadata": {"labels": {"a/b": "1", "c~": "2"}}, "spec": {"list": [1, 2], "same": {"x": 1}}});
        let after = json!({"metadata": {"labels": {"a/b": "3"}}, "spec": {"list": [1], "same": {"x": 1}, "new": {}}});
        let answer = Response::from(Verdict::Changed(after)).to_review(&review(before.clone()));
        let response = &answer["response"];
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("u1"), &json!(true))
        );
        assert_eq!(response["patchType"], "JSONPatch");
        let patch = BASE64_STANDARD
            .decode(response["patch"].as_str().unwrap())
            .unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(
            patch,
            json!([
                {"op": "remove", "path": "/metadata/labels/c~0"},
                {"op": "replace", "path": "/metadata/labels/a~1b", "value": "3"},
                {"op": "replace", "path": "/spec/list", "value": [1]},
                {"op": "add", "path": "/spec/new", "value": {}},
            ])
        );
        let same = Response::from(Verdict::Changed(before.clone())).to_review(&review(before));
        assert_eq!(same["response"], json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn a_refusal_has_a_code_and_a_reason() {
        let response = Response {
            verdict: Verdict::Denied(Denial::because(400, "no")),
            warnings: vec!["w".to_owned()],
        };
        assert_eq!(
            response.to_review(&review(json!({})))["response"],
            json!({"uid": "u1", "allowed": false, "status": {"code": 400, "message": "no"}, "warnings": ["w"]})
        );
        let later = Denial {
            code: 429,
            reason: "TooManyRequests".to_owned(),
            message: String::new(),
            retry_after_seconds: Some(5),
        };
        assert_eq!(
            Response::from(later).to_review(&review(json!({})))["response"]["status"],
            json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 5}})
        );
    }

    #[test]
    fn fields_that_the_api_server_fills_in_are_no_difference() {
        let ours = json!([{"a": 1, "b": {"c": [2]}}]);
        assert!(covers(
            &json!([{"a": 1, "b": {"c": [2], "d": 3}, "e": 4}]),
            &ours
        ));
        for other in [
            json!([]),
            json!([{"a": 1}]),
            json!([{"a": 1, "b": {"c": [2, 2]}}]),
            json!(null),
        ] {
            assert!(!covers(&other, &ours), "{other}");
        }
    }
}
