//! The watch behind a [`Cache`]: lists, watches, and says which version it has reached.
//!
//! kube's own `watcher` keeps bookmarks and the version of a list to itself; reading our own writes needs both, and the
//! dags watch starts at a version of its own. Hence this one.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream, stream::BoxStream};
use kube::{
    Api,
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use longshore_k8s::{Backoff, metadata::parse_version};
use tokio::time::Instant;

use crate::cache::{ALL, Cache, Cached, Update};

/// The wait before a failed list or watch is tried again.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    max: Duration::from_secs(30),
};
/// The API server ends a watch after this many seconds.
const WATCH_SECONDS: u32 = 290;
/// The same while a watch catches up.
const CATCH_UP_SECONDS: u32 = 1;
/// A watch that delivers nothing for this long after the API server should have ended it is dead.
const WATCH_IDLE: Duration = Duration::from_secs(5);
/// A request without an answer for this long is dead: the connection is half open.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Objects per page of a list.
const PAGE: u32 = 500;

/// What to watch, and from where.
#[derive(Clone, Debug)]
pub struct ListWatch<K> {
    api: Api<K>,
    labels: Option<String>,
    fields: Option<String>,
    start_at: Option<u64>,
    catch_up_to: Option<u64>,
}

impl<K: Cached> ListWatch<K> {
    /// All objects of `api`, from a list on.
    pub fn new(api: Api<K>) -> Self {
        Self {
            api,
            labels: None,
            fields: None,
            start_at: None,
            catch_up_to: None,
        }
    }

    /// Only objects that match this label selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that match this field selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Without a first list: from the changes after this version. Lists where the API server no longer knows it.
    #[must_use]
    pub fn start_at(mut self, version: u64) -> Self {
        self.start_at = Some(version);
        self
    }

    /// Says `Reached(version)` once everything up to `version`, which a list has just shown to exist, was delivered:
    /// with the first event or bookmark from there on, or after a request that brought nothing in all of its time,
    /// which is kept short for that. The API server sends what it remembers first, so there was no more. A request that
    /// ends early (the server goes down) or with something (there was no time for all) says nothing of the kind.
    #[must_use]
    pub fn catching_up_to(mut self, version: u64) -> Self {
        self.catch_up_to = Some(version);
        self
    }

    /// Keeps `cache` up to date for ever.
    ///
    /// *Flow*: yields each update after the cache shows it; after a list, every object that is there, every one that is
    /// no longer there, and the list's version.
    ///
    /// # Errors
    /// None; a failed list or watch is tried again with back-off, an expired version leads to a new list.
    ///
    /// *Cancellation*: dropping the stream ends the watch; the cache keeps what it has.
    pub fn into_cache(self, cache: Arc<Cache<K>>) -> impl Stream<Item = Update<K>> + Send {
        self.into_scope(cache, ALL)
    }

    /// Keeps what `cache` has of a namespace, or of all, up to date.
    pub(crate) fn into_scope(
        self,
        cache: Arc<Cache<K>>,
        scope: &str,
    ) -> impl Stream<Item = Update<K>> + Send + use<K> {
        let step = match self.start_at {
            Some(version) => {
                cache.start_at(version);
                Step::Connect { version }
            }
            None => Step::List,
        };
        let run = Run {
            what: self,
            cache,
            scope: scope.to_owned(),
            step,
            n_failures: 0,
        };
        stream::unfold(run, |mut run| async move {
            let updates = run.next().await;
            Some((stream::iter(updates), run))
        })
        .flatten()
    }
}

struct Run<K> {
    what: ListWatch<K>,
    cache: Arc<Cache<K>>,
    /// The namespace that it watches, or [`ALL`].
    scope: String,
    step: Step<K>,
    n_failures: u32,
}

enum Step<K> {
    List,
    Connect {
        version: u64,
    },
    Watch {
        version: u64,
        events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
        /// When it was asked for, while it has brought nothing.
        silent_since: Option<Instant>,
    },
}

impl<K: Cached> Run<K> {
    /// One step: a list, a connection or an event.
    async fn next(&mut self) -> Vec<Update<K>> {
        match &mut self.step {
            Step::List => match self.what.list().await {
                Ok((objects, version)) => {
                    self.n_failures = 0;
                    self.step = Step::Connect { version };
                    self.cache.replace_in(&self.scope, objects, version)
                }
                Err(error) => self.fail(&error, Step::List).await,
            },
            Step::Connect { version } => {
                let version = *version;
                let asked_at = Instant::now();
                match self.what.watch(version).await {
                    Ok(events) => {
                        self.step = Step::Watch {
                            version,
                            events,
                            silent_since: Some(asked_at),
                        };
                        Vec::new()
                    }
                    Err(error) if is_expired(&error) => self.fail(&error, Step::List).await,
                    Err(error) => self.fail(&error, Step::Connect { version }).await,
                }
            }
            Step::Watch {
                version,
                events,
                silent_since,
            } => {
                let (version, since) = (*version, *silent_since);
                match tokio::time::timeout(self.what.time() + WATCH_IDLE, events.next()).await {
                    Ok(Some(Ok(WatchEvent::Error(status)))) => {
                        let error = kube::Error::Api(status);
                        let is_expired = is_expired(&error);
                        let step = if is_expired {
                            Step::List
                        } else {
                            Step::Connect { version }
                        };
                        self.fail(&error, step).await
                    }
                    Ok(Some(Ok(event))) => self.take(event),
                    Ok(Some(Err(error))) => self.fail(&error, Step::Connect { version }).await,
                    Ok(None) if self.has_caught_up(since) => self.caught_up(version),
                    Ok(None) | Err(_) => self.reconnect(version).await,
                }
            }
        }
    }

    fn take(&mut self, event: WatchEvent<K>) -> Vec<Update<K>> {
        if let (
            Step::Watch {
                version,
                silent_since,
                ..
            },
            Some(reached),
        ) = (&mut self.step, version_of(&event))
            && reached > *version
        {
            *version = reached;
            *silent_since = None;
            self.n_failures = 0;
            self.what.catch_up_to = self
                .what
                .catch_up_to
                .filter(|caught_up| reached < *caught_up);
        }
        let update = self.cache.apply_event_in(&self.scope, event);
        update.into_iter().collect()
    }

    /// Whether a watch that ended without an error was there in all of its time and had nothing to tell.
    fn has_caught_up(&self, silent_since: Option<Instant>) -> bool {
        self.what.catch_up_to.is_some()
            && silent_since.is_some_and(|since| since.elapsed() >= self.what.time())
    }

    fn caught_up(&mut self, version: u64) -> Vec<Update<K>> {
        let version = version.max(self.what.catch_up_to.take().unwrap_or(0));
        self.step = Step::Connect { version };
        vec![Update::Reached(version)]
    }

    /// The watch ended without an error. One that brought nothing new is not resumed at once.
    async fn reconnect(&mut self, version: u64) -> Vec<Update<K>> {
        self.step = Step::Connect { version };
        tokio::time::sleep(BACKOFF.wait(self.n_failures)).await;
        self.n_failures = self.n_failures.saturating_add(1);
        Vec::new()
    }

    async fn fail(&mut self, error: &kube::Error, next: Step<K>) -> Vec<Update<K>> {
        self.n_failures = self.n_failures.saturating_add(1);
        self.step = next;
        tracing::debug!(%error, n_failures = self.n_failures, "watch interrupted");
        tokio::time::sleep(BACKOFF.wait(self.n_failures)).await;
        Vec::new()
    }
}

impl<K: Cached> ListWatch<K> {
    async fn list(&self) -> kube::Result<(Vec<K>, u64)> {
        let mut params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut objects = Vec::new();
        loop {
            let page = in_time(self.api.list(&params)).await?;
            objects.extend(page.items);
            let version = page.metadata.resource_version.as_deref();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok((objects, version.and_then(parse_version).unwrap_or(0))),
            }
        }
    }

    async fn watch(
        &self,
        version: u64,
    ) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<K>>>> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(self.seconds()),
            bookmarks: true,
            send_initial_events: false,
        };
        let events = in_time(self.api.watch(&params, &version.to_string())).await?;
        Ok(events.boxed())
    }

    /// After how many seconds the API server is to end a watch.
    fn seconds(&self) -> u32 {
        if self.catch_up_to.is_some() {
            CATCH_UP_SECONDS
        } else {
            WATCH_SECONDS
        }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds()))
    }
}

/// The answer to a request, or an error after [`ANSWER_TIMEOUT`].
async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
    answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
}

fn version_of<K: Cached>(event: &WatchEvent<K>) -> Option<u64> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            parse_version(object.meta().resource_version.as_deref()?)
        }
        WatchEvent::Bookmark(bookmark) => parse_version(&bookmark.metadata.resource_version),
        WatchEvent::Error(_) => None,
    }
}

fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}
