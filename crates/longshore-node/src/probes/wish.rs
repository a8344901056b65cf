//! The probes of a container, as its specification defines them.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// The kind of a probe: what its outcome decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Whether the program has come up; the other two wait for that.
    Startup,
    /// Whether the program must be restarted.
    Liveness,
    /// Whether the program can serve.
    Readiness,
}

impl Kind {
    /// The word at the beginning of Events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// How a probe is run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Http {
        is_tls: bool,
        /// Absent: the pod's own address.
        host: Option<String>,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    Tcp {
        host: Option<String>,
        port: u16,
    },
    /// The health service of gRPC.
    Grpc {
        port: u16,
        /// The service that is asked for; empty = the server as a whole.
        service: String,
    },
    Exec {
        argv: Vec<String>,
    },
    /// A probe that cannot be run, with the reason.
    Impossible(String),
}

/// One probe, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeWish {
    pub(crate) question: Question,
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) timeout: Duration,
    /// Outcomes in a row that change the verdict.
    pub(crate) n_successes: u32,
    pub(crate) n_failures: u32,
    /// The grace of a container that it ends, where that is another one than the pod's.
    pub(crate) grace: Option<Duration>,
}

/// The probes of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probes {
    pub(crate) startup: Option<ProbeWish>,
    pub(crate) liveness: Option<ProbeWish>,
    pub(crate) readiness: Option<ProbeWish>,
}

impl Probes {
    pub(crate) fn of(container: &Container) -> Self {
        let wish =
            |probe: &Option<Probe>| probe.as_ref().map(|probe| ProbeWish::of(probe, container));
        Self {
            startup: wish(&container.startup_probe),
            liveness: wish(&container.liveness_probe),
            readiness: wish(&container.readiness_probe),
        }
    }

    pub(crate) fn get(&self, kind: Kind) -> Option<&ProbeWish> {
        match kind {
            Kind::Startup => self.startup.as_ref(),
            Kind::Liveness => self.liveness.as_ref(),
            Kind::Readiness => self.readiness.as_ref(),
        }
    }
}

impl ProbeWish {
    fn of(probe: &Probe, container: &Container) -> Self {
        let seconds = |n: Option<i32>, default: u64| {
            let n = n.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
            Duration::from_secs(n.unwrap_or(default))
        };
        let times = |n: Option<i32>, default: u32| {
            let n = n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
            n.unwrap_or(default)
        };
        let grace = probe.termination_grace_period_seconds;
        Self {
            question: question(probe, container),
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            n_successes: times(probe.success_threshold, 1),
            n_failures: times(probe.failure_threshold, 3),
            grace: grace
                .and_then(|n| u64::try_from(n).ok())
                .map(Duration::from_secs),
        }
    }
}

impl Question {
    /// A request to a container.
    pub(crate) fn http(request: &HTTPGetAction, container: &Container) -> Self {
        let Some(port) = number(&request.port, container) else {
            return no_port();
        };
        let headers = request.http_headers.iter().flatten();
        Self::Http {
            is_tls: request.scheme.as_deref() == Some("HTTPS"),
            host: request.host.clone().filter(|host| !host.is_empty()),
            port,
            path: request.path.clone().unwrap_or_else(|| "/".into()),
            headers: headers
                .map(|it| (it.name.clone(), it.value.clone()))
                .collect(),
        }
    }
}

fn no_port() -> Question {
    Question::Impossible("its port is none of the container's".into())
}

fn question(probe: &Probe, container: &Container) -> Question {
    if let Some(http) = &probe.http_get {
        return Question::http(http, container);
    }
    if let Some(grpc) = &probe.grpc {
        return match u16::try_from(grpc.port) {
            Ok(port) => Question::Grpc {
                port,
                service: grpc.service.clone().unwrap_or_default(),
            },
            Err(_) => no_port(),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        return match number(&tcp.port, container) {
            Some(port) => Question::Tcp {
                host: tcp.host.clone().filter(|host| !host.is_empty()),
                port,
            },
            None => no_port(),
        };
    }
    match &probe.exec {
        Some(exec) => Question::Exec {
            argv: exec.command.clone().unwrap_or_default(),
        },
        None => Question::Impossible("the probe has no handler".into()),
    }
}

/// The number of a port that may be given by its name.
fn number(port: &IntOrString, container: &Container) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|it| it.name.as_ref() == Some(name));
            let number = named.map(|it| it.container_port);
            number
                .and_then(|it| u16::try_from(it).ok())
                .or_else(|| name.parse().ok())
        }
    }
}
