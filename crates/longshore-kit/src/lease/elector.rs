//! Takes a lease, renews it, and lets it go.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use longshore_core::{ObjectRef, PatchKind, error::chain};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Gate, Terms,
    decide::{Sighting, Step, View, decide},
    record::{self, LEASE, Record},
    turn::Turn,
};
use crate::{
    clock::Clock,
    requests::{Answer, ApiError, Requests},
};

/// Which lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another process holds the lease, or none.
    #[error("the lease is held by {0} now")]
    Taken(String),
    /// The lease could not be renewed in time.
    #[error("the lease could not be renewed within {} s", .0.as_secs())]
    NotRenewed(Duration),
    /// Of several leases, one that could not be had can be had now, or its namespace is gone.
    #[error("the lease can be had now, or its namespace has gone")]
    Changed,
}

/// Why a lease cannot be had, other than that another process holds it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The API server does not let us.
    #[error("the lease {namespace}/{name} must not be used")]
    Forbidden {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server answered.
        source: ApiError,
    },
    /// There is no place for it.
    #[error("there is no namespace {namespace} for the lease {name}")]
    NoNamespace {
        /// The namespace that does not exist.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Its namespace is about to go. No process creates anything there any more.
    #[error("the namespace {namespace} of the lease {name} is being deleted")]
    Terminating {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// One candidate for one lease.
///
/// *Flow*: [`acquire`](Self::acquire), then [`keep`](Self::keep) beside the work, then [`release`](Self::release); or
/// [`acquire`](Self::acquire) again after a loss.
#[derive(Debug)]
pub struct Elector {
    /// Behind no gate.
    requests: Requests,
    target: ObjectRef,
    me: String,
    terms: Terms,
    clock: Arc<dyn Clock>,
    started: Instant,
    view: View,
    gate: Gate,
    /// The last renew time: each one has to differ, or others see no renewal.
    last_time: Timestamp,
    /// What the holder says about itself.
    annotation: Option<(&'static str, Option<&'static str>)>,
}

impl Elector {
    /// A candidate named `me`, a name that no other process may ever have, a later one on the same host included.
    /// `client` must be behind no gate.
    pub fn new(
        client: Client,
        lease: LeaseName,
        me: impl Into<String>,
        terms: Terms,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            requests: Requests::new(client),
            target: ObjectRef {
                resource: LEASE,
                namespace: lease.namespace,
                name: lease.name,
                uid: None,
            },
            me: me.into(),
            terms,
            gate: Gate::closed(clock.clone()),
            clock,
            started: Instant::now(),
            view: View {
                lease: None,
                renewed_at: None,
                tried_at: None,
            },
            last_time: Timestamp::MIN,
            annotation: None,
        }
    }

    /// Writes this annotation with the holder into the lease; `None` removes that of an earlier holder.
    pub(super) fn says(&mut self, annotation: &'static str, value: Option<&'static str>) {
        self.annotation = Some((annotation, value));
    }

    /// Waits until we hold the lease. `waits_for` is called with its holder, whenever that changes.
    ///
    /// # Errors
    /// Only where waiting is of no use. An API server that does not answer is asked again.
    ///
    /// *Cancellation*: a lease that was taken meanwhile expires.
    pub async fn acquire(&mut self, waits_for: impl FnMut(&str)) -> Result<Gate, LeaseError> {
        self.acquire_in(Turn::at_once(), waits_for).await
    }

    /// The same, where the lease may be taken only in its turn. It is looked at before that, so that its end is known
    /// by then; `waits_for` is not called before.
    pub(super) async fn acquire_in(
        &mut self,
        mut turn: Turn,
        mut waits_for: impl FnMut(&str),
    ) -> Result<Gate, LeaseError> {
        let mut told = None;
        loop {
            match self.look().await {
                Ok(()) => {}
                Err(error) => {
                    self.give_up_if_hopeless(error)?;
                    sleep(self.terms.retry_period).await;
                    continue;
                }
            }
            if !turn.has_come() {
                turn.come_within(self.terms.retry_period).await;
                continue;
            }
            let step = decide(&self.me, &self.terms, &self.view, self.now());
            if let Step::Wait(time) = step {
                let holder = self.holder();
                if told != holder {
                    waits_for(holder.as_deref().unwrap_or("no process"));
                    told = holder;
                }
                sleep(time).await;
                continue;
            }
            match self.write(step).await {
                Ok(()) => return Ok(self.gate.clone()),
                // Another process was faster.
                Err(error) if error.code() == Some(409) => {}
                Err(error) if error.code() == Some(404) && step == Step::Create => {
                    return Err(self.no_namespace());
                }
                Err(error) => {
                    self.give_up_if_hopeless(error)?;
                    sleep(self.terms.retry_period).await;
                }
            }
        }
    }

    /// Whether a lease that could not be had can be had now; no, where the API server does not answer.
    ///
    /// # Errors
    /// Why it still cannot.
    pub(super) async fn probe(&mut self) -> Result<bool, LeaseError> {
        let tried = match self.look().await {
            Ok(()) if self.view.lease.is_none() => self.write(Step::Create).await,
            // Changes nothing, and needs the right to change it.
            Ok(()) => self.patch(json!({}), Map::new()).await.map(drop),
            Err(error) => Err(error),
        };
        let Err(error) = tried else {
            return Ok(true);
        };
        match error.code() {
            // Another process has it.
            Some(409) => Ok(true),
            Some(404) => Err(self.no_namespace()),
            Some(_) | None => self.give_up_if_hopeless(error).map(|()| false),
        }
    }

    fn no_namespace(&self) -> LeaseError {
        LeaseError::NoNamespace {
            namespace: self.target.namespace.clone(),
            name: self.target.name.clone(),
        }
    }

    /// Renews the lease until it is lost; then the gate is closed.
    ///
    /// *Cancellation*: may be called again, within the renew deadline.
    pub async fn keep(&mut self) -> Lost {
        loop {
            match decide(&self.me, &self.terms, &self.view, self.now()) {
                Step::Wait(time) => sleep(time).await,
                step @ Step::Renew => {
                    if let Err(error) = self.write(step).await {
                        tracing::warn!(lease = %self.target, error = chain(&error), "the lease is not renewed");
                        let is_other = matches!(error.code(), Some(404 | 409));
                        // Another's, or ours by a renewal whose answer was lost: then it is renewed at once.
                        if is_other && self.look().await.is_ok() {
                            self.view.tried_at = None;
                        }
                    }
                }
                Step::Create | Step::Take { .. } | Step::Resign => return self.lose(),
            }
        }
    }

    /// Lets the lease go, so that the next one need not wait for its end. The gate is closed first: call it when
    /// nothing of ours writes any more.
    pub async fn release(&mut self) {
        self.gate.close();
        if self.view.renewed_at.take().is_none() {
            return;
        }
        let spec = record::released(self.next_time());
        let mut released = self.patch(spec.clone(), Map::new()).await;
        // The answer to the last renewal may have been lost.
        if matches!(&released, Err(error) if error.code() == Some(409))
            && self.look().await.is_ok()
            && self.holder().as_deref() == Some(&self.me)
        {
            released = self.patch(spec, Map::new()).await;
        }
        if let Err(error) = released {
            tracing::warn!(lease = %self.target, error = chain(&error), "the lease is not released, and expires");
        }
    }

    /// Acts no more, as a process that was killed: the lease is not released, and expires. Requests that were sent may
    /// still arrive, and no other process acts before they have had that time.
    pub(super) fn abandon(&mut self) {
        self.gate.close();
        self.view.renewed_at = None;
    }

    /// The gate of the present leadership.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The holder of the lease, as far as was seen.
    pub fn holder(&self) -> Option<String> {
        let lease = self.view.lease.as_ref();
        lease.and_then(|lease| lease.record.holder.clone())
    }

    fn lose(&mut self) -> Lost {
        self.abandon();
        match self.holder() {
            Some(holder) if holder == self.me => Lost::NotRenewed(self.terms.renew_deadline),
            Some(holder) => Lost::Taken(holder),
            None => Lost::Taken("no process".to_owned()),
        }
    }

    /// Sees what the lease says now.
    async fn look(&mut self) -> Result<(), ApiError> {
        let found = self.in_time(self.requests.get(&self.target)).await?;
        let before = self.view.lease.take();
        let now = self.now();
        self.view.lease = found.map(|lease| Sighting::of(Record::of(&lease), now, before));
        Ok(())
    }

    /// Writes what the step says, and opens the gate.
    async fn write(&mut self, step: Step) -> Result<(), ApiError> {
        let (sent, time) = (Instant::now(), self.clock.now());
        self.view.tried_at = Some(self.now());
        let written_time = self.next_time();
        let duration = self.terms.lease_duration;
        let answer = match step {
            Step::Create => {
                let spec = record::taken(&self.me, duration, 0, written_time);
                let mut lease = json!({
                    "apiVersion": LEASE.api_version(),
                    "kind": LEASE.kind,
                    "metadata": {"name": self.target.name, "namespace": self.target.namespace},
                    "spec": spec,
                });
                if let Some((annotation, Some(value))) = self.annotation {
                    lease["metadata"]["annotations"] = json!({annotation: value});
                }
                self.in_time(self.requests.create(&self.target, &lease))
                    .await?
            }
            Step::Take { transitions } => {
                let spec = record::taken(&self.me, duration, transitions, written_time);
                let annotations = self
                    .annotation
                    .map(|(name, value)| (name.to_owned(), json!(value)));
                self.patch(spec, annotations.into_iter().collect()).await?
            }
            Step::Renew => {
                let spec = record::renewed(duration, written_time);
                self.patch(spec, Map::new()).await?
            }
            Step::Wait(_) | Step::Resign => return Ok(()),
        };
        let sent_at = sent - self.started;
        self.view.lease = Some(Sighting {
            record: Record::of(&answer.object_of(&self.target)?),
            seen_at: self.now(),
        });
        if self.view.renewed_at.is_none() {
            self.gate = Gate::closed(self.clock.clone());
        }
        self.view.renewed_at = Some(sent_at);
        self.gate.hold_until(sent, time, self.terms.renew_deadline);
        Ok(())
    }

    /// Changes the version of the lease that was seen, and no other.
    async fn patch(
        &self,
        spec: Value,
        annotations: Map<String, Value>,
    ) -> Result<Answer, ApiError> {
        let lease = self.view.lease.as_ref();
        let version = lease.map(|lease| lease.record.resource_version.as_str());
        let mut body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        if !annotations.is_empty() {
            body["metadata"]["annotations"] = annotations.into();
        }
        let answer = self
            .requests
            .patch(&self.target, None, PatchKind::Merge, body);
        self.in_time(answer).await
    }

    /// An answer that comes so late that another try would be too late is none.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let limit = self.terms.renew_deadline / 4;
        let answer = timeout(limit, answer).await;
        answer.unwrap_or_else(|_| Err(ApiError::timeout("request", &self.target, limit)))
    }

    fn give_up_if_hopeless(&self, source: ApiError) -> Result<(), LeaseError> {
        let (namespace, name) = (self.target.namespace.clone(), self.target.name.clone());
        if source.is_namespace_terminating() {
            return Err(LeaseError::Terminating { namespace, name });
        }
        if source.code() == Some(403) {
            return Err(LeaseError::Forbidden {
                namespace,
                name,
                source,
            });
        }
        tracing::warn!(lease = %self.target, error = chain(&source), "the lease cannot be taken yet");
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn next_time(&mut self) -> Timestamp {
        let next = self.last_time.saturating_add(Duration::from_micros(1));
        self.last_time = self.clock.now().max(next.unwrap_or(Timestamp::MAX));
        self.last_time
    }
}
