//! Tokens of service accounts: their claims, and their form (JSON Web Token). Pure.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    key::SigningKey,
    user::{CREDENTIAL_ID, UserInfo},
};
use crate::server::meta;

/// Who issues tokens, and whom they are for when a request names no audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// How far the clocks of two machines may be apart, in seconds.
const LEEWAY: i64 = 60;

const ALGORITHM: &str = "ES256";

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Whom it is for.
    pub(crate) aud: Vec<String>,
    /// When it ends, in seconds since 1970, as all times here.
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    /// Its own id.
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// The objects that a token is about and depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Named>,
    pub(crate) serviceaccount: Named,
    /// After this time the use of the token is remarkable: its program does not read the renewed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// One of these objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Empty for a node that did not exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

impl Named {
    /// The name and the uid of an object.
    pub(crate) fn of(object: &Value) -> Named {
        Named {
            name: meta::name(object).to_owned(),
            uid: meta::text(object, "/metadata/uid").to_owned(),
        }
    }
}

/// The objects that a token names, as they are now.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) account: Option<Value>,
    pub(super) pod: Option<Value>,
    pub(super) secret: Option<Value>,
    pub(super) node: Option<Value>,
}

/// Why a token is not accepted, in upstream's words: TokenReviews show them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("invalid bearer token")]
    Unrecognised,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    #[error("token audiences {} is invalid for the target audiences {}", quoted(.found), quoted(.wanted))]
    Audience {
        found: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotValidYet,
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("service account {0} has been deleted")]
    DeletedAccount(String),
    #[error("service account UID ({found}) does not match claim ({claim})")]
    OtherAccount { found: String, claim: String },
    /// The pod, secret or node is gone or going.
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("{what} UID ({found}) does not match service account {what} ref claim ({claim})")]
    OtherObject {
        what: &'static str,
        found: String,
        claim: String,
    },
}

/// A list as Go writes one of quoted words.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}

/// A token, taken apart.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The id of the key, if the token names one.
    pub(super) key: String,
    pub(super) claims: Claims,
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// Signs claims.
pub(super) fn encode(
    key: &SigningKey,
    claims: &Claims,
) -> Result<String, aws_lc_rs::error::Unspecified> {
    let header = json!({"alg": ALGORITHM, "kid": key.id});
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&json!(claims)));
    let signature = key.sign(signed.as_bytes())?;
    Ok(format!(
        "{signed}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(signature)
    ))
}

/// Takes a token of this issuer apart; `None` for anything else. Nothing is checked yet.
pub(super) fn parse(token: &str) -> Option<Parts<'_>> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, payload) = signed.split_once('.')?;
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
    let claims: Claims = serde_json::from_slice(&decode(payload)?).ok()?;
    (header.alg == ALGORITHM && claims.iss == ISSUER).then_some(Parts {
        key: header.kid,
        claims,
        signed,
        signature: decode(signature)?,
    })
}

/// The audiences of a token that are among the wanted ones.
pub(super) fn shared_audiences(
    claims: &Claims,
    wanted: &[String],
) -> Result<Vec<String>, TokenError> {
    let found = claims.aud.iter().filter(|it| wanted.contains(it));
    let shared: Vec<String> = found.cloned().collect();
    if shared.is_empty() {
        return Err(TokenError::Audience {
            found: claims.aud.clone(),
            wanted: wanted.to_vec(),
        });
    }
    Ok(shared)
}

/// Judges claims whose signature is good. Returns the user whom they stand for.
pub(super) fn judge(
    claims: &Claims,
    present: &Present,
    now: Timestamp,
) -> Result<UserInfo, TokenError> {
    let seconds = now.as_second();
    if seconds > claims.exp.saturating_add(LEEWAY) {
        return Err(TokenError::Expired);
    }
    if seconds < claims.nbf.saturating_sub(LEEWAY) {
        return Err(TokenError::NotValidYet);
    }
    let about = &claims.kubernetes;
    judge_account(about, present.account.as_ref(), now)?;
    if let Some(secret) = &about.secret {
        judge_bound("secret", secret, present.secret.as_ref(), now)?;
    }
    match (&about.pod, &about.node) {
        // The node of a pod is only told: the pod is what counts.
        (Some(pod), _) => judge_bound("pod", pod, present.pod.as_ref(), now)?,
        (None, Some(node)) => judge_bound("node", node, present.node.as_ref(), now)?,
        (None, None) => {}
    }
    Ok(user(claims))
}

fn judge_account(
    about: &Kubernetes,
    account: Option<&Value>,
    now: Timestamp,
) -> Result<(), TokenError> {
    let claim = &about.serviceaccount;
    let Some(account) = account else {
        return Err(TokenError::NoAccount(claim.name.clone()));
    };
    if is_long_gone(account, now) {
        let name = format!("{}/{}", about.namespace, claim.name);
        return Err(TokenError::DeletedAccount(name));
    }
    let found = meta::text(account, "/metadata/uid");
    if found == claim.uid {
        return Ok(());
    }
    Err(TokenError::OtherAccount {
        found: found.to_owned(),
        claim: claim.uid.clone(),
    })
}

fn judge_bound(
    what: &'static str,
    claim: &Named,
    object: Option<&Value>,
    now: Timestamp,
) -> Result<(), TokenError> {
    let object = object.filter(|object| !is_long_gone(object, now));
    let object = object.ok_or(TokenError::Invalidated)?;
    let found = meta::text(object, "/metadata/uid");
    if found == claim.uid {
        return Ok(());
    }
    Err(TokenError::OtherObject {
        what,
        found: found.to_owned(),
        claim: claim.uid.clone(),
    })
}

/// Whether the time at which the object was to be gone has passed for a while.
fn is_long_gone(object: &Value, now: Timestamp) -> bool {
    let at = meta::text(object, "/metadata/deletionTimestamp").parse::<Timestamp>();
    at.is_ok_and(|at| at.as_second().saturating_add(LEEWAY) < now.as_second())
}

fn user(claims: &Claims) -> UserInfo {
    let about = &claims.kubernetes;
    let mut user = UserInfo::service_account(&about.namespace, &about.serviceaccount.name);
    user.uid = about.serviceaccount.uid.clone();
    let id = vec![format!("JTI={}", claims.jti)];
    user.extra.insert(CREDENTIAL_ID.to_owned(), id);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            let key = format!("authentication.kubernetes.io/{key}");
            user.extra.insert(key, vec![value.to_owned()]);
        }
    };
    if let Some(pod) = &about.pod {
        extra("pod-name", &pod.name);
        extra("pod-uid", &pod.uid);
    }
    if let Some(node) = &about.node {
        extra("node-name", &node.name);
        extra("node-uid", &node.uid);
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: NOW + 600,
            iat: NOW,
            iss: ISSUER.to_owned(),
            jti: "j".to_owned(),
            kubernetes: Kubernetes {
                namespace: "n".to_owned(),
                serviceaccount: named("a", "a-uid"),
                pod: Some(named("p", "p-uid")),
                node: Some(named("host", "h-uid")),
                ..Kubernetes::default()
            },
            nbf: NOW,
            sub: "system:serviceaccount:n:a".to_owned(),
        }
    }

    fn named(name: &str, uid: &str) -> Named {
        Named {
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    fn object(uid: &str, deleted_at: Option<i64>) -> Option<Value> {
        let mut object = json!({"metadata": {"name": "x", "uid": uid}});
        if let Some(at) = deleted_at {
            let at = Timestamp::from_second(at).unwrap();
            object["metadata"]["deletionTimestamp"] = meta::seconds(at).into();
        }
        Some(object)
    }

    fn present() -> Present {
        Present {
            account: object("a-uid", None),
            pod: object("p-uid", None),
            ..Present::default()
        }
    }

    fn judged(claims: &Claims, present: &Present, at: i64) -> String {
        let outcome = judge(claims, present, Timestamp::from_second(at).unwrap());
        outcome.map_or_else(|why| why.to_string(), |user| user.username)
    }

    #[test]
    fn a_token_is_good_as_long_as_it_lives_and_its_objects_do() {
        let user = "system:serviceaccount:n:a";
        let expired = "service account token has expired";
        let invalidated = "service account token has been invalidated";
        let gone = |account, pod| Present {
            account,
            pod,
            ..Present::default()
        };
        let account = || object("a-uid", None);
        let pod = || object("p-uid", None);
        for (present, at, expected) in [
            (present(), NOW, user),
            (present(), NOW - 60, user),
            (
                present(),
                NOW - 61,
                "service account token is not valid yet",
            ),
            (present(), NOW + 660, user),
            (present(), NOW + 661, expired),
            (gone(None, pod()), NOW, "serviceaccounts \"a\" not found"),
            (
                gone(object("other", None), pod()),
                NOW,
                "service account UID (other) does not match claim (a-uid)",
            ),
            (
                gone(object("a-uid", Some(NOW - 61)), pod()),
                NOW,
                "service account n/a has been deleted",
            ),
            (gone(account(), None), NOW, invalidated),
            (
                gone(account(), object("other", None)),
                NOW,
                "pod UID (other) does not match service account pod ref claim (p-uid)",
            ),
            // A pod that is being deleted works on, until it should have been gone for a minute.
            (gone(account(), object("p-uid", Some(NOW - 60))), NOW, user),
            (
                gone(account(), object("p-uid", Some(NOW - 61))),
                NOW,
                invalidated,
            ),
        ] {
            assert_eq!(
                judged(&claims(), &present, at),
                expected,
                "{present:?} {at}"
            );
        }
    }

    #[test]
    fn a_token_may_depend_on_a_secret_or_on_a_node() {
        let mut of_secret = claims();
        of_secret.kubernetes.pod = None;
        of_secret.kubernetes.node = None;
        of_secret.kubernetes.secret = Some(named("s", "s-uid"));
        let mut of_node = claims();
        of_node.kubernetes.pod = None;
        let invalidated = "service account token has been invalidated";
        let user = "system:serviceaccount:n:a";
        assert_eq!(judged(&of_secret, &present(), NOW), invalidated);
        assert_eq!(judged(&of_node, &present(), NOW), invalidated);
        let with = Present {
            secret: object("s-uid", None),
            node: object("h-uid", None),
            ..present()
        };
        assert_eq!(judged(&of_secret, &with, NOW), user);
        assert_eq!(judged(&of_node, &with, NOW), user);
    }

    #[test]
    fn the_user_of_a_token_has_groups_and_knows_its_pod() {
        let now = Timestamp::from_second(NOW).unwrap();
        let user = judge(&claims(), &present(), now).unwrap();
        let expected = json!({
            "username": "system:serviceaccount:n:a",
            "uid": "a-uid",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/credential-id": ["JTI=j"],
                "authentication.kubernetes.io/node-name": ["host"],
                "authentication.kubernetes.io/node-uid": ["h-uid"],
                "authentication.kubernetes.io/pod-name": ["p"],
                "authentication.kubernetes.io/pod-uid": ["p-uid"],
            },
        });
        assert_eq!(user.to_json(), expected);
    }

    #[test]
    fn audiences_are_shared_or_the_token_is_for_others() {
        let wanted = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut claims = claims();
        claims.aud = wanted(&["a", "b", "c"]);
        let shared = shared_audiences(&claims, &wanted(&["c", "x", "a"]));
        assert_eq!(shared, Ok(wanted(&["a", "c"])));
        let refused = shared_audiences(&claims, &wanted(&["x"])).unwrap_err();
        let expected = r#"token audiences ["a" "b" "c"] is invalid for the target audiences ["x"]"#;
        assert_eq!(refused.to_string(), expected);
    }

    #[test]
    fn a_token_is_read_back_as_it_was_signed_and_garbage_is_not_read() {
        let key = SigningKey::generate().unwrap();
        let token = encode(&key, &claims()).unwrap();
        let parts = parse(&token).unwrap();
        assert_eq!(parts.claims, claims());
        assert_eq!(parts.key, key.id);
        assert!(key.has_signed(parts.signed.as_bytes(), &parts.signature));
        let mut foreign = claims();
        foreign.iss = "https://elsewhere".to_owned();
        let foreign = encode(&key, &foreign).unwrap();
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let payload = token.split('.').nth(1).unwrap();
        for garbage in [
            "",
            "..",
            "a.b.c",
            "secret",
            &foreign,
            &format!("{none}.{payload}."),
        ] {
            assert!(parse(garbage).is_none(), "{garbage}");
        }
    }
}
