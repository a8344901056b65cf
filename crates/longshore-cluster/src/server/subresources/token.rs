//! `serviceaccounts/token`: a token for a service account, which may depend on a pod, a secret or a node.

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest};
use serde_json::{Value, json};

use crate::server::{
    admission::{Operation, Question},
    auth::{Claims, ISSUER, Kubernetes, Named},
    error::{ApiError, Cause, Result},
    http::body::{self, ApiBody},
    hub::Key,
    meta,
    registry::Served,
    verbs::{Call, create::place},
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// The life of a token that asks for none, in seconds.
const DEFAULT_LIFE: i64 = 3600;
const SHORTEST_LIFE: i64 = 600;
const LONGEST_LIFE: i64 = 1 << 32;
/// The life that the volumes of pods ask for. Upstream lets such tokens work for a year, so that programs which read their
/// token only once go on; after this time their use is remarkable.
const LIFE_IN_VOLUMES: i64 = 3607;
const EXTENDED_LIFE: i64 = 365 * 24 * 3600;

/// Issues the token of a request.
pub(crate) async fn request(call: &Call, mut asked: Value) -> Result<Response<ApiBody>> {
    check_type(&asked)?;
    place(call, &mut asked)?;
    let question = Question::new(call, Operation::Create, call.query.is_dry_run()?);
    let question = question.of_kind(GROUP, "v1", KIND);
    let mut asked = question.mutate(asked, None).await?;
    // Clients in Go send an empty one.
    meta::members(&mut asked).remove("status");
    let mut request: TokenRequest =
        serde_json::from_value(asked).map_err(ApiError::bad_request_from)?;
    check_name(call, &request)?;
    let account = call.stored()?.value();
    let now = call.server.now();
    complete(call, &mut request);
    let causes = violations(&request);
    if !causes.is_empty() {
        return Err(ApiError::invalid(GROUP, KIND, "", causes));
    }
    let mut answer = json!(request);
    answer["metadata"]["creationTimestamp"] = meta::seconds(now).into();
    question.validate(Some(&answer), None).await?;
    let mut about = Kubernetes {
        namespace: call.namespace.clone().unwrap_or_default(),
        serviceaccount: Named::of(&account),
        ..Kubernetes::default()
    };
    if let Some(reference) = &request.spec.bound_object_ref {
        bind(call, reference, &mut about)?;
    }
    let token = call
        .server
        .auth
        .issue(&claims(call, &request, about, now))?;
    let life = SignedDuration::from_secs(life(&request));
    let end = now.checked_add(life).unwrap_or(Timestamp::MAX);
    answer["status"] = json!({"token": token, "expirationTimestamp": meta::seconds(end)});
    Ok(body::json(StatusCode::CREATED, &answer))
}

fn check_type(asked: &Value) -> Result<()> {
    let (kind, version) = (meta::text(asked, "/kind"), meta::text(asked, "/apiVersion"));
    if matches!(kind, "" | KIND) {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {KIND}"
    )))
}

/// A request that names its account names the one of the path.
fn check_name(call: &Call, request: &TokenRequest) -> Result<()> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() || name == call.name {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    let cause = Cause::invalid("metadata.name", &json!(name), why);
    Err(ApiError::invalid(GROUP, KIND, &call.name, vec![cause]))
}

/// Fills in what the request leaves open.
fn complete(call: &Call, request: &mut TokenRequest) {
    let metadata = &mut request.metadata;
    metadata.name = Some(call.name.clone());
    let spec = &mut request.spec;
    spec.expiration_seconds.get_or_insert(DEFAULT_LIFE);
    if spec.audiences.is_empty() {
        spec.audiences.push(ISSUER.to_owned());
    }
}

fn life(request: &TokenRequest) -> i64 {
    request.spec.expiration_seconds.unwrap_or(DEFAULT_LIFE)
}

fn violations(request: &TokenRequest) -> Vec<Cause> {
    let life = life(request);
    let why = if life < SHORTEST_LIFE {
        "may not specify a duration less than 10 minutes"
    } else if life > LONGEST_LIFE {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Vec::new();
    };
    vec![Cause::invalid("spec.expirationSeconds", &life.into(), why)]
}

/// Binds the token to the object of a reference.
fn bind(call: &Call, reference: &BoundObjectReference, about: &mut Kubernetes) -> Result<()> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (api_version, kind) = (text(&reference.api_version), text(&reference.kind));
    let (name, uid) = (text(&reference.name), text(&reference.uid));
    let namespace = call.namespace.as_deref();
    let (group, version) = api_version
        .split_once('/')
        .unwrap_or(("", api_version.as_str()));
    let named = match (group, kind.as_str()) {
        ("", "Pod") => {
            let pod = find(call, "pods", namespace, &name)?;
            about.node = node_of(call, &pod);
            about.pod.insert(checked_pod(call, &pod)?)
        }
        ("", "Secret") => {
            let secret = find(call, "secrets", namespace, &name)?;
            about.secret.insert(Named::of(&secret))
        }
        ("", "Node") => {
            let node = find(call, "nodes", None, &name)?;
            about.node.insert(Named::of(&node))
        }
        _ => {
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    if uid.is_empty() || uid == named.uid {
        return Ok(());
    }
    Err(ApiError::other_bound_object(&kind, &name, &uid))
}

/// A pod has the tokens of its own account only.
fn checked_pod(call: &Call, pod: &Value) -> Result<Named> {
    if meta::text(pod, "/spec/serviceAccountName") == call.name {
        return Ok(Named::of(pod));
    }
    Err(ApiError::bad_request(format!(
        "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
        call.name
    )))
}

/// The node of a pod; without uid when there is no such node.
fn node_of(call: &Call, pod: &Value) -> Option<Named> {
    let name = meta::text(pod, "/spec/nodeName");
    if name.is_empty() {
        return None;
    }
    let node = find(call, "nodes", None, name);
    Some(node.map_or_else(
        |_| Named {
            name: name.to_owned(),
            uid: String::new(),
        },
        |node| Named::of(&node),
    ))
}

/// An object of the core group.
fn find(call: &Call, plural: &str, namespace: Option<&str>, name: &str) -> Result<Value> {
    let Some(Served {
        resource,
        collection,
    }) = call.server.registry.find("", "v1", plural)
    else {
        return Err(ApiError::no_such_resource());
    };
    let object = collection.get(&Key::new(namespace, name));
    let object = object.ok_or_else(|| ApiError::not_found(&resource, name))?;
    Ok(object.value())
}

fn claims(call: &Call, request: &TokenRequest, mut about: Kubernetes, now: Timestamp) -> Claims {
    let now = now.as_second();
    let asked = life(request);
    let is_extended = about.pod.is_some()
        && asked == LIFE_IN_VOLUMES
        && request.spec.audiences.iter().all(|it| it == ISSUER);
    let life = if is_extended {
        about.warnafter = Some(now.saturating_add(asked));
        EXTENDED_LIFE
    } else {
        asked
    };
    Claims {
        aud: request.spec.audiences.clone(),
        exp: now.saturating_add(life),
        iat: now,
        iss: ISSUER.to_owned(),
        jti: call.server.random.uuid(),
        sub: format!(
            "system:serviceaccount:{}:{}",
            about.namespace, about.serviceaccount.name
        ),
        kubernetes: about,
        nbf: now,
    }
}
