//! One role in one replica at a time: waits for the lease, works while it is held, and hands it over.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_console::objects::Check;
use longshore_kit::{Gate, Metrics, lease::Terms};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge as Number},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    Context,
    candidate::Candidate,
    mark::Marks,
    roles::{Leadership, Role, Running},
};
use crate::{error::CliError, output};

/// Whether there may be other replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    /// Each role waits for its lease, which lasts as these say.
    ByLease(Terms),
    /// No lease: the user who disables leases guarantees that there is no other replica.
    None,
}

/// Does the work of a role for as long as this replica holds its lease, again and again, until `shutdown`.
pub(super) async fn lead(
    role: &Role,
    context: &Arc<Context>,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let standing = &context.standing;
    // Not behind the gate: the electors open the gate.
    let client = context.cluster.client("election", &context.metrics)?;
    let own = context.cluster.namespace();
    let namespaces = context.config.others.of(role).with(own);
    let (terms, lease) = match (context.config.election, role.lease) {
        (Election::ByLease(terms), Some(lease)) => (terms, lease),
        (Election::ByLease(_) | Election::None, None) => {
            standing.set(role, LEADS);
            let leadership = Leadership {
                gate: Gate::always_open(),
                namespaces,
            };
            return (role.work)(context.clone(), leadership, shutdown).await;
        }
        (Election::None, Some(_)) => {
            let mut marks = Marks::new(client, namespaces, role);
            return marks.work_unless_set(role, context, shutdown).await;
        }
    };
    let mut candidate = Candidate::new(role, lease, terms, &client, context, &identity());
    loop {
        let leadership = tokio::select! {
            acquired = candidate.acquire() => acquired?,
            () = shutdown.cancelled() => {
                candidate.release().await;
                return Ok(());
            }
        };
        standing.set(role, LEADS);
        let work = (role.work)(context.clone(), leadership, shutdown.clone());
        let ended = work_while_held(candidate.keep(), work).await;
        match ended {
            Ended::Lost(why) => {
                standing.lost(role);
                output::note(&format!("{}: stopped, because {why}", role.name));
            }
            Ended::Done(ended) => {
                standing.set(role, WAITS);
                candidate.release().await;
                return ended;
            }
        }
    }
}

/// How a leadership ended.
enum Ended {
    /// The lease was lost, for this reason. No part of the work runs any more.
    Lost(String),
    /// The work has ended.
    Done(Result<(), CliError>),
}

/// Does the work of a role while `keep` renews its lease.
///
/// The work is a task of its own: work that computes for long between two awaits keeps one thread busy, and must not
/// keep the lease from being renewed meanwhile.
async fn work_while_held(keep: impl Future<Output = String>, work: Running) -> Ended {
    let mut work = AbortOnDropHandle::new(tokio::spawn(work.in_current_span()));
    tokio::select! {
        // The work is dropped at its next await; nothing of it passes the gate any more.
        lost = keep => {
            work.abort();
            let _ = (&mut work).await;
            Ended::Lost(lost)
        }
        ended = &mut work => Ended::Done(match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only this function and the end of the process abort the task.
                Err(_) => Ok(()),
            },
        }),
    }
}

/// A name that no other process ever has: the host's name and a random id.
fn identity() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), Uuid::new_v4())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: &'static str,
}

/// What a role of this replica does at the moment.
type Stand = &'static str;
const WAITS: Stand = "waits";
const LEADS: Stand = "leads";
/// The role holds its lease, and the API server does not serve the resource that the role works on.
const LACKS: Stand = "leads, and waits for its resource";

/// Where the roles of this replica stand.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    stands: Arc<Mutex<BTreeMap<&'static str, Stand>>>,
    is_leader: Family<LeaseLabels, Number>,
    lost: Family<LeaseLabels, Counter>,
}

impl Standing {
    /// All of them wait.
    pub(crate) fn new(metrics: &Metrics, roles: &[&'static Role]) -> Self {
        let standing = Self {
            stands: Arc::default(),
            is_leader: Family::default(),
            lost: Family::default(),
        };
        metrics.register(|registrar| {
            registrar.register(
                "leader_election_master_status",
                "Whether this replica holds the lease of a role (1) or not (0)",
                &["name"],
                standing.is_leader.clone(),
            );
            registrar.register(
                "longshore_lease_lost",
                "Leases that were lost while they were needed",
                &["name"],
                standing.lost.clone(),
            );
        });
        for role in roles {
            standing.set(role, WAITS);
            // From the start: an alert on a counter that appears with its first loss misses that loss.
            if let Some(name) = role.lease {
                standing.lost.get_or_create(&LeaseLabels { name }).inc_by(0);
            }
        }
        standing
    }

    /// The role works.
    pub(super) fn leads(&self, role: &Role) {
        self.set(role, LEADS);
    }

    /// The role does nothing.
    pub(super) fn waits(&self, role: &Role) {
        self.set(role, WAITS);
    }

    fn set(&self, role: &Role, stand: Stand) {
        if let Some(name) = role.lease {
            let gauge = self.is_leader.get_or_create(&LeaseLabels { name });
            gauge.set(i64::from(stand != WAITS));
        }
        self.stands().insert(role.name, stand);
    }

    /// A role that leads finds the resource that it works on, or does not.
    pub(super) fn finds(&self, role: &'static str, is_there: bool) {
        let stand = if is_there { LEADS } else { LACKS };
        self.stands().insert(role, stand);
    }

    fn stands(&self) -> MutexGuard<'_, BTreeMap<&'static str, Stand>> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, role: &Role) {
        self.set(role, WAITS);
        if let Some(name) = role.lease {
            self.lost.get_or_create(&LeaseLabels { name }).inc();
        }
    }

    /// A role that waits is as ready as one that works: it takes over at once, or begins when its resource is there.
    /// Not to be ready would take the HTTP API of the other roles away.
    pub(super) fn checks(&self) -> Vec<Check> {
        let check = |(role, stand): (&&str, &Stand)| Check {
            name: format!("{role} {stand}"),
            problem: None,
        };
        self.stands().iter().map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::controller::roles::ROLES;

    #[test]
    fn losses_of_each_lease_are_counted_from_the_start() {
        let metrics = Metrics::new();
        let roles: Vec<&'static Role> = ROLES.iter().collect();
        let standing = Standing::new(&metrics, &roles);
        for lease in ["longshore-dags", "longshore-tasks", "longshore-podops"] {
            let none = format!("longshore_lease_lost_total{{name=\"{lease}\"}} 0\n");
            assert!(metrics.text().contains(&none), "{}", metrics.text());
        }
        let dags = roles.iter().find(|role| role.name == "dags").unwrap();
        standing.lost(dags);
        let one = "longshore_lease_lost_total{name=\"longshore-dags\"} 1\n";
        assert!(metrics.text().contains(one), "{}", metrics.text());
        let without: Vec<&'static Role> = ROLES.iter().filter(|it| it.lease.is_none()).collect();
        let metrics = Metrics::new();
        Standing::new(&metrics, &without);
        assert!(!metrics.text().contains("longshore_lease_lost_total{"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_is_kept_while_the_work_keeps_its_thread_busy() {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (renew, renewed) = mpsc::channel();
        let work: Running = Box::pin(async move {
            let _ = begin.send(());
            // Computes until the lease is renewed.
            let is_renewed = renewed.recv_timeout(Duration::from_secs(20)).is_ok();
            let place = "the lease was not renewed".to_owned();
            is_renewed.then_some(()).ok_or(CliError::Internal { place })
        });
        let keep = async {
            let _ = begun.await;
            let _ = renew.send(());
            std::future::pending().await
        };
        let Ended::Done(ended) = work_while_held(keep, work).await else {
            panic!("the lease was lost");
        };
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[tokio::test]
    async fn nothing_of_the_work_is_left_when_the_lease_is_lost() {
        let (alive, dropped) = mpsc::channel::<()>();
        let work: Running = Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        });
        let lost = async { "another has it".to_owned() };
        assert!(matches!(work_while_held(lost, work).await, Ended::Lost(_)));
        assert_eq!(dropped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
