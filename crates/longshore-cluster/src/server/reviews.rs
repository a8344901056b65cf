//! Reviews of identity and permissions.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    Server,
    auth::{ISSUER, TokenError, UserInfo},
    authz::reviews::{self as access, AccessReview},
    error::{ApiError, Result},
    http::{
        accept::Form,
        body::{self, ApiBody},
        render::metadata_of,
        route::ResourcePath,
    },
    meta,
};

/// A question that is posted like an object and answered at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) is_namespaced: bool,
    answer: Answer,
}

/// Where the answer comes from.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Who users are determines the status.
    Identity(fn(&Asked<'_>) -> Result<Value>),
    /// What users may do determines it.
    Access(AccessReview),
}

/// A review as it was posted.
pub(crate) struct Asked<'a> {
    pub(crate) server: &'a Server,
    /// Who asks.
    pub(crate) user: &'a UserInfo,
    /// The whole object.
    pub(crate) review: &'a Value,
}

const AUTHENTICATION: &str = "authentication.k8s.io";

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Every question.
pub(crate) const ALL: &[Review] = &[
    Review {
        group: AUTHENTICATION,
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        is_namespaced: false,
        answer: Answer::Identity(|asked| Ok(json!({"userInfo": asked.user.to_json()}))),
    },
    Review {
        group: AUTHENTICATION,
        plural: "tokenreviews",
        kind: "TokenReview",
        is_namespaced: false,
        answer: Answer::Identity(review_token),
    },
    Review {
        group: AUTHORIZATION,
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        is_namespaced: true,
        answer: Answer::Access(AccessReview::Local),
    },
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        is_namespaced: false,
        answer: Answer::Access(AccessReview::Own),
    },
    Review {
        group: AUTHORIZATION,
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        is_namespaced: false,
        answer: Answer::Access(AccessReview::OwnRules),
    },
    Review {
        group: AUTHORIZATION,
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        is_namespaced: false,
        answer: Answer::Access(AccessReview::Any),
    },
];

/// Whose token it is, if it is a good one for the audiences of the review.
fn review_token(asked: &Asked<'_>) -> Result<Value> {
    let token = meta::text(asked.review, "/spec/token");
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(ApiError::bad_request(message));
    }
    let listed = asked.review.pointer("/spec/audiences");
    let listed = listed.and_then(Value::as_array).into_iter().flatten();
    let mut audiences: Vec<String> = listed
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let server = asked.server;
    Ok(match server.auth.accept(token, &audiences, server.now()) {
        Ok(accepted) => json!({
            "authenticated": true,
            "user": accepted.user.to_json(),
            "audiences": accepted.audiences,
        }),
        Err(why) => json!({"user": {}, "error": explained(&why)}),
    })
}

/// Upstream asks two authenticators, of which the first knows no token of a service account.
fn explained(why: &TokenError) -> String {
    let first = TokenError::Unrecognised;
    if *why == first {
        first.to_string()
    } else {
        format!("[{first}, {why}]")
    }
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

/// Fills in the status of a review that a user asks for. `namespace` is that of the path.
pub(crate) fn answer(
    review: &Review,
    server: &Server,
    user: &UserInfo,
    namespace: Option<&str>,
    mut asked: Value,
    form: Form,
) -> Result<Response<ApiBody>> {
    let Some(members) = asked.as_object_mut() else {
        let message = "the object provided is unrecognized: expected a JSON object";
        return Err(ApiError::bad_request(message));
    };
    members.insert("kind".into(), review.kind.into());
    members.insert("apiVersion".into(), format!("{}/v1", review.group).into());
    match review.answer {
        Answer::Identity(status) => {
            let status = status(&Asked {
                server,
                user,
                review: &asked,
            })?;
            asked["status"] = status;
        }
        Answer::Access(question) => {
            access::answer(&server.authorizer, question, user, namespace, &mut asked)?;
        }
    }
    let shown = match form {
        Form::Metadata => metadata_of(&asked),
        Form::Whole | Form::Table => asked,
    };
    Ok(body::json(StatusCode::CREATED, &shown))
}
