//! GET of a collection with `watch=true`: the events of a selection as a stream of lines or messages.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tower::BoxError;

use super::{
    Call,
    list::{invalid_option, selection},
};
use crate::server::{
    error::{ApiError, Result},
    http::{
        body::{self, ApiBody},
        query::AskedRevision,
        render::Rendering,
    },
    hub::{Cursor, EventType, Lost, Object, Objects, TooOld},
    protobuf,
    selectors::Selection,
};

/// Shortest time that a watch lasts when the client does not say; the longest is twice as long.
const SHORTEST_TIMEOUT_SECONDS: u64 = 1800;

/// What a watch does at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// ADDED for every object, then events.
    State,
    /// As `State`, with a bookmark that ends the first part.
    MarkedState,
    /// Events from now on.
    Now,
    /// Events after a revision.
    After(u64),
}

/// Serves a stream of events.
pub(crate) async fn watch(call: &Call) -> Result<Response<ApiBody>> {
    let start = start(call)?;
    let selection = match call.name.as_str() {
        "" => selection(call)?,
        name => selection(call)?.narrowed_to(name),
    };
    if let AskedRevision::At(revision) = AskedRevision::parse(call.query.text("resourceVersion"))? {
        call.wait_for(revision).await?;
    }
    let content_type = if call.rendering.is_protobuf() {
        protobuf::WATCH_MEDIA_TYPE
    } else {
        "application/json"
    };
    let watch = match open(call, selection, start)? {
        Ok(watch) => watch,
        Err(too_old) => {
            let event = call.rendering.event_of("ERROR", &gone(too_old));
            return Ok(body::stream(content_type, stream::iter([Ok(event)])));
        }
    };
    Ok(body::stream(content_type, watch.events()))
}

fn start(call: &Call) -> Result<Start> {
    let query = &call.query;
    let revision = AskedRevision::parse(query.text("resourceVersion"))?;
    let revision_match = query.text("resourceVersionMatch");
    let sends_initial_events = query.flag("sendInitialEvents")?;
    match sends_initial_events {
        None if !revision_match.is_empty() => {
            let why =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return Err(invalid_option("resourceVersionMatch", why));
        }
        Some(_) if revision_match != "NotOlderThan" => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(invalid_option("resourceVersionMatch", why));
        }
        None | Some(_) => {}
    }
    if !query.text("continue").is_empty() {
        return Err(invalid_option(
            "continue",
            "continue is forbidden for watch",
        ));
    }
    Ok(match (sends_initial_events, revision) {
        (Some(true), _) => Start::MarkedState,
        (Some(false), AskedRevision::Unset | AskedRevision::Any) => Start::Now,
        (None, AskedRevision::Unset | AskedRevision::Any) => Start::State,
        (_, AskedRevision::At(revision)) => Start::After(revision),
    })
}

fn open(
    call: &Call,
    selection: Selection,
    start: Start,
) -> Result<std::result::Result<Watch, TooOld>> {
    let hub = &call.server.hub;
    let (objects, cursor) = match start {
        Start::After(revision) => match Cursor::after(hub, &call.collection, revision) {
            Ok(cursor) => (None, cursor),
            Err(too_old) => return Ok(Err(too_old)),
        },
        Start::Now => (None, Cursor::behind_snapshot(hub, &call.collection).1),
        Start::State | Start::MarkedState => {
            let (objects, cursor) = Cursor::behind_snapshot(hub, &call.collection);
            (Some(objects), cursor)
        }
    };
    let bookmarks = call.query.flag("allowWatchBookmarks")?.unwrap_or(false);
    let timeout = match call.query.number("timeoutSeconds")?.map(u64::try_from) {
        Some(Ok(seconds)) if seconds > 0 => seconds,
        _ => SHORTEST_TIMEOUT_SECONDS + call.server.random.next() % SHORTEST_TIMEOUT_SECONDS,
    };
    let mut watch = Watch {
        rendering: call.rendering.clone(),
        selection,
        cursor,
        pending: VecDeque::new(),
        bookmarks: bookmarks.then(|| bookmark_timer(call.server.bookmark_interval)),
        deadline: Instant::now() + Duration::from_secs(timeout),
        is_over: false,
    };
    if let Some(objects) = objects {
        watch.send_state(&objects);
        if start == Start::MarkedState && bookmarks {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            watch
                .pending
                .push_back(Line::Encoded(watch.bookmark(Some(annotations))));
        }
    }
    Ok(Ok(watch))
}

fn bookmark_timer(interval: Duration) -> Interval {
    let mut timer = tokio::time::interval_at(Instant::now() + interval, interval);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// The event after which a client has to list again.
fn gone(too_old: TooOld) -> Value {
    ApiError::expired(too_old.to_string()).to_status()
}

/// A line that waits for the client; objects are encoded when it is their turn.
#[derive(Debug)]
enum Line {
    Event(EventType, Arc<Object>),
    Encoded(Bytes),
}

/// One open watch. Lives inside the body of the answer: when the client drops that, nothing is
/// left.
struct Watch {
    rendering: Rendering,
    selection: Selection,
    cursor: Cursor,
    pending: VecDeque<Line>,
    bookmarks: Option<Interval>,
    deadline: Instant,
    is_over: bool,
}

/// Why a watch woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Changed,
    Bookmark,
    Deadline,
}

impl Watch {
    fn events(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((Ok(line), watch))
        })
        .fuse()
    }

    /// The next line; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.pending.pop_front() {
                Some(Line::Encoded(line)) => return Some(line),
                Some(Line::Event(event, object)) => {
                    return Some(self.rendering.frame(event, &object));
                }
                None if self.is_over => return None,
                None => {}
            }
            let wake = self.wait().await;
            self.pull();
            match wake {
                Wake::Changed => {}
                Wake::Bookmark => self.send_bookmark(),
                Wake::Deadline => {
                    self.send_bookmark();
                    self.is_over = true;
                }
            }
        }
    }

    /// Time comes first: a watch that is never idle marks its place and ends all the same.
    async fn wait(&mut self) -> Wake {
        let bookmark = async {
            match &mut self.bookmarks {
                Some(timer) => {
                    timer.tick().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(self.deadline) => Wake::Deadline,
            () = bookmark => Wake::Bookmark,
            () = self.cursor.changed() => Wake::Changed,
        }
    }

    /// Takes what happened since the last time.
    fn pull(&mut self) {
        match self.cursor.take() {
            Ok(events) => {
                let seen = events
                    .iter()
                    .filter_map(|event| self.selection.project(event));
                self.pending
                    .extend(seen.map(|(event, object)| Line::Event(event, object)));
            }
            Err(Lost::Overrun) => self.is_over = true,
            Err(Lost::Compacted(too_old)) => {
                let event = self.rendering.event_of("ERROR", &gone(too_old));
                self.pending.push_back(Line::Encoded(event));
                self.is_over = true;
            }
        }
    }

    fn send_state(&mut self, objects: &Objects) {
        let selected = objects
            .values()
            .filter(|object| self.selection.matches(object));
        self.pending
            .extend(selected.map(|object| Line::Event(EventType::Added, Arc::clone(object))));
    }

    fn send_bookmark(&mut self) {
        if self.bookmarks.is_some() && !self.is_over {
            self.pending.push_back(Line::Encoded(self.bookmark(None)));
        }
    }

    fn bookmark(&self, annotations: Option<Value>) -> Bytes {
        self.rendering.bookmark(self.cursor.position(), annotations)
    }
}
