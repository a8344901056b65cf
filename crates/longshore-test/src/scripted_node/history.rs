//! The pods that a scripted node ran.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// One run of a pod's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRun {
    /// The pod's uid.
    pub uid: String,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The pod's labels when it started.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations when it started.
    pub annotations: BTreeMap<String, String>,
    /// When the container started.
    pub started_at: Timestamp,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// How it ended; `None` while it runs, and where the pod was taken away from under it.
    pub exit_code: Option<i32>,
}

/// Everything that a node ran, in the order in which it started.
#[derive(Clone, Debug, Default)]
pub struct History {
    runs: Vec<PodRun>,
}

impl History {
    /// All runs.
    pub fn runs(&self) -> &[PodRun] {
        &self.runs
    }

    /// The runs of the same `identity`, for all that have one.
    pub fn by(
        &self,
        identity: impl Fn(&PodRun) -> Option<String>,
    ) -> BTreeMap<String, Vec<&PodRun>> {
        let mut runs: BTreeMap<String, Vec<&PodRun>> = BTreeMap::new();
        for run in &self.runs {
            if let Some(identity) = identity(run) {
                runs.entry(identity).or_default().push(run);
            }
        }
        runs
    }

    /// Identities that ran more than once ("one pod per try"), in words.
    pub fn repeated(&self, identity: impl Fn(&PodRun) -> Option<String>) -> Vec<String> {
        let runs = self.by(identity);
        let repeated = runs.into_iter().filter(|(_, runs)| runs.len() > 1);
        repeated
            .map(|(identity, runs)| format!("{identity} ran {} times: {}", runs.len(), pods(&runs)))
            .collect()
    }

    /// Identities that ran twice at once ("never two at once"), in words.
    pub fn overlapping(&self, identity: impl Fn(&PodRun) -> Option<String>) -> Vec<String> {
        let mut found = Vec::new();
        for (identity, runs) in self.by(identity) {
            for pair in runs.windows(2) {
                if let [first, second] = pair
                    && first.ended_at.is_none_or(|end| end > second.started_at)
                {
                    found.push(format!(
                        "{identity} ran twice at once: {}",
                        pods(&[first, second])
                    ));
                }
            }
        }
        found
    }

    pub(super) fn start(&mut self, pod: &Pod, now: Timestamp) {
        let meta = &pod.metadata;
        self.runs.push(PodRun {
            uid: meta.uid.clone().unwrap_or_default(),
            pod: format!(
                "{}/{}",
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default()
            ),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            started_at: now,
            ended_at: None,
            exit_code: None,
        });
    }

    pub(super) fn end(&mut self, uid: &str, exit_code: Option<i32>, now: Timestamp) {
        let runs = self.runs.iter_mut();
        for run in runs.filter(|run| run.uid == uid && run.ended_at.is_none()) {
            run.ended_at = Some(now);
            run.exit_code = exit_code;
        }
    }
}

fn pods(runs: &[&PodRun]) -> String {
    let pods = runs.iter().map(|run| format!("{} ({})", run.pod, run.uid));
    pods.collect::<Vec<_>>().join(", ")
}
