//! `longshore uninstall`: removes what a role leaves in a cluster that would hold a pod, a rule, an
//! action or a namespace once no controller runs the role, and keeps every custom resource.
//!
//! [`steps`] lists that for each role; [`sweep`] and [`objects`] do it. The first step removes the webhooks and
//! policies that would refuse requests without a controller, so that a crash in between never leaves them behind alone.
//! The second step is the [`mark`], at which a running controller stops. Each step reads the cluster and does what is
//! left to do, so that the command may be killed and run again.

mod left;
mod mark;
mod objects;
mod place;
mod steps;
mod sweep;

use std::time::Duration;

use longshore_kit::{Clock, Metrics, Requests, SystemClock};
use longshore_plugins::TASK_ACTION;
use longshore_tasks::WebhookSettings;
use serde::Serialize;

use self::{mark::Mark, objects::Objects, steps::Step};
use crate::{
    controller::{permissions, roles::Role},
    error::{CliError, UninstallError},
    kubernetes::RealCluster,
    output,
};

pub(crate) use left::Left;

/// The pause between two looks at actions that run.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The command writes nothing.
    DryRun,
    /// The command does all steps.
    Real,
    /// The command only removes the mark.
    Undo,
}

/// What is done with the objects of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verb {
    /// The objects are deleted.
    Delete,
    /// The objects are written.
    Set,
    /// The objects stay, and the command removes Longshore's finalizers, labels or gates from them.
    Release,
}

/// The report of the command: what it found, or did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    pub(crate) role: &'static str,
    /// The namespace of the controller.
    pub(crate) namespace: String,
    /// Whether nothing was written.
    pub(crate) is_dry_run: bool,
    pub(crate) steps: Vec<Done>,
    /// What stays in the cluster, and why.
    pub(crate) left: Vec<Left>,
}

/// What one step found, or did.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) verb: Verb,
    pub(crate) what: String,
    pub(crate) objects: Vec<String>,
}

/// A role of a cluster, about to be uninstalled.
pub(crate) struct Uninstall {
    role: &'static Role,
    namespace: String,
    objects: Objects,
    steps: Vec<Step>,
    mark: Mark,
    settings: WebhookSettings,
}

impl Uninstall {
    /// Writes nothing yet.
    ///
    /// # Errors
    /// Where RBAC does not grant what `mode` needs.
    pub(crate) async fn prepare(
        cluster: &RealCluster,
        role: &'static Role,
        settings: &WebhookSettings,
        mode: Mode,
    ) -> Result<Self, CliError> {
        let metrics = Metrics::new();
        cluster.answers(&metrics).await?;
        let client = cluster.client("uninstall", &metrics)?;
        let namespace = cluster.namespace().to_owned();
        let steps = steps::of(role, &namespace, settings);
        let rights = steps::rights(&steps, role, &namespace, mode);
        let missing = permissions::missing(&client, &namespace, rights).await;
        let missing = missing.map_err(|error| UninstallError::asking(cluster.url(), error))?;
        if !missing.is_empty() {
            let role = role.name;
            return Err(UninstallError::Rights { role, missing }.into());
        }
        let requests = Requests::new(client);
        Ok(Self {
            role,
            mark: Mark::new(requests.clone(), &namespace, role),
            objects: Objects::new(requests),
            namespace,
            steps,
            settings: settings.clone(),
        })
    }

    /// Reports what there is to do, and changes nothing.
    pub(crate) async fn survey(&self) -> Result<Report, CliError> {
        let mut done: Vec<Done> = Vec::new();
        for step in &self.steps {
            let found = match step {
                Step::Delete { what, targets } => {
                    let there = self.objects.existing(targets).await?;
                    let names = there.iter().map(objects::name);
                    (what.clone(), names.collect::<Vec<_>>())
                }
                Step::Mark => {
                    let mark = self.mark.name();
                    let is_set = self.mark.is_set().await?;
                    let names = if is_set { Vec::new() } else { vec![mark] };
                    (mark::WHAT.to_owned(), names)
                }
                Step::Sweep(sweep) => {
                    let found = sweep.look(&self.objects, SystemClock.now()).await?;
                    (sweep.what.clone(), found)
                }
            };
            let (what, objects) = found;
            // A later step looks again for the objects of the first step.
            if done.iter().all(|done| done.what != what) {
                let verb = step.verb();
                done.push(Done {
                    verb,
                    what,
                    objects,
                });
            }
        }
        self.report(done, Mode::DryRun).await
    }

    /// Does all of it, and waits until it is done.
    pub(crate) async fn run(&self) -> Result<Report, CliError> {
        let mut done: Vec<Done> = Vec::new();
        for step in &self.steps {
            let (what, objects) = match step {
                Step::Delete { what, targets } => {
                    (what.clone(), self.objects.delete_all(targets).await?)
                }
                Step::Mark => {
                    let set = self.mark.set().await?;
                    self.wait(set.wait).await;
                    (mark::WHAT.to_owned(), set.objects)
                }
                Step::Sweep(sweep) => (sweep.what.clone(), sweep.run(&self.objects).await?),
            };
            self.tell(&what, &objects);
            match done.iter_mut().find(|done| done.what == what) {
                Some(done) => done.objects.extend(objects),
                None => done.push(Done {
                    verb: step.verb(),
                    what,
                    objects,
                }),
            }
        }
        self.report(done, Mode::Real).await
    }

    /// Fails where the installation of the role is in another namespace, or the namespace does not
    /// exist. The caller checks this before it removes anything: what the role has registered is of
    /// the whole cluster, whatever namespace is named.
    pub(crate) async fn is_here(&self) -> Result<(), CliError> {
        let configurations = steps::configurations(&self.steps);
        let place = place::Place {
            role: self.role,
            namespace: &self.namespace,
            settings: &self.settings,
            objects: &self.objects,
        };
        Ok(place.check(&configurations, SystemClock.now()).await?)
    }

    /// Removes the mark, so that the role runs again.
    ///
    /// # Errors
    /// The role has no mark.
    pub(crate) async fn undo(&self) -> Result<(), CliError> {
        if self.mark.remove().await? {
            return Ok(());
        }
        Err(UninstallError::NotUninstalled {
            role: self.role.name,
            namespace: self.namespace.clone(),
            // Only for the advice: an undo needs no right to list.
            marked: place::marked(self.role, &self.objects)
                .await
                .unwrap_or_default(),
        }
        .into())
    }

    /// The actions of the role that have not ended: `namespace/name`.
    pub(crate) async fn running(&self) -> Result<Vec<String>, CliError> {
        if self.role.name != "tasks" {
            return Ok(Vec::new());
        }
        let place = Some(self.namespace.as_str());
        let actions = self.objects.list(TASK_ACTION, place, None).await?;
        let running = actions
            .iter()
            .filter(|action| !steps::has_ended(action))
            .map(objects::name_of);
        Ok(running.collect())
    }

    /// Waits until no action runs, or until `limit` is over. Returns the actions that still run.
    pub(crate) async fn until_none_runs(&self, limit: Duration) -> Result<Vec<String>, CliError> {
        let end = tokio::time::Instant::now() + limit;
        let mut told = None;
        loop {
            let running = self.running().await?;
            if running.is_empty() || tokio::time::Instant::now() >= end {
                return Ok(running);
            }
            if told != Some(running.len()) {
                let n = running.len();
                output::note(&format!("{}: waits for {n} that run", self.role.name));
                told = Some(n);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn wait(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let seconds = time.as_secs();
        let role = self.role.name;
        output::note(&format!(
            "{role}: waits {seconds} s, until no controller acts any more"
        ));
        tokio::time::sleep(time).await;
    }

    fn tell(&self, what: &str, objects: &[String]) {
        let n = objects.len();
        if n > 0 {
            output::note(&format!("{}: {what}: {n}", self.role.name));
        }
    }

    async fn report(&self, steps: Vec<Done>, mode: Mode) -> Result<Report, CliError> {
        Ok(Report {
            kind: "Uninstall",
            role: self.role.name,
            namespace: self.namespace.clone(),
            is_dry_run: mode == Mode::DryRun,
            steps,
            left: left::of(
                self.role,
                &self.namespace,
                &self.settings,
                &self.objects,
                mode,
            )
            .await?,
        })
    }
}
