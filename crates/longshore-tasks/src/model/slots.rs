//! The slots of the quota of jobs, as a decision sees them.

/// Whose limits a job counts against.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuotaScope {
    /// The project of its action.
    pub project: String,
    /// The domain of its action.
    pub domain: String,
}

/// What an action has of the quota of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// There are no limits.
    Unlimited,
    /// Nothing.
    NotRequested,
    /// A place among those that wait for a slot.
    Waiting,
    /// A slot.
    Granted,
}

/// What a plan does about the slot of its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// The job runs, and counts.
    Take(QuotaScope),
    /// The job is to begin.
    Request(QuotaScope),
    /// There is no job, or none any more.
    Release,
}
