//! The status of a Job: what is counted, and which conditions hold. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::{
    decide::Verdict,
    model::{Desired, Mode, count},
    pod, policy,
    policy::Outcome,
    tally::Tally,
};
use crate::controllers::workloads::{
    hands::{Note, Request, Target},
    pods,
    status::{count as number, merge_status, time},
};

/// The most pods whose end one status names.
const MAX_UNCOUNTED: usize = 500;

/// A status as it shall be.
pub(super) struct Written<'a> {
    /// The write, unless the status says it already.
    pub(super) request: Option<Request>,
    pub(super) notes: Vec<Note>,
    /// Pods that the status has, once it is written.
    pub(super) counted: Vec<&'a Pod>,
}

/// The ends of pods that are not in the counts yet.
#[derive(Debug, Default)]
struct Uncounted {
    succeeded: Vec<String>,
    failed: Vec<String>,
}

impl Uncounted {
    fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    /// As the status has it.
    fn shown(&self) -> Value {
        let mut shown = Map::new();
        for (key, list) in [("succeeded", &self.succeeded), ("failed", &self.failed)] {
            if !list.is_empty() {
                shown.insert(key.into(), json!(list));
            }
        }
        shown.into()
    }

    /// As a merge patch says it: what is empty goes.
    fn patch(&self) -> Value {
        let list = |list: &[String]| {
            if list.is_empty() {
                Value::Null
            } else {
                json!(list)
            }
        };
        json!({"succeeded": list(&self.succeeded), "failed": list(&self.failed)})
    }
}

pub(super) fn write<'a>(
    desired: &Desired,
    tally: &Tally<'a>,
    verdict: Option<&Verdict>,
    now: Timestamp,
) -> Written<'a> {
    let known = &desired.status;
    let tracked = tally.pods.iter().filter(|it| pod::is_tracked(it));
    let tracked: BTreeSet<&str> = tracked.map(|it| pods::uid(it)).collect();
    let is_held = |uid: &&String| tracked.contains(uid.as_str());
    let before = known.uncounted_terminated_pods.clone().unwrap_or_default();
    let keep = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().filter(is_held).cloned().collect()
    };
    let mut uncounted = Uncounted {
        succeeded: keep(&before.succeeded),
        failed: keep(&before.failed),
    };
    // What was named, and is let go of, moves into the counts.
    let n_named = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let n_succeeded = count(known.succeeded.unwrap_or(0)) + n_named(&before.succeeded)
        - uncounted.succeeded.len();
    let n_failed =
        count(known.failed.unwrap_or(0)) + n_named(&before.failed) - uncounted.failed.len();
    let counted = count_ends(desired, tally, verdict, &mut uncounted);
    let is_full = uncounted.len() >= MAX_UNCOUNTED;

    let mut status = Map::new();
    status.insert("active".into(), number(tally.active.len()));
    let n_ready = tally.active.iter().filter(|it| pods::is_ready(it)).count();
    status.insert("ready".into(), json!(n_ready));
    status.insert("terminating".into(), json!(tally.n_terminating));
    status.insert("failed".into(), number(n_failed));
    let succeeded = match desired.mode {
        Mode::Plain { .. } => n_succeeded,
        Mode::Indexed { .. } => {
            let text = tally.succeeded.to_string();
            let shown = if text.is_empty() {
                Value::Null
            } else {
                json!(text)
            };
            status.insert("completedIndexes".into(), shown);
            let failed = tally.failed.as_ref().map(ToString::to_string);
            status.insert("failedIndexes".into(), json!(failed));
            tally.succeeded.total()
        }
    };
    status.insert("succeeded".into(), number(succeeded));
    let is_quiet = tally.active.is_empty() && tally.n_terminating == 0;
    let ends = is_quiet && uncounted.len() == 0 && !is_full;
    let mut conditions = Conditions::of(desired, now);
    conditions.set(verdict, ends);
    let (start, notes) = (conditions.start, conditions.notes);
    status.insert("startTime".into(), json!(start.map(time)));
    if verdict.is_some_and(|it| it.is_success) && ends {
        status.insert("completionTime".into(), json!(time(now)));
    }
    let list = conditions.list;
    let shown = if list.is_empty() {
        Value::Null
    } else {
        list.into()
    };
    status.insert("conditions".into(), shown);
    Written {
        request: request(desired, status, &uncounted),
        notes,
        counted,
    }
}

/// The write over the version that was decided on.
fn request(
    desired: &Desired,
    status: Map<String, Value>,
    uncounted: &Uncounted,
) -> Option<Request> {
    let key = "uncountedTerminatedPods";
    let present = desired.job.at("/status");
    let mut change = merge_status(present, status).unwrap_or_else(|| json!({}));
    if present.get(key) != Some(&uncounted.shown()) {
        change[key] = uncounted.patch();
    }
    let is_empty = change.as_object().is_none_or(Map::is_empty);
    (!is_empty).then(|| Request::PatchStatus {
        target: Target::Job,
        name: desired.job.name().to_owned(),
        patch: json!({
            "metadata": {
                "uid": desired.job.uid(), "resourceVersion": desired.job.meta.resource_version,
            },
            "status": change,
        }),
    })
}

/// Names the pods that have ended since, as far as there is room. Returns those that may lose their finalizer.
fn count_ends<'a>(
    desired: &Desired,
    tally: &Tally<'a>,
    verdict: Option<&Verdict>,
    uncounted: &mut Uncounted,
) -> Vec<&'a Pod> {
    let fails = verdict.is_some_and(|it| !it.is_success);
    let is_indexed = matches!(desired.mode, Mode::Indexed { .. });
    let mut ordered = tally.pods.clone();
    ordered.sort_by_key(|it| (pod::index(it), pods::name(it).to_owned()));
    let mut counted = Vec::new();
    let mut n_indexes = 0;
    for pod in ordered {
        let has_failed = pod::has_failed(desired, pod);
        let index = pod::index(pod);
        let awaiting = index.and_then(|it| tally.awaiting.get(&it));
        let is_awaiting = awaiting.is_some_and(|it| pods::uid(it) == pods::uid(pod));
        let ends = desired.job.is_deleting()
            || verdict.is_some()
            || pod::has_succeeded(pod)
            || (has_failed && !is_awaiting);
        if !pod::is_tracked(pod) || !ends {
            continue;
        }
        counted.push(pod);
        let uid = pods::uid(pod).to_owned();
        let is_named = uncounted.failed.contains(&uid) || uncounted.succeeded.contains(&uid);
        if is_named || !desired.is_index(index) {
            continue;
        }
        if pod::has_succeeded(pod) {
            if !is_indexed {
                uncounted.succeeded.push(uid);
            } else if index.is_some_and(|it| !tally.written.has(it)) {
                n_indexes += 1;
            }
        } else if (has_failed || fails) && policy::of_failure(desired, pod) != Outcome::Ignored {
            uncounted.failed.push(uid);
        }
        if n_indexes + uncounted.len() >= MAX_UNCOUNTED {
            break;
        }
    }
    counted
}

/// The conditions of a Job on their way to a new status.
struct Conditions {
    list: Vec<Value>,
    start: Option<Timestamp>,
    notes: Vec<Note>,
    is_deleting: bool,
    is_suspended: bool,
    now: Timestamp,
}

impl Conditions {
    fn of(desired: &Desired, now: Timestamp) -> Conditions {
        let list = desired.job.at("/status/conditions").as_array();
        Conditions {
            list: list.cloned().unwrap_or_default(),
            start: desired.started_at(now),
            notes: Vec::new(),
            is_deleting: desired.job.is_deleting(),
            is_suspended: desired.is_suspended(),
            now,
        }
    }

    fn set(&mut self, verdict: Option<&Verdict>, ends: bool) {
        let Some(verdict) = verdict else {
            if !self.is_deleting {
                self.set_suspended();
            }
            return;
        };
        let (aim, end) = if verdict.is_success {
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        };
        let (reason, message) = (verdict.reason.as_str(), verdict.message.as_str());
        self.ensure(aim, "True", reason, message);
        if ends {
            self.ensure(end, "True", reason, message);
            self.notes.push(if verdict.is_success {
                Note::normal("Completed", "Job completed".to_owned())
            } else {
                Note::warning(known_reason(reason), message.to_owned())
            });
        }
    }

    fn set_suspended(&mut self) {
        if self.is_suspended {
            if self.ensure("Suspended", "True", "JobSuspended", "Job suspended") {
                let note = Note::normal("Suspended", "Job suspended".to_owned());
                self.notes.push(note);
            }
        } else if self.ensure("Suspended", "False", "JobResumed", "Job resumed") {
            self.notes
                .push(Note::normal("Resumed", "Job resumed".to_owned()));
            self.start = Some(self.now);
        }
    }

    /// Makes a condition say this. Returns whether it said something else; a condition that never held needs not be
    /// denied.
    fn ensure(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let at = time(self.now);
        let new = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": at, "lastTransitionTime": at,
        });
        let is_same = |it: &Value| {
            let says = |key: &str, text: &str| it[key].as_str().unwrap_or("") == text;
            says("status", status) && says("reason", reason) && says("message", message)
        };
        match self.list.iter_mut().find(|it| it["type"] == kind) {
            Some(old) if is_same(old) => false,
            Some(old) => {
                *old = new;
                true
            }
            None if status == "False" => false,
            None => {
                self.list.push(new);
                true
            }
        }
    }
}

/// Reasons of Events are constants.
fn known_reason(reason: &str) -> &'static str {
    const REASONS: &[&str] = &[
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "FailedIndexes",
        "MaxFailedIndexesExceeded",
        "PodFailurePolicy",
    ];
    REASONS
        .iter()
        .find(|it| **it == reason)
        .copied()
        .unwrap_or("Failed")
}
