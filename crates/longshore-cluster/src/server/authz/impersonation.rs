//! Requests in the name of another user: `kubectl --as`.

use std::sync::Arc;

use http::{HeaderMap, Uri};
use longshore_k8s::names;

use super::{Attributes, Authorizer, ResourceTarget, policy::account_name};
use crate::server::{
    auth::{GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, UserInfo},
    error::ApiError,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The group of the identities that have no kind of their own in the core group.
const IDENTITY_GROUP: &str = "authentication.k8s.io";

/// A request that gets no further.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    Status(ApiError),
    /// An internal error, in plain text.
    Text(String),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Refusal::Status(error)
    }
}

/// One part of another identity; each needs a permission of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    ServiceAccount { namespace: String, name: String },
    User(String),
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

impl Part {
    /// What the sender of the request needs.
    fn permission(&self) -> Attributes {
        let mut target = ResourceTarget::default();
        let resource = match self {
            Part::ServiceAccount { namespace, name } => {
                target.namespace.clone_from(namespace);
                target.name.clone_from(name);
                "serviceaccounts"
            }
            Part::User(name) => {
                target.name.clone_from(name);
                "users"
            }
            Part::Group(name) => {
                target.name.clone_from(name);
                "groups"
            }
            Part::Extra { key, value } => {
                target.group = IDENTITY_GROUP.to_owned();
                target.subresource.clone_from(key);
                target.name.clone_from(value);
                "userextras"
            }
            Part::Uid(uid) => {
                target.group = IDENTITY_GROUP.to_owned();
                target.name.clone_from(uid);
                "uids"
            }
        };
        target.resource = resource.to_owned();
        Attributes::about("impersonate", target)
    }

    /// The part as upstream's error prints it: an object reference of seven members.
    fn describe(&self) -> String {
        let version = format!("{IDENTITY_GROUP}/v1");
        let (kind, namespace, name, version, path) = match self {
            Part::ServiceAccount { namespace, name } => {
                ("ServiceAccount", &**namespace, name, "", "")
            }
            Part::User(name) => ("User", "", name, "", ""),
            Part::Group(name) => ("Group", "", name, "", ""),
            Part::Extra { key, value } => ("UserExtra", "", value, &*version, &**key),
            Part::Uid(uid) => ("UID", "", uid, &*version, ""),
        };
        format!("{{{kind} {namespace} {name}  {version}  {path}}}")
    }
}

/// The user in whose name a request acts: the sender itself, or another user whom it may impersonate.
pub(crate) fn acting_user(
    authorizer: &Authorizer,
    sender: Arc<UserInfo>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Arc<UserInfo>, Refusal> {
    let mut names = headers.keys();
    if !names.any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(sender);
    }
    if !authorizer.is_enforced() {
        // Whatever the other user may not do, this server would carry it out.
        return Err(ApiError::no_impersonation().into());
    }
    let parts = parts(headers);
    if parts.is_empty() {
        return Ok(sender);
    }
    let has_user = |part: &Part| matches!(part, Part::ServiceAccount { .. } | Part::User(_));
    if !parts.iter().any(has_user) {
        return Err(Refusal::Text(without_user(&parts, uri)));
    }
    for part in &parts {
        authorizer.require(&sender, &part.permission())?;
    }
    Ok(Arc::new(user_of(parts)))
}

fn without_user(parts: &[Part], uri: &Uri) -> String {
    let shown: Vec<String> = parts.iter().map(Part::describe).collect();
    let asked = uri.path_and_query().map_or("/", |asked| asked.as_str());
    let text = format!(
        "Internal Server Error: {asked:?}: requested [{}] without impersonating a user\n",
        shown.join(" ")
    );
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn parts(headers: &HeaderMap) -> Vec<Part> {
    let values = |name: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        texts.collect::<Vec<String>>()
    };
    let first = |name: &str| values(name).into_iter().next().filter(|it| !it.is_empty());
    let mut parts = Vec::new();
    parts.extend(first(USER).map(|name| account(&name).unwrap_or(Part::User(name))));
    parts.extend(values(GROUP).into_iter().map(Part::Group));
    for header in headers.keys() {
        let Some(encoded) = header.as_str().strip_prefix(EXTRA) else {
            continue;
        };
        let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8();
        let key = decoded.map_or_else(|_| encoded.to_owned(), |key| key.into_owned());
        let extras = values(header.as_str()).into_iter();
        parts.extend(extras.map(|value| Part::Extra {
            key: key.clone(),
            value,
        }));
    }
    parts.extend(first(UID).map(Part::Uid));
    parts
}

/// The service account that a user name is about.
fn account(username: &str) -> Option<Part> {
    let rest = username.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = rest.split_once(':')?;
    let is_valid = names::label_violations(namespace).is_empty()
        && names::subdomain_violations(name).is_empty();
    is_valid.then(|| Part::ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn user_of(parts: Vec<Part>) -> UserInfo {
    let mut user = UserInfo::default();
    let mut groups_of_account = Vec::new();
    for part in parts {
        match part {
            Part::ServiceAccount { namespace, name } => {
                user.username = account_name(&namespace, &name);
                groups_of_account = vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
            Part::User(name) => user.username = name,
            Part::Group(name) => user.groups.push(name),
            Part::Extra { key, value } => user.extra.entry(key).or_default().push(value),
            Part::Uid(uid) => user.uid = uid,
        }
    }
    if user.groups.is_empty() {
        user.groups = groups_of_account;
    }
    let has = |group: &str| user.groups.iter().any(|it| it == group);
    let added = if user.username == UserInfo::anonymous().username {
        (!has(GROUP_UNAUTHENTICATED)).then_some(GROUP_UNAUTHENTICATED)
    } else {
        let is_stated = has(GROUP_AUTHENTICATED) || has(GROUP_UNAUTHENTICATED);
        (!is_stated).then_some(GROUP_AUTHENTICATED)
    };
    user.groups.extend(added.map(str::to_owned));
    user
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn another_identity_is_what_the_headers_say() {
        let account = "system:serviceaccount:a:bot";
        for (pairs, expected) in [
            (
                vec![(USER, "jane")],
                json!({"username": "jane", "groups": ["system:authenticated"]}),
            ),
            (
                vec![(USER, "jane"), (GROUP, "a"), (GROUP, "b"), (UID, "u")],
                json!({"username": "jane", "uid": "u", "groups": ["a", "b", "system:authenticated"]}),
            ),
            (
                vec![(USER, "jane"), (GROUP, "system:unauthenticated")],
                json!({"username": "jane", "groups": ["system:unauthenticated"]}),
            ),
            (
                vec![(USER, account)],
                json!({
                    "username": account,
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
                }),
            ),
            (
                vec![(USER, account), (GROUP, "g")],
                json!({"username": account, "groups": ["g", "system:authenticated"]}),
            ),
            (
                vec![(USER, "system:anonymous")],
                json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]}),
            ),
            (
                vec![
                    (USER, "j"),
                    ("impersonate-extra-a%2fb", "1"),
                    ("impersonate-extra-a%2fb", "2"),
                ],
                json!({"username": "j", "groups": ["system:authenticated"], "extra": {"a/b": ["1", "2"]}}),
            ),
        ] {
            assert_eq!(user_of(parts(&headers(&pairs))).to_json(), expected);
        }
    }

    #[test]
    fn each_part_needs_a_permission() {
        for (pairs, expected) in [
            (vec![(USER, "jane")], "impersonate /users /jane"),
            (
                vec![(USER, "system:serviceaccount:a:b")],
                "impersonate /serviceaccounts a/b",
            ),
            (
                vec![(USER, "system:serviceaccount:A:b")],
                "impersonate /users /system:serviceaccount:A:b",
            ),
            (vec![(GROUP, "g")], "impersonate /groups /g"),
            (
                vec![(UID, "u")],
                "impersonate authentication.k8s.io/uids /u",
            ),
            (
                vec![("impersonate-extra-scopes", "v")],
                "impersonate authentication.k8s.io/userextras/scopes /v",
            ),
        ] {
            let parts = parts(&headers(&pairs));
            let asked: Vec<Attributes> = parts.iter().map(Part::permission).collect();
            assert_eq!(asked, [Attributes::for_test(expected)], "{pairs:?}");
        }
    }

    #[test]
    fn an_identity_without_a_user_is_refused_in_the_words_of_upstream() {
        let parts = parts(&headers(&[(GROUP, "g"), (UID, "u")]));
        let text = without_user(&parts, &"/api/v1/pods?limit=1&watch=1".parse().unwrap());
        let expected = "Internal Server Error: \"/api/v1/pods?limit=1&amp;watch=1\": requested \
                        [{Group  g    } {UID  u  authentication.k8s.io/v1  }] without impersonating a user\n";
        assert_eq!(text, expected);
    }
}
