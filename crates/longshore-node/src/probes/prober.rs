//! Runs the probes of running containers periodically.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{
    ask::{Accepted, ask},
    wish::{Kind, ProbeWish},
};
use crate::{
    network::PodAddress,
    shim::{ExecTarget, protocol::AttemptId},
};

/// Outcomes that wait; a prober waits when there are more.
const BACKLOG: usize = 16;

/// The outcome of one run of a probe.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) id: AttemptId,
    pub(crate) kind: Kind,
    /// Why it failed.
    pub(crate) result: Result<(), String>,
}

/// The probers of one pod. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Probers {
    running: BTreeMap<(AttemptId, Kind), AbortOnDropHandle<()>>,
    tell: mpsc::Sender<Outcome>,
    told: mpsc::Receiver<Outcome>,
}

impl Probers {
    pub(crate) fn new() -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        Self {
            running: BTreeMap::new(),
            tell,
            told,
        }
    }

    /// The next outcome; never resolves while no prober runs.
    pub(crate) async fn next(&mut self) -> Outcome {
        match self.told.recv().await {
            Some(outcome) => outcome,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Ends the probers that are not in `wanted`. Returns those of `wanted` that have to be started.
    pub(crate) fn retain(&mut self, wanted: &[(AttemptId, Kind)]) -> Vec<(AttemptId, Kind)> {
        self.running.retain(|key, _| wanted.contains(key));
        let is_new = |key: &&(AttemptId, Kind)| !self.running.contains_key(*key);
        wanted.iter().filter(is_new).cloned().collect()
    }

    /// Starts a prober.
    pub(crate) fn begin(
        &mut self,
        id: AttemptId,
        kind: Kind,
        wish: ProbeWish,
        pod_ip: PodAddress,
        exec: ExecTarget,
    ) {
        let (tell, key) = (self.tell.clone(), (id.clone(), kind));
        let task = tokio::spawn(async move {
            tokio::time::sleep(wish.initial_delay).await;
            loop {
                let question = &wish.question;
                let result = ask(question, Accepted::Success, &pod_ip, &exec, wish.timeout).await;
                let outcome = Outcome {
                    id: id.clone(),
                    kind,
                    result,
                };
                if tell.send(outcome).await.is_err() {
                    return;
                }
                tokio::time::sleep(wish.period).await;
            }
        });
        self.running.insert(key, AbortOnDropHandle::new(task));
    }
}
