//! Reviews of identity and permissions. Every user may do everything.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    auth::UserInfo,
    error::{ApiError, Result},
    http::{
        body::{self, ApiBody},
        route::ResourcePath,
    },
};

/// A question that is posted like an object and answered at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) is_namespaced: bool,
    answer: fn(&UserInfo) -> Value,
}

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Every question.
pub(crate) const ALL: &[Review] = &[
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        is_namespaced: false,
        answer: |user| json!({"userInfo": user.to_json()}),
    },
    Review {
        group: AUTHORIZATION,
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        is_namespaced: true,
        answer: allowed,
    },
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        is_namespaced: false,
        answer: allowed,
    },
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        is_namespaced: false,
        answer: |_| {
            json!({
                "incomplete": false,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            })
        },
    },
    Review {
        group: AUTHORIZATION,
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        is_namespaced: false,
        answer: allowed,
    },
];

fn allowed(_: &UserInfo) -> Value {
    json!({"allowed": true})
}

/// The question that a path is about.
pub(crate) fn find(path: &ResourcePath) -> Option<&'static Review> {
    let is_it = |review: &&Review| {
        path.group == review.group
            && path.version == "v1"
            && path.plural == review.plural
            && path.namespace.is_some() == review.is_namespaced
            && path.name.is_none()
    };
    ALL.iter().find(is_it)
}

/// Fills in the status of a review that a user asks for.
pub(crate) fn answer(
    review: &Review,
    user: &UserInfo,
    mut asked: Value,
) -> Result<Response<ApiBody>> {
    let Some(members) = asked.as_object_mut() else {
        let message = "the object provided is unrecognized: expected a JSON object";
        return Err(ApiError::bad_request(message));
    };
    members.insert("kind".into(), review.kind.into());
    members.insert("apiVersion".into(), format!("{}/v1", review.group).into());
    members.insert("status".into(), (review.answer)(user));
    Ok(body::json(StatusCode::CREATED, &asked))
}
