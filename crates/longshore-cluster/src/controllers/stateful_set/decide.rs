//! The next steps of a StatefulSet. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{
    build,
    model::{Desired, Observed, Update, revision_of},
    revisions::{self, Revision, Revisions},
};
use crate::controllers::workloads::{
    claim::Claimant,
    hands::{Note, Request, Target},
    pods,
};

/// The requests of one round, and what the status is made of.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) requests: Vec<Request>,
    pub(super) revisions: Revisions,
    /// The pods of the set as they were before the round.
    pub(super) pods: Vec<Pod>,
    pub(super) again: Option<Duration>,
}

pub(super) fn decide(desired: &Desired, observed: &Observed) -> Plan {
    let (mut requests, mine) = claim_pods(desired, observed);
    let revisions = revisions::find(desired, &observed.revisions);
    if !desired.set.is_deleting() && !revisions.is_collision {
        requests.extend(revisions.requests.iter().cloned());
        let step = Step {
            desired,
            observed,
            revisions: &revisions,
            by_ordinal: mine
                .iter()
                .filter_map(|pod| Some((desired.ordinal_of(pods::name(pod))?, pod)))
                .collect(),
        };
        requests.extend(step.requests());
        let in_use: BTreeSet<&str> = mine.iter().map(revision_of).collect();
        requests.extend(revisions.clean_up(desired.history_limit, &in_use));
    }
    Plan {
        again: pods::next_available(mine.iter(), desired.min_ready, observed.now),
        requests,
        revisions,
        pods: mine,
    }
}

fn claim_pods(desired: &Desired, observed: &Observed) -> (Vec<Request>, Vec<Pod>) {
    let (mut claims, mut mine) = (Vec::new(), Vec::new());
    let claimant = Claimant {
        owner: &desired.set,
        reference: desired.reference(),
        target: Target::Pod,
    };
    for pod in &observed.pods {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let is_member = desired.ordinal_of(pods::name(pod)).is_some();
        let is_selected = desired.selector.matches(&labels) && is_member;
        if claimant.takes(&pod.metadata, is_selected, true, &mut claims) {
            mine.push(pod.clone());
        }
    }
    (claims, mine)
}

/// What the steps of a round are decided on.
struct Step<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    revisions: &'a Revisions,
    by_ordinal: BTreeMap<usize, &'a Pod>,
}

/// Whether the round goes on after one pod.
enum Flow {
    On,
    /// The next one has to wait.
    Stop,
}

impl Step<'_> {
    fn requests(&self) -> Vec<Request> {
        let mut requests = Vec::new();
        for ordinal in self.wanted() {
            if let Flow::Stop = self.keep(ordinal, &mut requests) {
                return requests;
            }
        }
        let surplus = self
            .by_ordinal
            .iter()
            .filter(|(it, _)| !self.wanted().contains(*it));
        let surplus: Vec<&Pod> = surplus.map(|(_, pod)| *pod).collect();
        let ill = surplus.iter().find(|pod| !is_healthy(pod));
        for pod in surplus.iter().rev() {
            let is_first_ill = ill.is_some_and(|ill| pods::name(ill) == pods::name(pod));
            if let Flow::Stop = self.dismiss(pod, is_first_ill, &mut requests) {
                return requests;
            }
        }
        self.replace_one(&mut requests);
        requests
    }

    fn wanted(&self) -> std::ops::Range<usize> {
        self.desired.start..self.desired.start + self.desired.n_replicas
    }

    /// In an ordered set the next pod waits for this one.
    fn wait(&self) -> Flow {
        if self.desired.is_ordered {
            Flow::Stop
        } else {
            Flow::On
        }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_running_and_ready(pod)
            && pods::is_available(pod, self.desired.min_ready, self.observed.now)
    }

    /// Makes the pod of a number, or sees how it is.
    fn keep(&self, ordinal: usize, requests: &mut Vec<Request>) -> Flow {
        let Some(pod) = self.by_ordinal.get(&ordinal) else {
            requests.extend(build::missing_claims(
                self.desired,
                ordinal,
                &self.observed.claims,
            ));
            requests.push(Request::Create {
                target: Target::Pod,
                object: build::pod(self.desired, ordinal, self.revision_for(ordinal)),
            });
            let name = self.desired.pod_name(ordinal);
            let set = self.desired.set.name();
            let text = format!("create Pod {name} in StatefulSet {set} successful");
            requests.push(Request::Announce(Note::normal("SuccessfulCreate", text)));
            return self.wait();
        };
        if pods::is_deleting(pod) {
            return self.wait();
        }
        if matches!(pods::phase(pod), "Succeeded" | "Failed") {
            requests.push(delete(pod));
            let text = format!(
                "StatefulSet {} is recreating ended Pod {}",
                self.desired.set.name(),
                pods::name(pod)
            );
            requests.push(Request::Announce(Note::warning(
                "RecreatingFailedPod",
                text,
            )));
            return self.wait();
        }
        if pods::phase(pod) == "Pending" {
            // Else it would wait for ever for a claim that was deleted.
            let claims = &self.observed.claims;
            requests.extend(build::missing_claims(self.desired, ordinal, claims));
        }
        if self.is_available(pod) {
            Flow::On
        } else {
            self.wait()
        }
    }

    /// Deletes a pod that is one too many. An ordered set does not get smaller while a pod is not available: what is
    /// wrong with one may be wrong with all. Only the first pod that is not healthy goes, so that the set is not stuck
    /// with it.
    fn dismiss(&self, pod: &Pod, is_first_ill: bool, requests: &mut Vec<Request>) -> Flow {
        if pods::is_deleting(pod) {
            return self.wait();
        }
        if self.desired.is_ordered && !self.is_available(pod) && !is_first_ill {
            return Flow::Stop;
        }
        requests.push(delete(pod));
        requests.push(self.note_deletion(pod));
        self.wait()
    }

    /// Deletes the last pod of an old template, when all after it are new and serve.
    fn replace_one(&self, requests: &mut Vec<Request>) {
        let Update::Rolling { partition } = self.desired.update else {
            return;
        };
        // The partition is a number of pods that stay.
        let range = self.wanted();
        for ordinal in range
            .filter(|it| it - self.desired.start >= partition)
            .rev()
        {
            let Some(pod) = self.by_ordinal.get(&ordinal) else {
                return;
            };
            if revision_of(pod) != self.revisions.update.name && !pods::is_deleting(pod) {
                requests.push(delete(pod));
                requests.push(self.note_deletion(pod));
                return;
            }
            if pods::is_deleting(pod) || !self.is_available(pod) {
                return;
            }
        }
    }

    /// The revision that a new pod gets.
    fn revision_for(&self, ordinal: usize) -> &Revision {
        match self.desired.update {
            Update::Rolling { partition } if ordinal - self.desired.start < partition => {
                &self.revisions.current
            }
            Update::Rolling { .. } | Update::OnDelete => &self.revisions.update,
        }
    }

    fn note_deletion(&self, pod: &Pod) -> Request {
        let (name, set) = (pods::name(pod), self.desired.set.name());
        let text = format!("delete Pod {name} in StatefulSet {set} successful");
        Request::Announce(Note::normal("SuccessfulDelete", text))
    }
}

pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

fn is_healthy(pod: &Pod) -> bool {
    is_running_and_ready(pod) && !pods::is_deleting(pod)
}

/// Whether the pods are as the status may say that the update is done.
pub(super) fn count(pods: &[Pod], is_counted: impl Fn(&Pod) -> bool) -> usize {
    pods.iter().filter(|pod| is_counted(pod)).count()
}

/// How many pods have been ready for long enough.
pub(super) fn n_available(desired: &Desired, pods: &[Pod], now: Timestamp) -> usize {
    count(pods, |pod| {
        is_running_and_ready(pod) && pods::is_available(pod, desired.min_ready, now)
    })
}

fn delete(pod: &Pod) -> Request {
    Request::Delete {
        target: Target::Pod,
        name: pods::name(pod).to_owned(),
        uid: pods::uid(pod).to_owned(),
    }
}
