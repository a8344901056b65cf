//! The pods of a Job, counted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use super::{
    indexes::Indexes,
    model::{Desired, Mode, count},
    pod, policy,
    policy::Outcome,
};
use crate::controllers::workloads::pods;

/// The counts of one round: what the status has, and what the pods say that it does not have yet.
pub(super) struct Tally<'a> {
    pub(super) pods: Vec<&'a Pod>,
    pub(super) active: Vec<&'a Pod>,
    pub(super) n_terminating: usize,
    pub(super) n_succeeded: usize,
    pub(super) n_failed: usize,
    /// The indexes that the status has.
    pub(super) written: Indexes,
    /// These, and those of pods whose success is not written down yet.
    pub(super) succeeded: Indexes,
    /// Indexes that are given up; none without a limit of each index.
    pub(super) failed: Option<Indexes>,
    /// The last failed pod of each index that will be tried again. It keeps its finalizer, and so its count of
    /// failures, until there is another one.
    pub(super) awaiting: BTreeMap<usize, &'a Pod>,
}

impl<'a> Tally<'a> {
    pub(super) fn of(desired: &Desired, pods: Vec<&'a Pod>) -> Tally<'a> {
        let active: Vec<&Pod> = pods
            .iter()
            .copied()
            .filter(|it| pods::is_active(it))
            .collect();
        let uncounted = desired.status.uncounted_terminated_pods.as_ref();
        let succeeded = uncounted
            .and_then(|it| it.succeeded.as_deref())
            .unwrap_or_default();
        let failed = uncounted
            .and_then(|it| it.failed.as_deref())
            .unwrap_or_default();
        // Pods whose end the status does not have in any way.
        let new = |known: &[String]| {
            let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
            let is_new = |it: &&Pod| {
                let is_valid = desired.is_index(pod::index(it));
                pod::is_tracked(it) && is_valid && !known.contains(pods::uid(it))
            };
            pods.iter().copied().filter(is_new).collect::<Vec<&Pod>>()
        };
        let n_new_succeeded = new(succeeded)
            .into_iter()
            .filter(|it| pod::has_succeeded(it))
            .count();
        let is_counted = |it: &&Pod| {
            pod::has_failed(desired, it) && policy::of_failure(desired, it) != Outcome::Ignored
        };
        let n_new_failed = new(failed).into_iter().filter(is_counted).count();
        let mut tally = Tally {
            n_terminating: pods.iter().filter(|it| pod::is_terminating(it)).count(),
            n_succeeded: count(desired.status.succeeded.unwrap_or(0))
                + n_new_succeeded
                + succeeded.len(),
            n_failed: count(desired.status.failed.unwrap_or(0)) + n_new_failed + failed.len(),
            written: Indexes::default(),
            succeeded: Indexes::default(),
            failed: None,
            awaiting: BTreeMap::new(),
            active,
            pods,
        };
        if let Mode::Indexed { completions, limit } = desired.mode {
            tally.count_indexes(desired, completions, limit);
        }
        tally
    }

    fn count_indexes(&mut self, desired: &Desired, end: usize, limit: Option<i32>) {
        let text = |it: &Option<String>| Indexes::parse(it.as_deref().unwrap_or_default(), end);
        let of = |pods: &[&Pod], is_meant: &dyn Fn(&Pod) -> bool| -> Indexes {
            let meant = pods.iter().filter(|it| pod::is_tracked(it) && is_meant(it));
            let indexes = meant.filter_map(|it| pod::index(it));
            indexes.filter(|it| *it < end).collect()
        };
        self.written = text(&desired.status.completed_indexes);
        let new = of(&self.pods, &|it| pod::has_succeeded(it));
        self.succeeded = self.written.with(&new);
        self.n_succeeded = self.succeeded.total();
        let Some(limit) = limit else { return };
        let new = of(&self.pods, &|it| fails_index(desired, it, limit));
        self.failed = Some(text(&desired.status.failed_indexes).with(&new));
        self.awaiting = self.find_awaiting(desired, end);
    }

    /// Indexes that have a pod.
    pub(super) fn active_indexes(&self) -> Indexes {
        self.active.iter().filter_map(|it| pod::index(it)).collect()
    }

    fn find_awaiting(&self, desired: &Desired, end: usize) -> BTreeMap<usize, &'a Pod> {
        let failed = self.failed.clone().unwrap_or_default();
        let over = self.succeeded.with(&failed).with(&self.active_indexes());
        let mut awaiting: BTreeMap<usize, &Pod> = BTreeMap::new();
        let order = |it: &Pod| {
            let (counted, ignored) = pod::failures_before(it);
            (counted.saturating_add(ignored), pod::finished_at(it))
        };
        for pod in &self.pods {
            let index = pod::index(pod).filter(|it| *it < end && !over.has(*it));
            let Some(index) = index.filter(|_| pod::is_tracked(pod)) else {
                continue;
            };
            let is_later = awaiting
                .get(&index)
                .is_none_or(|it| order(it) <= order(pod));
            if pod::has_failed(desired, pod) && is_later {
                awaiting.insert(index, *pod);
            }
        }
        awaiting
    }
}

/// Whether a pod is the last that its index has had.
fn fails_index(desired: &Desired, pod: &Pod, limit: i32) -> bool {
    if !pod::has_failed(desired, pod) {
        return false;
    }
    match policy::of_failure(desired, pod) {
        Outcome::FailsIndex => true,
        Outcome::Ignored => false,
        Outcome::Counts | Outcome::FailsJob(_) => {
            let (counted, _) = pod::failures_before(pod);
            i64::from(counted) >= i64::from(limit)
        }
    }
}
