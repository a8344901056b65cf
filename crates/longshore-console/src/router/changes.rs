//! `/changes`: state changes as server-sent events, resumable by their ids.
//!
//! `ready` comes first, with the id that is reached; then a `change` each, with the object as data; `reset` says that
//! changes were missed and the state has to be read anew.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::Deserialize;

use super::{Shared, extract::Params};
use crate::{
    feed::{EventId, Next, Reader},
    objects::Change,
    problem::Problem,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Time between two comments in the stream. A comment shows the client that the service lives; a
/// failed write of one shows the service that the client has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Filter {
    dag_id: Option<String>,
    run_id: Option<String>,
}

impl Filter {
    fn takes(&self, change: &Change) -> bool {
        let (dag_id, run_id) = change.run();
        self.dag_id.as_deref().is_none_or(|wanted| wanted == dag_id)
            && self.run_id.as_deref().is_none_or(|wanted| wanted == run_id)
    }
}

pub(super) async fn follow(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let after = headers.get(LAST_EVENT_ID).map(|id| {
        let id = id.to_str().ok().and_then(|id| id.parse::<EventId>().ok());
        id.ok_or_else(|| {
            Problem::bad_request(
                StatusCode::BAD_REQUEST,
                "the value of Last-Event-ID is not one of ours",
            )
        })
    });
    let reader = shared.control.feed().reader(after.transpose()?);
    let ready = Event::default()
        .event("ready")
        .id(reader.reached().to_string())
        .data("{}");
    let events = stream::iter([Ok(ready)])
        .chain(events(reader, filter))
        .take_until(shared.stopping.clone().cancelled_owned());
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

fn events(reader: Reader, filter: Filter) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((reader, filter), async |(mut reader, filter)| {
        loop {
            let event = match reader.next().await? {
                Next::Change(_, change) if !filter.takes(&change) => continue,
                Next::Change(id, change) => {
                    // Our own types always serialise.
                    let data = serde_json::to_string(&*change).unwrap_or_default();
                    Event::default()
                        .event("change")
                        .id(id.to_string())
                        .data(data)
                }
                Next::Reset(id) => Event::default()
                    .event("reset")
                    .id(id.to_string())
                    .data("{}"),
            };
            return Some((Ok(event), (reader, filter)));
        }
    })
}
