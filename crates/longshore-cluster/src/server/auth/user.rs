//! A user, as authentication found it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The user of the kubeconfig, and of all requests from this process.
const ADMIN: &str = "longshore-admin";
/// The group whose members may do everything.
pub(crate) const GROUP_MASTERS: &str = "system:masters";
/// The group of all users that have proved who they are.
pub(crate) const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// The group of all others.
pub(crate) const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all service accounts; with a colon and a namespace behind it, of those of the namespace.
pub(crate) const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The key of `extra` that says with which credentials a user came.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The user of a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// The sender of a request: what decisions about permissions, reviews and webhooks know about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserInfo {
    /// Unique among the users of a moment.
    pub(crate) username: String,
    /// Unique for all time; empty where the credentials name none.
    pub(crate) uid: String,
    /// The groups, `system:authenticated` or `system:unauthenticated` among them.
    pub(crate) groups: Vec<String>,
    /// What the credentials say beyond that, by its key.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The administrator, who may do everything.
    pub(crate) fn admin() -> UserInfo {
        UserInfo {
            username: ADMIN.to_owned(),
            groups: vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        }
    }

    /// The user of requests without credentials.
    pub(crate) fn anonymous() -> UserInfo {
        UserInfo {
            username: ANONYMOUS.to_owned(),
            groups: vec![GROUP_UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        }
    }

    /// The user whom a client certificate names; `digest` is that of the certificate, in hexadecimal.
    pub(crate) fn of_certificate<'a>(
        name: &str,
        groups: impl Iterator<Item = &'a str>,
        digest: &str,
    ) -> UserInfo {
        let authenticated = std::iter::once(GROUP_AUTHENTICATED);
        UserInfo {
            username: name.to_owned(),
            groups: groups.chain(authenticated).map(str::to_owned).collect(),
            extra: BTreeMap::from([(
                CREDENTIAL_ID.to_owned(),
                vec![format!("X509SHA256={digest}")],
            )]),
            ..UserInfo::default()
        }
    }

    /// A service account; its uid and what its token says beyond that are not there yet.
    pub(crate) fn service_account(namespace: &str, name: &str) -> UserInfo {
        UserInfo {
            username: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                GROUP_SERVICE_ACCOUNTS.to_owned(),
                format!("{GROUP_SERVICE_ACCOUNTS}:{namespace}"),
                GROUP_AUTHENTICATED.to_owned(),
            ],
            ..UserInfo::default()
        }
    }

    /// `UserInfo` of `authentication.k8s.io/v1`. Empty parts are left out.
    pub(crate) fn to_json(&self) -> Value {
        let mut user = json!({"username": self.username});
        if !self.uid.is_empty() {
            user["uid"] = self.uid.as_str().into();
        }
        if !self.groups.is_empty() {
            user["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            user["extra"] = json!(self.extra);
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_about_a_user_is_shown() {
        let admin = json!({
            "username": "longshore-admin", "groups": ["system:masters", "system:authenticated"],
        });
        assert_eq!(UserInfo::admin().to_json(), admin);
        let pod = UserInfo {
            uid: "u".to_owned(),
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
            ..UserInfo::anonymous()
        };
        let expected = json!({
            "username": "system:anonymous", "uid": "u", "groups": ["system:unauthenticated"],
            "extra": {"k": ["v"]},
        });
        assert_eq!(pod.to_json(), expected);
    }
}
