//! The actor's part in probes: which containers are probed, and what an outcome means.

use jiff::Timestamp;
use kube::runtime::events::EventType;

use super::Actor;
use crate::{
    clock,
    pod::model::{AttemptState, Ending},
    probes::{Health, Kind, Outcome, Verdict},
    shim::{
        ExecTarget,
        protocol::{AttemptId, Command},
    },
};

const KINDS: [Kind; 3] = [Kind::Startup, Kind::Liveness, Kind::Readiness];

impl Actor {
    /// Takes over what an earlier node has published about containers that still run.
    pub(super) fn recall_health(&mut self) {
        let status = self.pod.status.as_ref();
        let known = status.and_then(|it| it.container_statuses.as_ref());
        for published in known.into_iter().flatten() {
            let Some(wish) = self
                .desired
                .main
                .iter()
                .find(|it| it.name == published.name)
            else {
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
                self.local.health.insert(id, health);
            }
        }
    }

    /// Starts the probers that are due, and ends all others.
    pub(super) fn sync_probers(&mut self) {
        let mut wanted = Vec::new();
        let mut inits = Vec::new();
        for wish in self
            .desired
            .main
            .iter()
            .filter(|_| self.local.stop.is_none())
        {
            let Some(last) = self.local.last(&wish.name) else {
                continue;
            };
            let AttemptState::Running(started) = &last.state else {
                continue;
            };
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
            let wish = self.desired.main.iter().find(|it| it.name == id.container);
            let wish = wish.and_then(|it| it.probes.get(kind).cloned());
            if let (Some(init), Some(wish)) = (init, wish) {
                let exec = ExecTarget {
                    shim_command: self.shared.config.shim_command.clone(),
                    init,
                };
                self.probers.begin(id, kind, wish, self.pod_ip, exec);
            }
        }
    }

    /// Takes an answer.
    pub(super) fn learn_probe(&mut self, outcome: Outcome) {
        let Outcome { id, kind, result } = outcome;
        let Some(wish) = self.desired.main.iter().find(|it| it.name == id.container) else {
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

    /// Sends one container its stop signal, because its startup or liveness probe has failed.
    pub(super) async fn end(&mut self, id: AttemptId, now: Timestamp) {
        let kind = self.local.health.get(&id).and_then(|it| it.doom);
        let kind = kind.map_or("liveness", |(kind, _)| match kind {
            Kind::Startup => "startup",
            Kind::Liveness | Kind::Readiness => "liveness",
        });
        let ending = Ending {
            since: now,
            is_killed: false,
        };
        self.local.ending.insert(id.clone(), ending);
        let note = format!(
            "Container {} failed {kind} probe, will be restarted",
            id.container
        );
        self.announce(EventType::Normal, "Killing", note);
        let wish = self.desired.containers().find(|it| it.name == id.container);
        let signal = wish.map_or(nix::libc::SIGTERM, |it| it.stop_signal);
        self.send(Command::Signal { id, signal }).await;
    }

    /// Kills one container that did not end after its stop signal.
    pub(super) async fn kill_one(&mut self, id: AttemptId) {
        if let Some(ending) = self.local.ending.get_mut(&id) {
            ending.is_killed = true;
        }
        self.send(Command::Kill { id }).await;
    }
}
