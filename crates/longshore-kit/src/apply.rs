//! Applies the Kubernetes actions of a plan. Every one of them may be repeated.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Client, core::ObjectMeta};
use longshore_core::{
    Announcement, ChildIdentity, Class, Classify, Create, Delete, ObjectRef, Patch, PatchKind,
    Resource, error, text::shorten,
};
use longshore_k8s::metadata::is_deleting;
use serde_json::{Value, json};

use crate::{
    events::Events,
    metrics::Metrics,
    own_writes::{CacheFeed, OwnWrites, Until, Written},
    pause::Pause,
    requests::{Answer, ApiError, Requests},
    round_writes::{self, version_of},
};

/// Applies Kubernetes actions and remembers what it wrote.
#[derive(Clone, Debug)]
pub struct Applier {
    requests: Requests,
    writes: Arc<OwnWrites>,
    events: Events,
    metrics: Metrics,
    pause: Arc<Pause>,
    /// Whether caches take in the answers to writes.
    learns: bool,
}

impl Applier {
    /// An applier of the role `role` (`dags`, `tasks`, …), which Events name as `longshore.dev/<role>`. `caches` are
    /// those that the controller decides upon, by resource.
    pub fn new(
        client: Client,
        role: &str,
        caches: impl IntoIterator<Item = (Resource, Arc<dyn CacheFeed>)>,
    ) -> Self {
        let requests = Requests::new(client);
        Self {
            writes: Arc::new(OwnWrites::new(
                caches.into_iter().collect::<BTreeMap<_, _>>(),
            )),
            events: Events::new(requests.clone(), role),
            pause: Arc::default(),
            requests,
            metrics: Metrics::default(),
            learns: false,
        }
    }

    /// The caches take in the answers to its own writes, so that the next round neither waits for a watch nor reads
    /// live what is known already; an update by which a watch delivers such a write leads to no round. For controllers
    /// whose plans say when to go on after their own writes.
    #[must_use]
    pub fn learning(mut self) -> Self {
        self.learns = true;
        self
    }

    /// Counts the rounds of its controllers here.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Where the rounds of its controllers are counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Live reads.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// What rounds wrote and caches have yet to show.
    pub fn own_writes(&self) -> &Arc<OwnWrites> {
        &self.writes
    }

    /// Creates an object, or finds that an earlier attempt has (rule R2).
    ///
    /// Where the API server asks to stay away for some time (`Retry-After`), no create of any controller is sent in
    /// that time.
    pub async fn create(&self, key: &impl Display, create: &Create) -> Result<(), ApplyError> {
        let target = created(create)?;
        if let Some(left) = self.pause.left() {
            return Err(ApplyError::Paused {
                target: target.to_string(),
                left,
            });
        }
        let answer = match self.requests.create(&target, &create.object).await {
            Ok(answer) => answer,
            Err(error) if error.is_already_exists() => self.adopt(&target, create).await?.into(),
            Err(error) => {
                if let Some(time) = error.retry_after() {
                    self.pause.begin(time);
                }
                return Err(error.into());
            }
        };
        self.wrote(key, &target, &answer);
        Ok(())
    }

    /// Patches an object of the uid decided upon. A merge patch may name the version decided upon; where the same plan
    /// has written the object since, the version that it left counts.
    pub async fn patch(&self, key: &impl Display, patch: &Patch) -> Result<(), ApplyError> {
        let target = &patch.target;
        let mut body = with_uid(patch);
        if patch.kind == PatchKind::Merge {
            upon_latest(target, &mut body);
        }
        let upon = version_of(&body).map(str::to_owned);
        let answer = self
            .requests
            .patch(target, patch.subresource, patch.kind, body);
        match answer.await {
            Ok(answer) => {
                round_writes::wrote(target, upon.as_deref(), &answer);
                self.wrote(key, target, &answer);
                Ok(())
            }
            Err(error) => {
                // One of its tests may not hold: what the cache shows is old, then.
                if patch.kind == PatchKind::Json && error.code() == Some(422) {
                    self.reread(key, target);
                }
                Err(self.look_again(key, target, error))
            }
        }
    }

    /// Deletes the incarnation decided upon, and the version where the plan names one; gone already, or another
    /// incarnation by now, is success.
    pub async fn delete(&self, key: &impl Display, delete: &Delete) -> Result<(), ApplyError> {
        let target = &delete.target;
        if target.uid.is_none() {
            return Err(ApplyError::NoUid(target.to_string()));
        }
        let answer = self.requests.delete_as(delete).await;
        self.removed(key, target, answer).await
    }

    /// Evicts the incarnation of a pod that was decided upon; gone already, or another one by now, is success.
    ///
    /// # Errors
    /// Of the request; 429 where a disruption budget refuses.
    pub async fn evict(&self, key: &impl Display, target: &ObjectRef) -> Result<(), ApplyError> {
        if target.uid.is_none() {
            return Err(ApplyError::NoUid(target.to_string()));
        }
        let answer = self.requests.evict(target).await;
        self.removed(key, target, answer).await
    }

    /// A delete or an eviction was answered.
    async fn removed(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        answer: Result<Answer, ApiError>,
    ) -> Result<(), ApplyError> {
        match answer {
            Ok(_) => {}
            Err(error) if error.code() == Some(404) => {}
            // Another incarnation, or the API server was busy with this one: only a look can tell.
            Err(error) if error.is_precondition_failure() => {
                if self.metadata_now(target).await?.is_some() {
                    return Err(ApplyError::Changed(target.to_string()));
                }
            }
            Err(error) => return Err(error.into()),
        }
        let written = Written {
            target: target.clone(),
            until: Until::Deleted,
        };
        self.writes.record(key, written);
        Ok(())
    }

    /// Adds a finalizer, unless it is there.
    pub async fn ensure_finalizer(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        finalizer: &str,
    ) -> Result<(), ApplyError> {
        let Some(metadata) = self.metadata(target).await? else {
            return Err(self.gone(key, target));
        };
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|existing| existing == finalizer) {
            return Ok(());
        }
        finalizers.push(finalizer.to_owned());
        self.set_finalizers(key, target, &metadata, finalizers)
            .await
    }

    /// Removes a finalizer, unless it or the object is gone.
    pub async fn remove_finalizer(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        finalizer: &str,
    ) -> Result<(), ApplyError> {
        let Some(metadata) = self.metadata(target).await? else {
            return Ok(());
        };
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        let n_before = finalizers.len();
        finalizers.retain(|existing| existing != finalizer);
        if finalizers.len() == n_before {
            return Ok(());
        }
        self.set_finalizers(key, target, &metadata, finalizers)
            .await
    }

    /// Has an Event published, beside everything else. Best effort.
    pub fn announce(&self, announcement: &Announcement, now: Timestamp) {
        self.events.publish(announcement, now);
    }

    /// An object of that name exists: ours from an earlier attempt, or another client's.
    async fn adopt(&self, target: &ObjectRef, create: &Create) -> Result<Value, ApplyError> {
        let Some(object) = self.requests.get(target).await? else {
            return Err(ApplyError::Changed(target.to_string()));
        };
        if is_deleting(&object) {
            Err(ApplyError::StillDeleting(target.to_string()))
        } else if create.identity.is_of(&object) {
            Ok(object)
        } else {
            Err(ApplyError::Foreign {
                target: target.to_string(),
                ours: create.identity.clone(),
                theirs: create.identity.found_in(&object),
            })
        }
    }

    /// The metadata from the cache, which the version precondition makes safe, or else from a live read.
    async fn metadata(&self, target: &ObjectRef) -> Result<Option<ObjectMeta>, ApplyError> {
        let cached = self.writes.cache(target.resource);
        let cached = cached.and_then(|cache| cache.metadata(target));
        match cached.filter(|metadata| is_incarnation(target, metadata)) {
            Some(metadata) => Ok(Some(metadata)),
            None => self.metadata_now(target).await,
        }
    }

    async fn metadata_now(&self, target: &ObjectRef) -> Result<Option<ObjectMeta>, ApplyError> {
        let Some(mut live) = self.requests.get(target).await? else {
            return Ok(None);
        };
        let metadata: ObjectMeta = serde_json::from_value(live["metadata"].take())
            .map_err(|source| ApiError::unreadable(target, source))?;
        Ok(Some(metadata).filter(|metadata| is_incarnation(target, metadata)))
    }

    async fn set_finalizers(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        metadata: &ObjectMeta,
        finalizers: Vec<String>,
    ) -> Result<(), ApplyError> {
        let body = json!({"metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "finalizers": finalizers,
        }});
        let answer = self.requests.patch(target, None, PatchKind::Merge, body);
        match answer.await {
            Ok(answer) => {
                round_writes::wrote(target, metadata.resource_version.as_deref(), &answer);
                self.wrote(key, target, &answer);
                Ok(())
            }
            Err(error) => Err(self.look_again(key, target, error)),
        }
    }

    /// After a conflict the next round must see what is there now, not what the cache still shows.
    fn look_again(&self, key: &impl Display, target: &ObjectRef, error: ApiError) -> ApplyError {
        if error.code() == Some(404) || error.is_precondition_failure() {
            self.gone(key, target)
        } else {
            error.into()
        }
    }

    /// A write was answered with the object as it is now.
    pub(crate) fn wrote(&self, key: &impl Display, target: &ObjectRef, answer: &Answer) {
        let written = Written::answered(target, answer);
        if self.learns
            && let Some(cache) = self.writes.cache(target.resource)
            && let Err(error) = cache.learn(answer)
        {
            tracing::debug!(%target, %error, "an answer that does not have the shape of its kind");
        }
        self.writes.record(key, written);
    }

    pub(crate) fn gone(&self, key: &impl Display, target: &ObjectRef) -> ApplyError {
        self.reread(key, target);
        ApplyError::Changed(target.to_string())
    }

    /// The next round of `key` reads the object live.
    fn reread(&self, key: &impl Display, target: &ObjectRef) {
        let written = Written {
            target: target.clone(),
            until: Until::LiveRead,
        };
        self.writes.record(key, written);
    }
}

fn is_incarnation(target: &ObjectRef, metadata: &ObjectMeta) -> bool {
    target.uid.is_none() || metadata.uid == target.uid
}

/// The address of an object to be created.
fn created(create: &Create) -> Result<ObjectRef, ApplyError> {
    let text = |field: &str| {
        let value = create.object.pointer(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let target = ObjectRef {
        resource: create.resource,
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: None,
    };
    if create.identity.is_of(&create.object) {
        Ok(target)
    } else {
        Err(ApplyError::NoIdentity {
            target: target.to_string(),
            identity: create.identity.clone(),
        })
    }
}

/// Where this round has written the version that a merge patch names, the patch comes upon what it left.
fn upon_latest(target: &ObjectRef, body: &mut Value) {
    let latest = version_of(body).and_then(|version| round_writes::latest(target, version));
    if let Some(version) = latest.as_ref().and_then(version_of) {
        body["metadata"]["resourceVersion"] = json!(version);
    }
}

/// The patch with the uid of its target as a precondition.
fn with_uid(patch: &Patch) -> Value {
    let mut body = patch.patch.clone();
    let Some(uid) = &patch.target.uid else {
        return body;
    };
    match (patch.kind, &mut body) {
        (PatchKind::Merge | PatchKind::Strategic, Value::Object(fields)) => {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("uid".to_owned(), json!(uid));
            }
        }
        (PatchKind::Json, Value::Array(operations)) => {
            let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
            operations.insert(0, test);
        }
        (PatchKind::Merge | PatchKind::Strategic | PatchKind::Json, _) => {}
    }
    body
}

/// Why a Kubernetes action could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The object of that name is being deleted; the new one has to wait for it.
    #[error("{0} waits for the old one to go")]
    StillDeleting(String),
    /// The object of that name is another client's.
    #[error(
        "{target} exists and is not ours: expected {ours}, found {theirs}; delete it or rename it"
    )]
    Foreign {
        /// The object.
        target: String,
        /// What tells ours from others.
        ours: ChildIdentity,
        /// What the existing object has in its place.
        theirs: String,
    },
    /// The API server has asked for no creates for a while.
    #[error("the create of {target} waits: the API server asked for no creates for {} ms", left.as_millis())]
    Paused {
        /// The object.
        target: String,
        /// What is left of the while.
        left: Duration,
    },
    /// The object is gone or changed since it was decided upon.
    #[error("{0} changed since it was decided upon")]
    Changed(String),
    /// A delete without the incarnation decided upon.
    #[error("the deletion of {0} names no uid")]
    NoUid(String),
    /// A create whose object does not carry its identity.
    #[error("the new {target} does not carry {identity}, which tells it from others")]
    NoIdentity {
        /// The object.
        target: String,
        /// What it should carry.
        identity: ChildIdentity,
    },
}

impl ApplyError {
    /// Whether the API server refused because the object is too large.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::Api(error) => error.is_too_large(),
            Self::Paused { .. }
            | Self::StillDeleting(_)
            | Self::Foreign { .. }
            | Self::Changed(_)
            | Self::NoUid(_)
            | Self::NoIdentity { .. } => false,
        }
    }

    /// How long the API server asked us to stay away.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            Self::Paused { left, .. } => Some(*left),
            Self::StillDeleting(_)
            | Self::Foreign { .. }
            | Self::Changed(_)
            | Self::NoUid(_)
            | Self::NoIdentity { .. } => None,
        }
    }

    /// Why a create that failed with this did not happen for now; `None` for every other failure.
    pub fn postponed(&self) -> Option<Postponed> {
        match self {
            Self::Api(error) if error.is_over_quota() => {
                let words = error.message().unwrap_or_default();
                Some(Postponed::OverQuota(shorten(words)))
            }
            Self::StillDeleting(_) => Some(Postponed::NameTaken),
            Self::Api(failure) if failure.class() != Class::Invalid => {
                let words = failure.message().map(str::to_owned);
                let words = words.unwrap_or_else(|| error::chain(failure));
                Some(Postponed::Failed(shorten(words)))
            }
            Self::Paused { .. } => Some(Postponed::Paused),
            Self::Api(_)
            | Self::Foreign { .. }
            | Self::Changed(_)
            | Self::NoUid(_)
            | Self::NoIdentity { .. } => None,
        }
    }

    /// What the controller gets about a refusal for good, of an action that creates nothing.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Api(error) => Refusal {
                create: None,
                patch: None,
                code: if error.is_too_large() {
                    Some(413)
                } else {
                    error.code()
                },
                message: error.message().map_or_else(|| error.to_string(), shorten),
            },
            Self::Paused { .. }
            | Self::StillDeleting(_)
            | Self::Foreign { .. }
            | Self::Changed(_)
            | Self::NoUid(_)
            | Self::NoIdentity { .. } => Refusal {
                create: None,
                patch: None,
                code: None,
                message: self.to_string(),
            },
        }
    }
}

impl Classify for ApplyError {
    fn class(&self) -> Class {
        match self {
            Self::Api(error) => error.class(),
            Self::StillDeleting(_) | Self::Paused { .. } => Class::Retry,
            Self::Foreign { .. } => Class::Invalid,
            Self::Changed(_) => Class::Conflict,
            Self::NoUid(_) | Self::NoIdentity { .. } => Class::Bug,
        }
    }
}

/// An action that was refused for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What was to be created; `None` where it was another action that was refused.
    pub create: Option<Create>,
    /// What was to be patched; `None` where it was another action that was refused.
    pub patch: Option<Patch>,
    /// The HTTP status, where the API server refused, and 413 where its store did because of the size; `None` where the
    /// kit refused (an object of that name is foreign).
    pub code: Option<u16>,
    /// In the API server's own words, [shortened](longshore_core::text::shorten).
    pub message: String,
}

/// Why a create did not happen for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Postponed {
    /// A quota is used up; in the API server's own words.
    OverQuota(String),
    /// The old object of that name is being deleted.
    NameTaken,
    /// The request failed, and may succeed later: why, in the API server's own words.
    Failed(String),
    /// The API server has asked for no creates for a while.
    Paused,
}
