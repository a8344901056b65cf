//! What a status becomes around a deployment (spec 9.2), and what else moves it (spec 6.1, 6.2, 6.4, 9.1, 9.3).
//!
//! Each function returns the status to be written, and leaves the old one as it was.

use super::{
    CommonStatus, JobState, ReconciledSpec, ReconciliationMetadata, ReconciliationState,
    UnreadableSpec,
};
use crate::spec::{DesiredState, JobSpec, Spec, UpgradeMode};

const LAST_RECONCILED: &str = "lastReconciledSpec";
const LAST_STABLE: &str = "lastStableSpec";

/// What is deployed, and when.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a, S> {
    /// The spec, as it is deployed: its upgrade mode is the one by which it restores.
    pub spec: &'a S,
    /// The generation of the object that has this spec.
    pub generation: i64,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A kind of snapshots that a nonce triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotKind {
    /// Savepoints.
    Savepoint,
    /// Checkpoints.
    Checkpoint,
}

impl SnapshotKind {
    /// The nonce of a job for this kind.
    pub fn nonce(self, job: &JobSpec) -> Option<i64> {
        match self {
            Self::Savepoint => job.savepoint_trigger_nonce,
            Self::Checkpoint => job.checkpoint_trigger_nonce,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeAttempt,
    Deployed,
}

impl CommonStatus {
    /// What was last deployed, or is being deployed; none before the first deployment.
    ///
    /// # Errors
    /// The text is no spec of the kind.
    pub fn reconciled<S: Spec>(&self) -> Result<Option<ReconciledSpec<S>>, UnreadableSpec> {
        let text = self.reconciliation_status.last_reconciled_spec.as_deref();
        text.map(|text| ReconciledSpec::read(LAST_RECONCILED, text))
            .transpose()
    }

    /// What is known to have run; what a rollback returns to.
    ///
    /// # Errors
    /// The text is no spec of the kind.
    pub fn stable<S: Spec>(&self) -> Result<Option<ReconciledSpec<S>>, UnreadableSpec> {
        let text = self.reconciliation_status.last_stable_spec.as_deref();
        text.map(|text| ReconciledSpec::read(LAST_STABLE, text))
            .transpose()
    }

    /// What runs: after a rollback the stable spec, else the reconciled one.
    ///
    /// # Errors
    /// The text is no spec of the kind.
    pub fn deployed<S: Spec>(&self) -> Result<Option<ReconciledSpec<S>>, UnreadableSpec> {
        match self.reconciliation_status.state {
            ReconciliationState::RolledBack => self.stable(),
            ReconciliationState::Deployed
            | ReconciliationState::Upgrading
            | ReconciliationState::RollingBack => self.reconciled(),
        }
    }

    /// Whether no deployment was attempted yet.
    pub fn is_before_first_deployment(&self) -> bool {
        self.reconciliation_status.last_reconciled_spec.is_none()
    }

    /// Whether the reconciled spec is the stable one. Upstream compares the texts.
    pub fn is_stable(&self) -> bool {
        let status = &self.reconciliation_status;
        status.last_reconciled_spec.is_some()
            && status.last_reconciled_spec == status.last_stable_spec
    }

    /// Whether the job is over everywhere.
    pub fn is_job_terminal(&self) -> bool {
        self.job_status
            .state
            .is_some_and(JobState::is_globally_terminal)
    }

    /// The reconciled spec is known to run.
    #[must_use]
    pub fn marked_stable(mut self) -> Self {
        let status = &mut self.reconciliation_status;
        status
            .last_stable_spec
            .clone_from(&status.last_reconciled_spec);
        self
    }

    /// The status to write before a deployment is attempted. It says that the job is suspended: whether it is, or the
    /// attempt arrived, the cluster shows after a crash (spec 6.2).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn before_attempt<S: Spec>(&self, target: &Target<'_, S>) -> Result<Self, UnreadableSpec> {
        self.at(Moment::BeforeAttempt, target)
    }

    /// The status to write after a spec was deployed.
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn after_deployment<S: Spec>(
        &self,
        target: &Target<'_, S>,
    ) -> Result<Self, UnreadableSpec> {
        self.at(Moment::Deployed, target)
    }

    fn at<S: Spec>(&self, moment: Moment, target: &Target<'_, S>) -> Result<Self, UnreadableSpec> {
        let mut next = self.clone();
        next.error = None;
        next.reconciliation_status.reconciliation_timestamp = target.now_ms;
        let is_rollback = self.reconciliation_status.state == ReconciliationState::RollingBack;
        next.reconciliation_status.state = match (is_rollback, moment) {
            (true, Moment::BeforeAttempt) => ReconciliationState::RollingBack,
            (true, Moment::Deployed) => ReconciliationState::RolledBack,
            (false, Moment::BeforeAttempt) => ReconciliationState::Upgrading,
            (false, Moment::Deployed) => ReconciliationState::Deployed,
        };
        if is_rollback {
            // What is deployed is the stable spec. The reconciled one stays, so that nothing more happens until the user
            // changes it; but the next upgrade has to know how this one restored.
            if let (Some(mut last), Some(job)) = (self.reconciled::<S>()?, target.spec.job()) {
                if let Some(last_job) = last.spec.job_mut() {
                    last_job.upgrade_mode = job.upgrade_mode;
                }
                next.set_reconciled(&last);
            }
            return Ok(next);
        }
        let mut spec = target.spec.clone();
        let wanted = spec.job().map(|job| job.state);
        if let Some(job) = spec.job_mut() {
            if moment == Moment::BeforeAttempt {
                job.state = DesiredState::Suspended;
            }
            // A nonce that triggered nothing yet must still trigger something after the upgrade.
            if let Some(last_job) = self
                .reconciled::<S>()?
                .as_ref()
                .and_then(|it| it.spec.job())
            {
                job.savepoint_trigger_nonce = last_job.savepoint_trigger_nonce;
                job.checkpoint_trigger_nonce = last_job.checkpoint_trigger_nonce;
            }
        }
        let metadata = next.metadata::<S>()?;
        next.set_reconciled(&ReconciledSpec {
            spec,
            metadata: Some(metadata),
        });
        next.observed_generation = Some(target.generation);
        Ok(match wanted {
            // A job that a user suspended has nothing to become stable by.
            Some(DesiredState::Suspended) => next.marked_stable(),
            Some(DesiredState::Running) | None => next,
        })
    }

    /// A deployment arrived, although no status says so: the job is to run, and its state is not known (spec 6.2).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn already_upgraded<S: Spec>(&self) -> Result<Self, UnreadableSpec> {
        let mut next = self.clone();
        if let Some(mut last) = self.reconciled::<S>()? {
            if let Some(job) = last.spec.job_mut() {
                job.state = DesiredState::Running;
                next.job_status.state = Some(JobState::Reconciling);
            }
            next.set_reconciled(&last);
        }
        next.reconciliation_status.state = ReconciliationState::Deployed;
        Ok(next)
    }

    /// The first deployment did not arrive: it is attempted again from the start (spec 6.1). Another one changes nothing.
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn first_deployment_failed<S: Spec>(&self) -> Result<Self, UnreadableSpec> {
        let mut next = self.clone();
        if self
            .reconciled::<S>()?
            .is_some_and(|it| it.is_first_deployment())
        {
            next.reconciliation_status.last_reconciled_spec = None;
            next.reconciliation_status.state = ReconciliationState::Upgrading;
        }
        Ok(next)
    }

    /// The stable spec, after the job was observed (spec 6.4).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn after_job_observed<S: Spec>(&self) -> Result<Self, UnreadableSpec> {
        let is_deployed = self.reconciliation_status.state == ReconciliationState::Deployed;
        let state = self.job_status.state;
        let has_run = match state {
            Some(JobState::Running) => true,
            // It ended by itself, not because it was to.
            Some(JobState::Finished) => self.reconciled::<S>()?.is_some_and(|it| {
                it.spec
                    .job()
                    .is_some_and(|job| job.state == DesiredState::Running)
            }),
            Some(
                JobState::Created
                | JobState::Initializing
                | JobState::Failing
                | JobState::Failed
                | JobState::Cancelling
                | JobState::Canceled
                | JobState::Restarting
                | JobState::Suspended
                | JobState::Reconciling,
            )
            | None => false,
        };
        let next = self.clone();
        Ok(if is_deployed && has_run {
            next.marked_stable()
        } else {
            next
        })
    }

    /// A job was observed that was cancelled: what was reconciled is suspended (spec 6.4).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn job_suspended<S: Spec>(&self) -> Result<Self, UnreadableSpec> {
        self.with_reconciled::<S>(|last| {
            if let Some(job) = last.spec.job_mut() {
                job.state = DesiredState::Suspended;
            }
            last.is_not_first_deployment();
        })
    }

    /// A cancellation was requested that takes its time: the upgrade goes on once it is over (spec 9.3).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn cancelling<S: Spec>(&self, restore: UpgradeMode) -> Result<Self, UnreadableSpec> {
        let mut next = self.with_reconciled::<S>(|last| {
            if let Some(job) = last.spec.job_mut() {
                job.upgrade_mode = restore;
            }
            last.is_not_first_deployment();
        })?;
        next.reconciliation_status.state = ReconciliationState::Upgrading;
        Ok(next)
    }

    /// A generation was reconciled that changes nothing (spec 9.1).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn nothing_changed<S: Spec>(&self, generation: i64) -> Result<Self, UnreadableSpec> {
        let metadata = self.metadata::<S>()?;
        let mut next = self.with_reconciled::<S>(|last| last.metadata = Some(metadata))?;
        next.observed_generation = Some(generation);
        Ok(next)
    }

    /// The nonce of the target triggered a snapshot, or gave up on it (spec 10.1).
    ///
    /// # Errors
    /// `lastReconciledSpec` cannot be read.
    pub fn nonce_used<S: Spec>(
        &self,
        kind: SnapshotKind,
        target: &Target<'_, S>,
    ) -> Result<Self, UnreadableSpec> {
        let metadata = self.metadata::<S>()?;
        let nonce = target.spec.job().and_then(|job| kind.nonce(job));
        let mut next = self.with_reconciled::<S>(|last| {
            last.metadata = Some(metadata);
            if let Some(job) = last.spec.job_mut() {
                match kind {
                    SnapshotKind::Savepoint => job.savepoint_trigger_nonce = nonce,
                    SnapshotKind::Checkpoint => job.checkpoint_trigger_nonce = nonce,
                }
            }
        })?;
        next.observed_generation = Some(target.generation);
        next.reconciliation_status.reconciliation_timestamp = target.now_ms;
        Ok(next)
    }

    fn with_reconciled<S: Spec>(
        &self,
        change: impl FnOnce(&mut ReconciledSpec<S>),
    ) -> Result<Self, UnreadableSpec> {
        let mut next = self.clone();
        if let Some(mut last) = self.reconciled::<S>()? {
            change(&mut last);
            next.set_reconciled(&last);
        }
        Ok(next)
    }

    fn set_reconciled<S: Spec>(&mut self, spec: &ReconciledSpec<S>) {
        self.reconciliation_status.last_reconciled_spec = Some(spec.to_text());
    }

    /// The metadata of what is written now. A deployment stays the first one while it is deployed.
    fn metadata<S: Spec>(&self) -> Result<ReconciliationMetadata, UnreadableSpec> {
        let is_deployed = self.reconciliation_status.state == ReconciliationState::Deployed;
        let first_deployment = match self.reconciled::<S>()? {
            None => true,
            Some(last) => is_deployed && last.is_first_deployment(),
        };
        Ok(ReconciliationMetadata {
            first_deployment,
            ..ReconciliationMetadata::default()
        })
    }
}
