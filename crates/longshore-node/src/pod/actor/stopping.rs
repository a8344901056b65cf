//! The actor's part in hooks and in the end of containers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::runtime::events::EventType;

use super::Actor;
use crate::{
    pod::{
        directory,
        hooks::{Ended, Hook, HookKind},
        model::{AttemptState, BegunStop, Ending, HookState, Stop, StopCause},
    },
    probes::Kind,
    shim::protocol::{AttemptId, Command},
};

impl Actor {
    /// Begins to end all containers. What an earlier node began goes on: nothing is asked twice to end.
    pub(super) fn stop(&mut self, cause: StopCause, now: Timestamp) {
        let begun = self.local.begun_stop.take();
        let begun = begun.filter(|begun| !begun.asked.is_empty());
        let is_new = begun.is_none();
        let begun = begun.unwrap_or_else(|| BegunStop {
            cause,
            since: now,
            asked: BTreeSet::new(),
        });
        self.local.stop = Some(Stop {
            cause,
            since: begun.since,
            is_killed: false,
        });
        let live: Vec<_> = self.local.live().collect();
        for id in live.iter().filter(|id| begun.asked.contains(*id)) {
            self.local
                .ending
                .insert(id.clone(), Ending::asked(begun.since));
        }
        if is_new && !live.is_empty() {
            self.remember(&begun);
            let note = format!("Stopping container {}", names(&live));
            self.announce(EventType::Normal, "Killing", note);
        }
    }

    fn remember(&self, begun: &BegunStop) {
        if let Err(error) = directory::remember_stop(&self.dir, begun) {
            // A full disk must not keep a pod alive: a node that comes back then begins the grace anew.
            tracing::warn!(pod = %self.this.name, %error, "cannot remember that a pod is being stopped");
        }
    }

    /// Begins to end one container.
    pub(super) fn end(&mut self, id: AttemptId, now: Timestamp) {
        let stop = self.local.stop.as_ref();
        let ending = Ending::begun(stop.map_or(now, |stop| stop.since));
        if stop.is_none() {
            let doom = self.local.health.get(&id).and_then(|it| it.doom);
            let why = match doom {
                Some((Kind::Startup, _)) => "startup probe, will be restarted",
                Some((Kind::Liveness | Kind::Readiness, _)) => "liveness probe, will be restarted",
                None => "postStart hook",
            };
            let note = format!("Container {} failed {why}", id.container);
            self.announce(EventType::Normal, "Killing", note);
        }
        self.local.ending.insert(id, ending);
    }

    /// Runs the hook after the start of a container.
    pub(super) fn post_start(&mut self, id: AttemptId) {
        let hook = self.desired.find(&id.container);
        let hook = hook.and_then(|wish| wish.post_start.clone());
        let state = self.begin_hook(&id, HookKind::PostStart, hook);
        self.local.post_start.insert(id, state);
    }

    /// Runs the hook before the stop signal of a container.
    pub(super) fn pre_stop(&mut self, id: AttemptId) {
        let hook = self.desired.find(&id.container);
        let hook = hook.and_then(|wish| wish.pre_stop.clone());
        let state = self.begin_hook(&id, HookKind::PreStop, hook);
        if let Some(ending) = self.local.ending.get_mut(&id) {
            ending.hook = Some(state);
        }
    }

    /// Without a hook or a container to run it in there is nothing to wait for.
    fn begin_hook(&mut self, id: &AttemptId, kind: HookKind, hook: Option<Hook>) -> HookState {
        let mut attempts = self.local.attempts_of(&id.container).iter();
        let attempt = attempts.find(|attempt| attempt.number == id.attempt);
        let init = match attempt.map(|attempt| &attempt.state) {
            Some(AttemptState::Running(started)) => Some(started.pid),
            Some(AttemptState::Requested | AttemptState::Exited(_)) | None => None,
        };
        let (Some(hook), Some(init)) = (hook, init) else {
            return HookState::Done;
        };
        let exec = self.exec_target(init);
        let pod_ip = self.shared.pod_address(self.pod_ip);
        self.hooks.begin(id.clone(), kind, hook, pod_ip, exec);
        HookState::Running
    }

    /// Takes the end of a hook.
    pub(super) fn learn_hook(&mut self, ended: Ended) {
        let Ended { id, kind, result } = ended;
        self.hooks.end(&id, kind);
        let state = match &result {
            Ok(()) => HookState::Done,
            Err(_) => HookState::Failed,
        };
        let known = match kind {
            HookKind::PostStart => self.local.post_start.get_mut(&id),
            HookKind::PreStop => {
                let ending = self.local.ending.get_mut(&id);
                ending.and_then(|ending| ending.hook.as_mut())
            }
        };
        // The container may have ended before its hook.
        let Some(known) = known.filter(|known| **known == HookState::Running) else {
            return;
        };
        *known = state;
        if let Err(why) = result {
            let note = format!(
                "{} of container {} failed: {why}",
                kind.as_str(),
                id.container
            );
            self.announce(EventType::Warning, kind.event(), note);
        }
    }

    /// Sends one container its stop signal.
    pub(super) async fn ask(&mut self, id: AttemptId, now: Timestamp) {
        self.hooks.end(&id, HookKind::PreStop);
        let ending = self.local.ending.entry(id.clone());
        let ending = ending.or_insert_with(|| Ending::begun(now));
        ending.asked_at = Some(now);
        if ending.hook == Some(HookState::Running) {
            ending.hook = Some(HookState::Failed);
        }
        let wish = self.desired.find(&id.container);
        let signal = wish.map_or(nix::libc::SIGTERM, |wish| wish.stop_signal);
        self.send(Command::Signal { id, signal }).await;
        if let Some(stop) = &self.local.stop {
            let asked = self.local.ending.iter();
            let asked = asked.filter(|(_, ending)| ending.asked_at.is_some());
            self.remember(&BegunStop {
                cause: stop.cause,
                since: stop.since,
                asked: asked.map(|(id, _)| id.clone()).collect(),
            });
        }
    }

    /// Kills one container that did not end after its stop signal.
    pub(super) async fn kill_one(&mut self, id: AttemptId) {
        if let Some(ending) = self.local.ending.get_mut(&id) {
            ending.is_killed = true;
        }
        self.send(Command::Kill { id }).await;
    }

    /// Kills all containers.
    pub(super) async fn kill(&mut self, now: Timestamp) {
        let stop = Stop {
            cause: StopCause::Over,
            since: now,
            is_killed: true,
        };
        self.local.stop.get_or_insert(stop).is_killed = true;
        for id in self.local.live().collect::<Vec<_>>() {
            self.send(Command::Kill { id }).await;
        }
    }

    /// Forgets how a run was being ended, and its hooks.
    pub(super) fn forget_end(&mut self, id: &AttemptId) {
        self.local.ending.remove(id);
        self.local.post_start.remove(id);
        for kind in [HookKind::PostStart, HookKind::PreStop] {
            self.hooks.end(id, kind);
        }
    }
}

fn names(live: &[AttemptId]) -> String {
    live.iter()
        .map(|id| id.container.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
