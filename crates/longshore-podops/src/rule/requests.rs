//! Which pods a webhook is asked about together, and with which `traceId`. Pure.
//!
//! The status has each request before it is sent, so that a controller that is killed is followed by one that repeats
//! the same requests. It is written with what the rule says of the pods, and needs no write of its own, unless pods that
//! the webhook has refused in several answers are asked about together.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_api::podops::{RuleRequest, RuleWebhook, RuleWebhookStatus};
use longshore_core::names::{hashed_uuid, suffix};

use super::{
    evaluate::{Before, Subject},
    task::{asked_after, last_ended, last_ends},
    webhook::{Asking, Heard, Question},
};

/// The requests about pods that no task is about.
pub(super) struct Requests<'a> {
    pub(super) asking: &'a Asking<'a>,
    pub(super) webhook: &'a RuleWebhook,
    /// What the webhook has answered to this process, by what brought the pod to the rule.
    pub(super) heard: &'a BTreeMap<String, Heard>,
    /// What is on record.
    pub(super) status: &'a RuleWebhookStatus,
    pub(super) before: &'a Before<'a>,
}

impl Requests<'_> {
    /// What is to be asked about these pods now, and when the next pods are due. `status` gets what has to be on record
    /// before that.
    ///
    /// A request stays as it is until this process has its answer: the process that sent it may have been killed. The
    /// other pods that are due are asked about together.
    pub(super) fn about(
        &self,
        pods: &[&Subject],
        status: &mut RuleWebhookStatus,
    ) -> (Vec<Question>, Option<Timestamp>) {
        let now = self.before.now;
        let ends = last_ends(self.status);
        let (mut questions, mut later) = (Vec::new(), Vec::new());
        let mut others: BTreeMap<&str, &Subject> = BTreeMap::new();
        others.extend(pods.iter().map(|pod| (pod.name.as_str(), *pod)));
        for request in &self.status.requests {
            let mut kept: Vec<&Subject> = Vec::new();
            for (name, mark) in &request.pods {
                let pod = others.get(name.as_str());
                kept.extend(pod.filter(|pod| self.mark(pod) == *mark));
            }
            if !kept.is_empty() && kept.iter().all(|pod| self.heard_of(pod).is_none()) {
                // It is on record before its time where a task has just ended.
                let due_at = kept.iter().filter_map(|pod| self.due_at(pod, &ends)).max();
                match due_at.filter(|at| *at > now) {
                    Some(at) => later.push(at),
                    None => questions.push(self.question(&kept, request.trace_id.clone())),
                }
            } else {
                kept.retain(|pod| self.heard_of(pod).is_some_and(Heard::is_asked));
            }
            if !kept.is_empty() {
                let record = self.record(&kept, request.trace_id.clone());
                status.requests.push(record);
            }
            for pod in kept {
                others.remove(pod.name.as_str());
            }
        }
        let due = self.due(others.into_values(), &ends);
        later.extend(due.keys().copied().filter(|at| *at > now));
        for (at, pods) in due {
            let trace_id = self.trace_id(&pods, status);
            status.requests.push(self.record(&pods, trace_id.clone()));
            if at <= now {
                questions.push(self.question(&pods, trace_id));
            }
        }
        (questions, later.into_iter().min())
    }

    /// Pods by the time at which they are due. Those of one answer are due at the same time, and so are those of a task
    /// that has ended, whichever process followed it.
    fn due<'p>(
        &self,
        pods: impl Iterator<Item = &'p Subject>,
        ends: &BTreeMap<&str, Timestamp>,
    ) -> BTreeMap<Timestamp, Vec<&'p Subject>> {
        let now = self.before.now;
        let mut due: BTreeMap<Timestamp, Vec<&Subject>> = BTreeMap::new();
        for pod in pods {
            if let Some(at) = self.due_at(pod, ends) {
                due.entry(at.max(now)).or_default().push(pod);
            }
        }
        due
    }

    /// When the webhook may be asked about a pod; `None` where it is not asked. `ends` are those of the tasks on record.
    fn due_at(&self, pod: &Subject, ends: &BTreeMap<&str, Timestamp>) -> Option<Timestamp> {
        let now = self.before.now;
        let Some(heard) = self.heard_of(pod) else {
            let ended_at = ends.get(pod.name.as_str());
            return Some(ended_at.map_or(now, |at| asked_after(*at, now)));
        };
        heard.due_at(self.status, now)
    }

    fn heard_of(&self, pod: &Subject) -> Option<&Heard> {
        self.heard.get(&pod.occasion)
    }

    /// Made of what is asked.
    fn trace_id(&self, pods: &[&Subject], status: &RuleWebhookStatus) -> String {
        let names: BTreeSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        let ended = last_ended(status, |name| names.contains(name));
        let mut occasions: Vec<&str> = pods.iter().map(|pod| pod.occasion.as_str()).collect();
        occasions.sort_unstable();
        let seed: [&str; 5] = [
            self.before.seed,
            self.asking.rule,
            self.asking.stage.as_str(),
            ended,
            &occasions.join("\n"),
        ];
        hashed_uuid(&seed.join("\n"))
    }

    fn record(&self, pods: &[&Subject], trace_id: String) -> RuleRequest {
        let marks = pods.iter().map(|pod| (pod.name.clone(), self.mark(pod)));
        RuleRequest {
            trace_id,
            pods: marks.collect(),
        }
    }

    fn question(&self, pods: &[&Subject], trace_id: String) -> Question {
        let pods = pods
            .iter()
            .map(|pod| (pod.occasion.clone(), pod.name.clone()));
        Question {
            rule: self.asking.rule.to_owned(),
            stage: self.asking.stage,
            webhook: self.webhook.clone(),
            pods: pods.collect(),
            trace_id,
        }
    }

    /// What brought a pod to this version of the rule.
    fn mark(&self, pod: &Subject) -> String {
        suffix(&format!("{}\n{}", self.before.seed, pod.occasion))
    }
}
