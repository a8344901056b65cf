//! The hooks of containers: what runs right after a start, and before a stop signal.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    network::PodAddress,
    probes::{Accepted, Question, ask},
    shim::{ExecTarget, protocol::AttemptId},
};

/// Ends that wait; a hook waits when there are more.
const BACKLOG: usize = 16;
/// Hooks have no time limit of their own: the grace of their container limits a preStop hook.
const NO_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// A command, or a request whose answer may be any.
    Call(Question),
    Sleep(Duration),
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HookKind {
    PostStart,
    PreStop,
}

impl HookKind {
    /// The reason of the Event about a failure.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::PostStart => "FailedPostStartHook",
            Self::PreStop => "FailedPreStopHook",
        }
    }

    /// How kubelets begin the note of that Event.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PostStart => "PostStartHook",
            Self::PreStop => "PreStopHook",
        }
    }
}

impl Hook {
    pub(crate) fn of(handler: &LifecycleHandler, container: &Container) -> Self {
        if let Some(exec) = &handler.exec {
            return Self::Call(Question::Exec {
                argv: exec.command.clone().unwrap_or_default(),
            });
        }
        if let Some(request) = &handler.http_get {
            return Self::Call(Question::http(request, container));
        }
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Self::Sleep(Duration::from_secs(seconds));
        }
        let why = "expected a hook of the kind exec, httpGet or sleep";
        Self::Call(Question::Impossible(why.into()))
    }

    async fn run(&self, pod_ip: &PodAddress, exec: &ExecTarget) -> Result<(), String> {
        match self {
            Self::Call(question) => ask(question, Accepted::Any, pod_ip, exec, NO_LIMIT).await,
            Self::Sleep(duration) => {
                tokio::time::sleep(*duration).await;
                Ok(())
            }
        }
    }
}

/// The end of a hook.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: AttemptId,
    pub(crate) kind: HookKind,
    /// Why it failed.
    pub(crate) result: Result<(), String>,
}

/// The hooks of one pod that run. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Hooks {
    running: BTreeMap<(AttemptId, HookKind), AbortOnDropHandle<()>>,
    tell: mpsc::Sender<Ended>,
    told: mpsc::Receiver<Ended>,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        Self {
            running: BTreeMap::new(),
            tell,
            told,
        }
    }

    /// The next end of a hook; never resolves while none runs.
    pub(crate) async fn next(&mut self) -> Ended {
        match self.told.recv().await {
            Some(ended) => ended,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Runs a hook.
    pub(crate) fn begin(
        &mut self,
        id: AttemptId,
        kind: HookKind,
        hook: Hook,
        pod_ip: PodAddress,
        exec: ExecTarget,
    ) {
        let (tell, key) = (self.tell.clone(), (id.clone(), kind));
        let task = tokio::spawn(async move {
            let result = hook.run(&pod_ip, &exec).await;
            // An actor that is gone needs no answer.
            drop(tell.send(Ended { id, kind, result }).await);
        });
        self.running.insert(key, AbortOnDropHandle::new(task));
    }

    /// Forgets a hook, and ends it where it still runs.
    pub(crate) fn end(&mut self, id: &AttemptId, kind: HookKind) {
        self.running.remove(&(id.clone(), kind));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Lifecycle;
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_hook_is_what_its_handler_says() {
        let container: Container = from_value(json!({
            "name": "c", "ports": [{"name": "web", "containerPort": 80}],
        }))
        .unwrap();
        let exec = Question::Exec {
            argv: vec!["x".into()],
        };
        let web = |path: &str| Question::Http {
            is_tls: false,
            host: None,
            port: 80,
            path: path.into(),
            headers: Vec::new(),
        };
        let none =
            Question::Impossible("expected a hook of the kind exec, httpGet or sleep".into());
        for (handler, expected) in [
            (json!({"exec": {"command": ["x"]}}), Hook::Call(exec)),
            (
                json!({"httpGet": {"port": "web", "path": "/bye"}}),
                Hook::Call(web("/bye")),
            ),
            (
                json!({"sleep": {"seconds": 5}}),
                Hook::Sleep(Duration::from_secs(5)),
            ),
            (json!({"tcpSocket": {"port": 80}}), Hook::Call(none)),
        ] {
            let lifecycle: Lifecycle = from_value(json!({"preStop": handler})).unwrap();
            let handler = lifecycle.pre_stop.unwrap();
            assert_eq!(Hook::of(&handler, &container), expected);
        }
    }
}
