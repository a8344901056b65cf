//! The controller of evictions: it begins the operations of pods that their disruption budgets can spare, a namespace at
//! a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube::{Api, api::ListParams};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, REASON_EVICTION_REFUSED};
use longshore_core::{
    Announcement, Class, Classify, EventType, Incarnation, Never, ObjectRef, Resource, Seen,
    UnknownCause, error::chain,
};
use longshore_kit::{
    Answers, Applier, ApplyError, Cache, Clock, Controller, Memory, Notes, Parsed, RawObject,
    api_resource,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    caches::Caches,
    eviction::{self, Budget, EvictionEffect, EvictionPlan, Observed, TRIED_AGAIN},
    model::Pod,
    rule::Rule,
};

/// The namespace whose evictions are decided upon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EvictionsOf(pub(crate) String);

impl fmt::Display for EvictionsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evictions of {}", self.0)
    }
}

/// Decides about evictions.
#[derive(Debug)]
pub(crate) struct Evictions {
    pods: Arc<Cache<Parsed<Pod>>>,
    rules: Arc<Cache<Parsed<Rule>>>,
    budgets: Arc<Cache<Parsed<Budget>>>,
    applier: Applier,
    clock: Arc<dyn Clock>,
    memory: Memory<EvictionsOf, EvictionNotes>,
    notes: Notes<EvictionsOf, EvictionNotes>,
}

/// What came of the writes of a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EvictionNotes {
    failed: Failures,
    /// Pods whose operations were refused, for a reason that does not pass by itself.
    refused: Failures,
    /// Pods that have an Event about it.
    announced: Failures,
    /// Budgets that were written so that they are counted again.
    recounted: Failures,
}

/// Pods and budgets that could not be written, by their uids.
#[derive(Clone, Debug, Default, PartialEq)]
struct Failures(BTreeMap<String, Failure>);

/// A write that failed.
#[derive(Clone, Debug, PartialEq)]
struct Failure {
    /// When the first one of those failed that have followed one another.
    since: Timestamp,
    /// When the last one did.
    last: Timestamp,
    /// When it is tried again.
    until: Timestamp,
    why: String,
}

/// After this time without another failure the object was written, or is gone.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// After this time of refusals a pod gives others their turn: before its reservation is due to be renewed.
const LASTING: SignedDuration = SignedDuration::from_secs(50);
/// For so long it does.
const GIVEN_UP: Duration = Duration::from_secs(300);

impl Failures {
    /// Returns whether that is new: the last write of the object did not fail, or for another reason.
    fn note(&mut self, target: &ObjectRef, why: &str, now: Timestamp) -> bool {
        let (Some(uid), Ok(until)) = (&target.uid, now.checked_add(TRIED_AGAIN)) else {
            return true;
        };
        let Self(failures) = self;
        failures.retain(|_, failure| failure.lasts(GIVEN_UP, now));
        let before = failures.remove(uid);
        let before = before.filter(|before| before.lasts(FORGOTTEN, now));
        let failure = Failure {
            since: before.as_ref().map_or(now, |before| before.since),
            last: now,
            until,
            why: why.to_owned(),
        };
        failures.insert(uid.clone(), failure);
        before.is_none_or(|before| before.why != why)
    }

    /// The uids of objects that are not to be tried yet.
    fn at(&self, now: Timestamp) -> BTreeSet<String> {
        self.of(|failure| now < failure.until)
    }

    /// The uids of objects that failed for so long that others have their turn.
    fn lasting(&self, now: Timestamp) -> BTreeSet<String> {
        self.of(|failure| {
            let is_long = failure.last.duration_since(failure.since) >= LASTING;
            is_long && failure.lasts(GIVEN_UP, now)
        })
    }

    fn of(&self, is_meant: impl Fn(&Failure) -> bool) -> BTreeSet<String> {
        let failures = self.0.iter();
        let meant = failures.filter(|(_, failure)| is_meant(failure));
        meant.map(|(uid, _)| uid.clone()).collect()
    }
}

impl Failure {
    /// Whether so much time has not yet passed since it was to be tried again.
    fn lasts(&self, time: Duration, now: Timestamp) -> bool {
        let ends_at = self.until.checked_add(time);
        ends_at.is_ok_and(|ends_at| now < ends_at)
    }
}

impl Controller for Evictions {
    type Key = EvictionsOf;
    type Observed = Observed;
    type Status = Never;
    type Effect = EvictionEffect;
    type Question = Never;
    type Error = ApplyError;

    fn name(&self) -> &'static str {
        "podops.evictions"
    }

    async fn observe(
        &self,
        key: &EvictionsOf,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, ApplyError> {
        let EvictionsOf(namespace) = key;
        let mut observed = self.load(key).assemble(now);
        if eviction::is_short(&observed) {
            observed.others = self.others(namespace).await;
        }
        Ok(observed)
    }

    /// What came of writes is of interest for as long as pods are.
    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        match &observed.pods {
            Seen::Present(pods) if !pods.is_empty() => Seen::Present(any_life()),
            Seen::Present(_) | Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }

    fn decide(&self, observed: &Observed) -> EvictionPlan {
        eviction::decide(observed)
    }

    async fn persist(&self, _: &EvictionsOf, status: &Never) -> Result<(), ApplyError> {
        match *status {}
    }

    /// An object that another client wrote first is decided upon anew. Any other failure is about this object alone.
    async fn call(&self, key: &EvictionsOf, effect: &EvictionEffect) -> Result<(), ApplyError> {
        match self.applier.patch(key, effect.patch()).await {
            Err(error) if error.class() != Class::Conflict => {
                self.failed(key, effect, &error);
                Ok(())
            }
            Ok(()) => {
                if let EvictionEffect::CountAgain(patch) = effect {
                    let now = self.clock.now();
                    self.note(key, |notes| notes.recounted.note(&patch.target, "", now));
                }
                Ok(())
            }
            conflict => conflict,
        }
    }
}

/// What the caches and the memory have of a namespace.
struct Loaded {
    pods: Seen<Vec<Arc<Parsed<Pod>>>>,
    budgets: Seen<Vec<Arc<Parsed<Budget>>>>,
    rules: Seen<Vec<Arc<Parsed<Rule>>>>,
    notes: Arc<EvictionNotes>,
}

impl Loaded {
    fn assemble(self, now: Timestamp) -> Observed {
        let (pods, budgets) = concerned(self.pods, self.budgets, now);
        Observed {
            now,
            pods,
            budgets,
            // The other rules hold no pod, so that they change no count.
            rules: read_some(self.rules, Rule::rejects),
            others: Seen::Absent,
            failed: self.notes.failed.at(now),
            given_up: self.notes.refused.lasting(now),
            recounted: self.notes.recounted.at(now),
        }
    }
}

impl Evictions {
    /// A controller that reads these caches.
    pub(crate) fn new(caches: &Caches, applier: Applier, clock: Arc<dyn Clock>) -> Self {
        let (memory, notes) = Memory::new();
        Self {
            pods: Arc::clone(&caches.pods),
            rules: Arc::clone(&caches.rules),
            budgets: Arc::clone(&caches.budgets),
            applier,
            clock,
            memory,
            notes,
        }
    }

    /// What the runner keeps in step with its keys.
    pub(crate) fn memory(&self) -> &Memory<EvictionsOf, EvictionNotes> {
        &self.memory
    }

    fn note<R>(&self, key: &EvictionsOf, note: impl FnOnce(&mut EvictionNotes) -> R) -> R {
        self.notes.note(key, &any_life(), note)
    }

    fn load(&self, key: &EvictionsOf) -> Loaded {
        let EvictionsOf(namespace) = key;
        Loaded {
            pods: self.pods.beginning(namespace, ""),
            budgets: self.budgets.beginning(namespace, ""),
            rules: self.rules.beginning(namespace, ""),
            notes: self.memory.get(key, &any_life()),
        }
    }

    /// A write has failed: the log and an Event on each of its pods say so once, until it fails for another reason.
    fn failed(&self, key: &EvictionsOf, effect: &EvictionEffect, error: &ApplyError) {
        let (object, now) = (&effect.patch().target, self.clock.now());
        let why = chain(error);
        let cannot = match effect {
            EvictionEffect::Reserve(_) => "no disruption can be reserved",
            EvictionEffect::Begin(_) => "the eviction cannot begin",
            EvictionEffect::CountAgain(_) => "an old count cannot be renewed",
        };
        if self.note(key, |notes| notes.failed.note(object, &why, now)) {
            tracing::info!(%object, error = why, "{cannot}, trying again");
        } else {
            tracing::debug!(%object, error = why, "{cannot}, trying again");
        }
        // A failure that passes by itself, as that of an API server that is not there, is no reason to pass a pod over.
        if matches!(effect, EvictionEffect::Begin(_)) && error.class() != Class::Retry {
            self.note(key, |notes| notes.refused.note(object, &why, now));
        }
        for regarding in self.pods_of(&key.0, effect) {
            let note = format!("{cannot}: {object}: {why}");
            if self.note(key, |notes| notes.announced.note(&regarding, &note, now)) {
                let announcement = Announcement {
                    regarding,
                    event_type: EventType::Warning,
                    reason: REASON_EVICTION_REFUSED,
                    note,
                };
                self.applier.announce(&announcement, now);
            }
        }
    }

    /// The pods that an effect is about.
    fn pods_of(&self, namespace: &str, effect: &EvictionEffect) -> Vec<ObjectRef> {
        let patch = match effect {
            EvictionEffect::Begin(patch) => return vec![patch.target.clone()],
            EvictionEffect::CountAgain(_) => return Vec::new(),
            EvictionEffect::Reserve(patch) => patch,
        };
        let entries = patch.patch.pointer("/status/disruptedPods");
        let entries = entries.and_then(Value::as_object).into_iter().flatten();
        let known =
            entries.filter_map(|(name, _)| self.pods.get(namespace, name).present().cloned());
        known
            .filter_map(|pod| Some(pod.value()?.target.clone()))
            .collect()
    }

    /// Pods without the label. No watch delivers them: a list is made where a budget that holds an eviction is about
    /// some of them, and only then.
    async fn others(&self, namespace: &str) -> Seen<Vec<Pod>> {
        let client = self.applier.requests().client().clone();
        let pods: Api<RawObject> =
            Api::namespaced_with(client, namespace, &api_resource(Resource::POD));
        let others = ListParams::default().labels(&format!("{LABEL_CONTROL}!={CONTROLLED}"));
        match pods.list(&others).await {
            Ok(list) => {
                let others = list.items.iter();
                Seen::Present(others.filter_map(|it| it.read().ok()).collect())
            }
            Err(error) => Seen::unknown(UnknownCause::Unreachable, error.to_string()),
        }
    }
}

/// What can be read of these objects. A budget that cannot be read protects no pod, as for API servers.
pub(crate) fn read_all<T: DeserializeOwned + Clone>(
    objects: Seen<Vec<Arc<Parsed<T>>>>,
) -> Seen<Vec<T>> {
    read_some(objects, |_| true)
}

/// The same, of the objects that `is_asked_for` accepts. The controller of pods reports the pods that cannot be read.
fn read_some<T: DeserializeOwned + Clone>(
    objects: Seen<Vec<Arc<Parsed<T>>>>,
    is_asked_for: impl Fn(&T) -> bool,
) -> Seen<Vec<T>> {
    objects.map(|objects| {
        let values = objects.iter().filter_map(|object| object.value());
        let asked_for = values.filter(|value| is_asked_for(value));
        asked_for.map(|value| T::clone(value)).collect()
    })
}

/// The budgets that a pod waits for, or in which it keeps a reservation, or that may refuse its removal, with all pods that they count. What the other
/// budgets of the namespace count is of no consequence, and most of its pods may be theirs.
fn concerned(
    pods: Seen<Vec<Arc<Parsed<Pod>>>>,
    budgets: Seen<Vec<Arc<Parsed<Budget>>>>,
    now: Timestamp,
) -> (Seen<Vec<Pod>>, Seen<Vec<Budget>>) {
    let is_concerned = |pod: &Pod| eviction::is_concerned(pod, now);
    let mut waiting = Vec::new();
    for pod in pods.present().into_iter().flatten() {
        waiting.extend(pod.value().filter(|pod| is_concerned(pod)).cloned());
    }
    let budgets = read_some(budgets, |budget| {
        waiting.iter().any(|pod| budget.selects(pod))
    });
    let counted = budgets.present().map_or(&[][..], Vec::as_slice);
    let pods = read_some(pods, |pod| {
        let is_counted = counted.iter().any(|budget| budget.selects(pod));
        is_counted || is_concerned(pod)
    });
    (pods, budgets)
}

/// A namespace is nothing that is replaced by another one of its name.
fn any_life() -> Incarnation {
    Incarnation::of("")
}

#[cfg(test)]
mod tests;
