//! The life of one pod on this node: collect facts, decide, do it, wait for the next fact.

mod admission;
mod following;
mod prepared;
mod probing;
mod refreshing;
mod stopping;

use std::{
    collections::BTreeMap, net::Ipv4Addr, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, runtime::events::EventType};
use longshore_k8s::Backoff;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    adopt::adopt,
    decide::{Action, decide, prepare_wait},
    directory,
    hooks::{Ended as HookEnded, Hooks},
    model::{AttemptState, Desired, Local, Preparation},
    publish::{Outcome, PodRef},
    resolve::{Resolved, Specs, resolve},
    shim_link::ShimLink,
    status, sysctls,
};
use crate::{
    clock,
    config::{EventVolume, PodsLifetime},
    earlier_layout,
    followed::Followers,
    log_book::{ContainerLog, LogBook},
    network,
    node::Shared,
    probes::{Outcome as ProbeOutcome, Probers},
    refusal::Refusal,
    shim::protocol::{AttemptId, Command, ExitReason, Report},
    sources::Tokens,
};

/// What the watch has to say about a pod.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// The object as it is now.
    Present(Arc<Pod>),
    /// The object is gone.
    Gone,
}

/// Something that an actor waited for.
enum Fact {
    News,
    Report(Report),
    Probed(ProbeOutcome),
    Hooked(HookEnded),
    Asked(Command),
    ShimGone,
    /// An object of a volume has changed.
    Changed,
    Prepared(Result<Resolved, Refusal>, OwnedSemaphorePermit),
    Refreshed(Result<(Tokens, Vec<Refusal>), Refusal>),
    Published(serde_json::Value, Outcome),
    Deleted(Outcome),
    Done,
    Time,
    Shutdown,
}

/// Why an actor has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is left of the pod.
    WithPod,
    /// The node shuts down. What of the pod outlives the node runs on, and the next one takes it over.
    WithNode,
}

/// Whether an actor goes on.
enum Turn {
    Again,
    Forgotten,
}

/// One pod.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    this: PodRef,
    dir: PathBuf,
    news: watch::Receiver<News>,
    pod: Arc<Pod>,
    desired: Desired,
    local: Local,
    specs: Specs,
    /// Why some of the containers cannot be made: each is refused when it is its turn.
    withheld: BTreeMap<String, Refusal>,
    /// What the volumes hold.
    tokens: Tokens,
    link: Option<ShimLink>,
    /// What was known of the pod's start when its shim was asked for.
    before_shim: Preparation,
    /// Held from the preparation to the first report: bounds how many pods start at a time.
    permit: Option<OwnedSemaphorePermit>,
    work: FuturesUnordered<BoxFuture<'static, Fact>>,
    book: watch::Sender<LogBook>,
    /// Commands that clients of the pod's programs have for its shim.
    asked: mpsc::Receiver<Command>,
    pod_ip: Ipv4Addr,
    probers: Probers,
    hooks: Hooks,
    followers: Followers,
}

impl Actor {
    /// An actor for a pod that the watch has shown.
    pub(crate) fn new(
        shared: Arc<Shared>,
        pod: Arc<Pod>,
        news: watch::Receiver<News>,
        book: watch::Sender<LogBook>,
        asked: mpsc::Receiver<Command>,
    ) -> std::io::Result<Self> {
        let uid = pod.uid().unwrap_or_default();
        let this = PodRef {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: uid.clone(),
        };
        let dir = shared.pods_dir().join(&uid);
        let (local, link) = adopt(&dir, &pod, clock::now())?;
        let pod_ip = shared.pod_ip(&pod);
        if network::is_of_a_pod(pod_ip) {
            let network = &shared.network;
            network.register(&uid, &pod, pod_ip, &dir, link.is_some());
        } else {
            let namespace = this.namespace.clone();
            shared.network.register_on_host(&uid, namespace, pod_ip);
        }
        let mut actor = Self {
            pod_ip,
            probers: Probers::new(),
            hooks: Hooks::new(),
            followers: Followers::new(),
            this,
            dir,
            news,
            desired: Desired::of(&pod),
            pod,
            local,
            specs: BTreeMap::new(),
            withheld: BTreeMap::new(),
            tokens: Tokens::new(),
            link,
            before_shim: Preparation::Needed,
            permit: None,
            work: FuturesUnordered::new(),
            book,
            asked,
            shared,
        };
        actor.recall_health();
        actor.recall_tokens();
        actor.admit();
        Ok(actor)
    }

    /// The address of the pod.
    pub(crate) fn pod_ip(&self) -> Ipv4Addr {
        self.pod_ip
    }

    /// Runs until the pod is gone or the node shuts down.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Ended {
        loop {
            let wake_at = match self.turn().await {
                (Turn::Forgotten, _) => return Ended::WithPod,
                (Turn::Again, wake_at) => wake_at,
            };
            let fact = self.next_fact(wake_at, &shutdown).await;
            if matches!(fact, Fact::Shutdown) {
                self.shut_down().await;
                return Ended::WithNode;
            }
            if let Fact::Asked(command) = fact {
                self.send(command).await;
                continue;
            }
            self.learn(fact);
        }
    }

    /// Decides and acts until there is nothing to do; returns the time of the next turn.
    async fn turn(&mut self) -> (Turn, Option<Timestamp>) {
        loop {
            let now = clock::now();
            let status = status::build(
                &self.desired,
                &self.local,
                &self.this.uid,
                (&self.shared.host.ip, &self.pod_ip.to_string()),
                now,
            );
            if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
                // Before anybody hears of it: another pod may be given its ports at once.
                self.shared.host_ports.release(&self.this.uid);
            }
            let publication = &mut self.local.publication;
            let is_news = publication.written.as_ref() != Some(&status);
            publication.changed_at = is_news.then(|| publication.changed_at.unwrap_or(now));
            let plan = decide(&self.desired, &self.local, &status, now);
            self.update_book();
            if plan.actions.is_empty() {
                self.sync_probers();
                self.sync_followers();
                return (Turn::Again, plan.wake_at);
            }
            tracing::debug!(pod = %self.this.name, actions = ?plan.actions, "pod plan");
            for action in plan.actions {
                if let Turn::Forgotten = self.apply(action, now).await {
                    return (Turn::Forgotten, None);
                }
            }
        }
    }

    async fn next_fact(
        &mut self,
        wake_at: Option<Timestamp>,
        shutdown: &CancellationToken,
    ) -> Fact {
        let wait = wake_at.map(|at| at.duration_since(clock::now()));
        let wait = wait.map(|wait| Duration::try_from(wait).unwrap_or(Duration::ZERO));
        tokio::select! {
            () = shutdown.cancelled() => Fact::Shutdown,
            changed = self.news.changed() => match changed {
                Ok(()) => Fact::News,
                // The node drops its actors only when it shuts down.
                Err(_) => Fact::Shutdown,
            },
            report = next_report(&mut self.link) => report.map_or(Fact::ShimGone, Fact::Report),
            Some(fact) = self.work.next() => fact,
            Some(command) = self.asked.recv() => Fact::Asked(command),
            outcome = self.probers.next() => Fact::Probed(outcome),
            ended = self.hooks.next() => Fact::Hooked(ended),
            () = self.followers.next() => Fact::Changed,
            () = sleep(wait) => Fact::Time,
        }
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::News => self.learn_news(),
            Fact::Report(report) => self.learn_report(report),
            Fact::Probed(outcome) => self.learn_probe(outcome),
            Fact::Hooked(ended) => self.learn_hook(ended),
            Fact::Changed => self.learn_change(),
            Fact::ShimGone => self.learn_shim_is_gone(),
            Fact::Prepared(result, permit) => self.learn_prepared(result, permit),
            Fact::Refreshed(result) => self.learn_refreshed(result),
            Fact::Published(status, outcome) => {
                self.local.publication.is_in_flight = false;
                if self.learn_outcome(outcome) {
                    self.local.publication.written = Some(status);
                }
            }
            Fact::Deleted(outcome) => {
                self.local.publication.is_in_flight = false;
                self.local.publication.is_deleted = self.learn_outcome(outcome);
            }
            // Of the shim, not of us.
            Fact::Asked(_) => {}
            Fact::Done | Fact::Time | Fact::Shutdown => {}
        }
    }

    fn learn_news(&mut self) {
        let news = self.news.borrow_and_update().clone();
        match news {
            News::Present(pod) => {
                let shown = |pod: &Pod| {
                    let meta = &pod.metadata;
                    (meta.labels.clone(), meta.annotations.clone())
                };
                let has_changed = shown(&pod) != shown(&self.pod);
                self.desired = Desired::of(&pod);
                self.pod = pod;
                if has_changed {
                    self.learn_change();
                }
            }
            News::Gone => self.local.is_gone = true,
        }
    }

    fn learn_report(&mut self, report: Report) {
        self.permit = None;
        match report {
            Report::Begun { id } => {
                self.local.learn(&id, AttemptState::Requested);
            }
            Report::CaughtUp => self.local.is_behind = false,
            Report::NotForked { message } => {
                self.learn_shim_is_gone();
                let before = std::mem::replace(&mut self.before_shim, Preparation::Needed);
                let error = std::io::Error::other(message);
                self.refuse(before, Refusal::io("start the shim", &error));
            }
            Report::Started { id, started } => {
                let network = &self.shared.network;
                network.set_holder(&self.this.uid, started.pid);
                let is_news = self.local.learn(&id, AttemptState::Running(started));
                if is_news && self.shared.config.events == EventVolume::All {
                    let note = format!("Started container {}", id.container);
                    self.announce(EventType::Normal, "Started", note);
                }
            }
            Report::Exited { id, exit } => {
                if !self.local.learn(&id, AttemptState::Exited(exit.clone())) {
                    return;
                }
                self.local.health.remove(&id);
                self.forget_end(&id);
                self.reconsider_withheld();
                tracing::debug!(pod = %self.this.name, attempt = %id, code = exit.code, "container ended");
                if exit.reason == ExitReason::StartError {
                    self.announce(EventType::Warning, "Failed", exit.message);
                } else if id.attempt > 0 && !exit.is_success() {
                    let note = format!("Back-off restarting failed container {}", id.container);
                    self.announce(EventType::Warning, "BackOff", note);
                }
            }
        }
    }

    fn learn_shim_is_gone(&mut self) {
        self.permit = None;
        // A shim that closed the link (the node did not read for too long) still watches its containers.
        self.link = ShimLink::find(&self.dir).unwrap_or_default();
        self.local.has_shim = self.link.is_some();
        self.local.is_behind = self.local.has_shim;
        let settled = if self.local.has_shim {
            directory::forget_unheard(&self.dir, &mut self.local)
        } else {
            self.local.preparation = Preparation::Needed;
            directory::settle(&self.dir, &mut self.local)
        };
        if let Err(error) = settled {
            // Nothing may start before it is known what ran: the pod stays as it is until a restart.
            tracing::error!(pod = %self.this.name, %error, "cannot read the records of a pod");
        }
    }

    /// The pod cannot start for now. `before` is what was known of its start until this try.
    fn refuse(&mut self, before: Preparation, refusal: Refusal) {
        let (n_before, is_known) = match before {
            Preparation::Failed {
                refusal: known,
                n_failures,
                ..
            } => (n_failures, known == refusal),
            Preparation::Needed | Preparation::Running | Preparation::Ready => (0, false),
        };
        if !is_known {
            self.announce(EventType::Warning, refusal.event, refusal.message.clone());
        }
        let (n_failures, since) = (n_before.saturating_add(1), clock::now());
        let again_at = since.checked_add(prepare_wait(&refusal, n_failures)).ok();
        self.local.preparation = Preparation::Failed {
            refusal,
            n_failures,
            since,
            again_at,
        };
    }

    fn start_shim(&mut self, network: Option<OwnedFd>) -> std::io::Result<()> {
        if self.link.is_none() {
            self.link = Some(ShimLink::start(
                &self.shared.shims,
                self.shared.config.lifetime,
                &self.dir,
                self.desired.grace,
                network,
                sysctls::settings(&self.pod),
            )?);
            self.local.has_shim = true;
        }
        Ok(())
    }

    /// Records the outcome of a write. Returns whether it succeeded; a failed write is tried again later.
    fn learn_outcome(&mut self, outcome: Outcome) -> bool {
        let publication = &mut self.local.publication;
        match outcome {
            Outcome::Done => {
                (publication.n_failures, publication.not_before) = (0, None);
                true
            }
            Outcome::Gone => {
                self.local.is_gone = true;
                false
            }
            Outcome::Failed(error) => {
                publication.n_failures = publication.n_failures.saturating_add(1);
                let wait = Backoff::RETRY.wait(publication.n_failures);
                publication.not_before = clock::now().checked_add(wait).ok();
                tracing::warn!(pod = %self.this.name, %error, "pod not written, trying again");
                false
            }
        }
    }

    async fn apply(&mut self, action: Action, now: Timestamp) -> Turn {
        match action {
            Action::Prepare => self.prepare(),
            Action::Start(id) => self.start(id).await,
            Action::Refresh => self.refresh(),
            Action::Stop(cause) => self.stop(cause, now),
            Action::End(id) => self.end(id, now),
            Action::PostStart(id) => self.post_start(id),
            Action::PreStop(id) => self.pre_stop(id),
            Action::Ask(id) => self.ask(id, now).await,
            Action::KillOne(id) => self.kill_one(id).await,
            Action::Kill => self.kill(now).await,
            Action::Publish(status) => {
                self.local.publication.is_in_flight = true;
                let (this, client) = (self.this.clone(), self.shared.client.clone());
                self.work.push(Box::pin(async move {
                    let outcome = this.write_status(client, &status).await;
                    Fact::Published(status, outcome)
                }));
            }
            Action::DeleteObject => {
                self.local.publication.is_in_flight = true;
                let (this, client) = (self.this.clone(), self.shared.client.clone());
                self.work.push(Box::pin(
                    async move { Fact::Deleted(this.delete(client).await) },
                ));
            }
            Action::Release => self.release().await,
            Action::Forget => {
                self.release().await;
                self.forget().await;
                return Turn::Forgotten;
            }
        }
        Turn::Again
    }

    fn prepare(&mut self) {
        match &mut self.local.preparation {
            // The refusal that is shown stays until this try has an answer.
            Preparation::Failed { again_at, .. } => *again_at = None,
            before @ (Preparation::Needed | Preparation::Running | Preparation::Ready) => {
                *before = Preparation::Running;
            }
        }
        let (shared, pod, dir) = (self.shared.clone(), self.pod.clone(), self.dir.clone());
        let pod_ip = self.pod_ip;
        let known = self.tokens.clone();
        self.work.push(Box::pin(async move {
            let permit = shared.start_permit().await;
            let result = match directory::make(&dir) {
                Ok(()) => resolve(&shared, &pod, pod_ip, &dir, &known).await,
                Err(e) => Err(Refusal::io(&format!("make {}", dir.display()), &e)),
            };
            Fact::Prepared(result, permit)
        }));
    }

    async fn start(&mut self, id: AttemptId) {
        if let Err(refusal) = self.ready_to_start(&id.container) {
            self.refuse_start(refusal);
            return;
        }
        let (Some(link), Some(spec)) = (&mut self.link, self.specs.get(&id.container)) else {
            self.local.preparation = Preparation::Needed;
            return;
        };
        let mut spec = spec.clone();
        spec.log = self.shared.log_path(&self.this, &id);
        self.local.learn(&id, AttemptState::Requested);
        // A pod that cannot be told in JSON is none that an API server has told.
        let memory = directory::memory(&self.pod, self.local.acknowledged_at);
        link.send(&Command::Start {
            id,
            spec: Box::new(spec),
            memory: memory.unwrap_or_default(),
        })
        .await;
    }

    async fn send(&mut self, command: Command) {
        if let Some(link) = &mut self.link {
            link.send(&command).await;
        }
    }

    /// Ends the shim of a pod in which nothing runs.
    async fn release(&mut self) {
        self.send(Command::Quit).await;
        // Memory is scarce and outside of the pod's directory: it does not wait for the object's deletion.
        drop(directory::remove_memory(&self.dir, &self.this.uid));
        self.local.has_shim = false;
        self.local.preparation = Preparation::Needed;
        if let Some(link) = self.link.take() {
            self.work.push(Box::pin(async move {
                link.let_go().await;
                Fact::Done
            }));
        }
    }

    async fn forget(&mut self) {
        // The shim must be gone before its directory is.
        while self.work.next().await.is_some() {}
        let containers = self.desired.containers().map(|c| c.name.as_str());
        self.shared.cgroups.forget(&self.this.uid, containers);
        let logs = earlier_layout::log_dirs(&self.shared.config, &self.this.uid);
        let result = directory::remove(&self.dir, &self.this.uid, &logs);
        if let Err(error) = result {
            tracing::warn!(pod = %self.this.name, %error, "cannot remove the directory of a pod");
        }
    }

    /// The node ends: shims that die with it get the time to stop their containers.
    async fn shut_down(mut self) {
        let Some(link) = self.link.take() else { return };
        if self.shared.config.lifetime == PodsLifetime::DieWithNode {
            link.let_go().await;
        }
    }

    fn announce(&self, kind: EventType, reason: &str, note: String) {
        let announcement = self.shared.announcement(&self.pod, kind, reason, note);
        self.work.push(Box::pin(async move {
            announcement.await;
            Fact::Done
        }));
    }

    fn update_book(&self) {
        let logs = self.desired.containers().map(|c| {
            let last = self.local.last(&c.name);
            let log = ContainerLog {
                last: last.map(|a| a.number),
                init: last.and_then(|a| match &a.state {
                    AttemptState::Running(started) => Some(started.pid),
                    AttemptState::Requested | AttemptState::Exited(_) => None,
                }),
                is_live: last.is_none_or(|a| !matches!(a.state, AttemptState::Exited(_))),
                waiting: match &self.local.preparation {
                    Preparation::Failed { refusal, .. } => refusal.reason.to_owned(),
                    Preparation::Needed | Preparation::Running | Preparation::Ready => {
                        crate::refusal::REASON_CREATING.to_owned()
                    }
                },
            };
            (c.name.clone(), log)
        });
        let now: LogBook = logs.collect();
        self.book.send_if_modified(|known| {
            let is_news = *known != now;
            *known = now;
            is_news
        });
    }
}

async fn next_report(link: &mut Option<ShimLink>) -> Option<Report> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        // A millisecond more, because an early timer would cause a second turn.
        Some(wait) => tokio::time::sleep(wait + Duration::from_millis(1)).await,
        None => std::future::pending().await,
    }
}
