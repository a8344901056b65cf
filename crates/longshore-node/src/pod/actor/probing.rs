//! The actor's part in probes: which containers are probed, and what an outcome means.

use kube::runtime::events::EventType;

use super::Actor;
use crate::{
    clock,
    pod::model::{AttemptState, HookState},
    probes::{Health, Kind, Outcome, Verdict},
    shim::{ExecTarget, protocol::AttemptId},
};

const KINDS: [Kind; 3] = [Kind::Startup, Kind::Liveness, Kind::Readiness];

impl Actor {
    /// Takes over what an earlier node has published about containers that still run.
    pub(super) fn recall_health(&mut self) {
        let status = self.pod.status.as_ref();
        let main = status.and_then(|it| it.container_statuses.as_ref());
        let init = status.and_then(|it| it.init_container_statuses.as_ref());
        let known = main.into_iter().chain(init).flatten();
        for published in known {
            let Some(wish) = self.desired.find(&published.name) else {
                continue;
            };
            let Ok(attempt) = u32::try_from(published.restart_count) else {
                continue;
            };
            let runs = published
                .state
                .as_ref()
                .is_some_and(|it| it.running.is_some());
            if runs {
                let is_started = published.started == Some(true);
                let health = Health::published(&wish.probes, is_started, published.ready);
                let id = AttemptId {
                    container: wish.name.clone(),
                    attempt,
                };
                self.local.health.insert(id.clone(), health);
                // Else it would not have been published as running.
                if wish.post_start.is_some() {
                    self.local.post_start.insert(id, HookState::Done);
                }
            }
        }
    }

    /// Starts the probers that are due, and ends all others.
    pub(super) fn sync_probers(&mut self) {
        let mut wanted = Vec::new();
        let mut inits = Vec::new();
        let lasting = self.desired.lasting();
        for wish in lasting.filter(|_| self.local.stop.is_none()) {
            let Some(last) = self.local.last(&wish.name) else {
                continue;
            };
            let AttemptState::Running(started) = &last.state else {
                continue;
            };
            if !self.local.is_up(wish, last.number) {
                continue;
            }
            let id = AttemptId {
                container: wish.name.clone(),
                attempt: last.number,
            };
            let health = self.local.health_of(wish, last.number);
            for kind in KINDS {
                if wish.probes.get(kind).is_some() && health.asks(kind) {
                    wanted.push((id.clone(), kind));
                    inits.push(started.pid);
                }
            }
        }
        for (id, kind) in self.probers.retain(&wanted) {
            let index = wanted.iter().position(|it| *it == (id.clone(), kind));
            let init = index.and_then(|index| inits.get(index).copied());
            let wish = self.desired.find(&id.container);
            let wish = wish.and_then(|it| it.probes.get(kind).cloned());
            if let (Some(init), Some(wish)) = (init, wish) {
                let exec = self.exec_target(init);
                let pod_ip = self.shared.pod_address(self.pod_ip);
                self.probers.begin(id, kind, wish, pod_ip, exec);
            }
        }
    }

    /// A container as somewhere to run a command.
    pub(super) fn exec_target(&self, init: i32) -> ExecTarget {
        ExecTarget {
            shim_command: self.shared.config.shim_command.clone(),
            init,
        }
    }

    /// Takes an answer.
    pub(super) fn learn_probe(&mut self, outcome: Outcome) {
        let Outcome { id, kind, result } = outcome;
        let Some(wish) = self.desired.find(&id.container) else {
            return;
        };
        if self
            .local
            .last(&id.container)
            .is_none_or(|last| last.number != id.attempt)
        {
            return;
        }
        let mut health = self.local.health_of(wish, id.attempt);
        let verdict = health.learn(&wish.probes, kind, result.is_ok(), clock::now());
        let is_news = verdict != Verdict::AsBefore || health.is_first_failure(kind);
        self.local.health.insert(id, health);
        if let (Err(why), true) = (result, is_news) {
            let note = format!("{} probe failed: {why}", kind.as_str());
            self.announce(EventType::Warning, "Unhealthy", note);
        }
    }
}
