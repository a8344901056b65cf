//! GET of a collection.

use std::{ops::Bound, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use serde_json::{Map, Value, json};

use super::Call;
use crate::server::{
    error::{ApiError, Cause, Result},
    http::{
        body::{self, ApiBody},
        query::AskedRevision,
        render::Rendering,
    },
    hub::{Key, Object, Objects},
    selectors::Selection,
};

mod token;

use token::Continuation;

/// The selection of a list, watch or collection delete.
pub(crate) fn selection(call: &Call) -> Result<Selection> {
    let (labels, fields) = (
        call.query.text("labelSelector"),
        call.query.text("fieldSelector"),
    );
    Selection::parse(&call.served, call.namespace.as_deref(), labels, fields)
}

/// The selected objects of a collection, as one page.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    continuation: Option<Continuation>,
    n_remaining: Option<usize>,
}

/// Serves a list of the selected objects.
pub(crate) async fn list(call: &Call) -> Result<Response<ApiBody>> {
    let selection = selection(call)?;
    let page = match read_page(call, &selection).await? {
        Ok(page) => page,
        Err(expired) => return Ok(expired),
    };
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), page.revision.to_string().into());
    if let Some(continuation) = &page.continuation {
        metadata.insert("continue".into(), continuation.encode().into());
    }
    if let Some(n_remaining) = page.n_remaining {
        metadata.insert("remainingItemCount".into(), n_remaining.into());
    }
    Ok(respond(call, page.objects, Value::Object(metadata)))
}

/// A response with a list of these objects.
pub(crate) fn respond(
    call: &Call,
    objects: Vec<Arc<Object>>,
    metadata: Value,
) -> Response<ApiBody> {
    let rendering = &call.rendering;
    if rendering.is_protobuf()
        && let Some(list) = rendering.message_list(&metadata, &objects)
    {
        return body::protobuf_bytes(http::StatusCode::OK, list);
    }
    let head = rendering.list_head(&metadata);
    body::json_chunks(chunks(call.rendering.clone(), head, objects))
}

/// The encoded list in pieces of moderate size, so that a long one never exists as a whole.
fn chunks(
    rendering: Rendering,
    head: String,
    objects: Vec<Arc<Object>>,
) -> impl Iterator<Item = Bytes> + Send + 'static {
    const CHUNK: usize = 64 * 1024;
    let mut buffer = BytesMut::from(head.as_bytes());
    let mut objects = objects.into_iter();
    let (mut is_first, mut is_done) = (true, false);
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        while buffer.len() < CHUNK {
            let Some(object) = objects.next() else {
                is_done = true;
                buffer.put_slice(b"]}\n");
                break;
            };
            if !is_first {
                buffer.put_u8(b',');
            }
            is_first = false;
            rendering.put_item(&object, &mut buffer);
        }
        Some(buffer.split().freeze())
    })
}

/// The options of a list request.
struct Asked {
    revision: AskedRevision,
    is_exact: bool,
    limit: usize,
    continuation: Option<Continuation>,
}

fn asked(call: &Call) -> Result<Asked> {
    let query = &call.query;
    let revision = AskedRevision::parse(query.text("resourceVersion"))?;
    let revision_match = query.text("resourceVersionMatch");
    let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
    let token = query.text("continue");
    let refused = |why: &str| Err(invalid_option("resourceVersionMatch", why));
    match (revision_match, revision) {
        ("", _) => {}
        (_, AskedRevision::Unset) => {
            return refused("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        _ if !token.is_empty() => {
            return refused("resourceVersionMatch is forbidden when continue is provided");
        }
        ("Exact", AskedRevision::Any) => {
            return refused(
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        ("Exact" | "NotOlderThan", _) => {}
        (other, _) => {
            let cause = Cause::unsupported(
                "resourceVersionMatch",
                other,
                &["Exact", "NotOlderThan", ""],
            );
            let causes = vec![cause];
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", causes));
        }
    }
    let continuation = match token {
        "" => None,
        _ if matches!(revision, AskedRevision::At(_)) => {
            let message = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(message));
        }
        token => Some(Continuation::decode(token)?),
    };
    let is_exact = revision_match == "Exact" || (revision_match.is_empty() && limit > 0);
    Ok(Asked {
        revision,
        is_exact,
        limit,
        continuation,
    })
}

/// A list option that is refused.
pub(crate) fn invalid_option(field: &str, why: &str) -> ApiError {
    ApiError::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        vec![Cause::forbidden(field, why)],
    )
}

/// Reads one page; the inner error is the 410 that carries a token to go on inconsistently.
async fn read_page(
    call: &Call,
    selection: &Selection,
) -> Result<std::result::Result<Page, Response<ApiBody>>> {
    let asked = asked(call)?;
    if let AskedRevision::At(revision) = asked.revision {
        call.wait_for(revision).await?;
    }
    let collection = &call.collection;
    let (objects, revision) = match (&asked.continuation, asked.revision) {
        (
            Some(Continuation {
                revision: Some(revision),
                start,
            }),
            _,
        ) => match collection.snapshot_at(*revision) {
            Ok(objects) => (objects, *revision),
            Err(_) => return Ok(Err(expired(start))),
        },
        (None, AskedRevision::At(revision)) if asked.is_exact => {
            let objects = collection
                .snapshot_at(revision)
                .map_err(|error| ApiError::expired(error.to_string()))?;
            (objects, revision)
        }
        _ => collection.snapshot(call.server.hub.revision()),
    };
    let start = asked
        .continuation
        .as_ref()
        .map(|continuation| continuation.start.as_str());
    Ok(Ok(cut(&objects, revision, selection, start, asked.limit)))
}

/// The 410 of a token whose revision is gone.
fn expired(start: &str) -> Response<ApiBody> {
    let resume = Continuation {
        revision: None,
        start: start.to_owned(),
    };
    let error = ApiError::expired_continuation();
    let mut status = error.to_status();
    status["metadata"] = json!({"continue": resume.encode()});
    body::json(http::StatusCode::GONE, &status)
}

/// The objects of a state, in order, that a page holds.
fn cut(
    objects: &Objects,
    revision: u64,
    selection: &Selection,
    start: Option<&str>,
    limit: usize,
) -> Page {
    let prefix = selection.prefix().unwrap_or("");
    let from = Key::from_position(start.unwrap_or(prefix));
    let in_scope = objects
        .range((Bound::Included(from), Bound::Unbounded))
        .map(|(_, object)| object)
        .take_while(|object| object.key.as_str().starts_with(prefix));
    if limit == 0 {
        let objects = in_scope
            .filter(|object| selection.matches(object))
            .cloned()
            .collect();
        return Page {
            revision,
            objects,
            continuation: None,
            n_remaining: None,
        };
    }
    let mut selected = Vec::new();
    let mut rest = in_scope.skip_while(|object| {
        if selected.len() < limit && selection.matches(object) {
            selected.push(Arc::clone(object));
            return true;
        }
        selected.len() < limit || !selection.matches(object)
    });
    let continuation = rest.next().map(|next| Continuation {
        revision: Some(revision),
        start: next.key.as_str().to_owned(),
    });
    let n_rest = rest.count();
    let n_remaining = (continuation.is_some() && !selection.has_selector()).then_some(n_rest + 1);
    Page {
        revision,
        objects: selected,
        continuation,
        n_remaining,
    }
}

/// Every selected object as of now.
pub(crate) fn all_selected(call: &Call, selection: &Selection) -> Page {
    let (objects, revision) = call.collection.snapshot(call.server.hub.revision());
    cut(&objects, revision, selection, None, 0)
}
