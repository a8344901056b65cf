//! The fixed words of the Execution API: states, and types of runs.

use serde::{Deserialize, Serialize};

/// Declares an enumeration whose variants are words of the API, and the list of these words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The words, in upstream's order.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// States of a task instance. A task instance without a state is `None` of this.
    TaskInstanceState {
        /// The task is no longer in the DAG.
        Removed = "removed",
        /// Its dependencies are met.
        Scheduled = "scheduled",
        /// It was given to the executor.
        Queued = "queued",
        /// A worker runs it.
        Running = "running",
        /// It succeeded.
        Success = "success",
        /// A user cleared it while it ran.
        Restarting = "restarting",
        /// It failed for good.
        Failed = "failed",
        /// It failed, and waits for its next try.
        UpForRetry = "up_for_retry",
        /// A sensor waits for its next look.
        UpForReschedule = "up_for_reschedule",
        /// A task that it needs failed.
        UpstreamFailed = "upstream_failed",
        /// It does not run in this run of the DAG.
        Skipped = "skipped",
        /// It waits for a trigger.
        Deferred = "deferred",
        /// It waits for a human.
        AwaitingInput = "awaiting_input",
    }
}

words! {
    /// States in which a worker may report the end of a task, success aside.
    TerminalStateNonSuccess {
        /// It failed for good.
        Failed = "failed",
        /// It skipped itself.
        Skipped = "skipped",
        /// It found itself removed.
        Removed = "removed",
        /// It found an upstream failure.
        UpstreamFailed = "upstream_failed",
    }
}

words! {
    /// States of a task instance between its start and its end.
    IntermediateTiState {
        /// Its dependencies are met.
        Scheduled = "scheduled",
        /// It was given to the executor.
        Queued = "queued",
        /// A user cleared it while it ran.
        Restarting = "restarting",
        /// It failed, and waits for its next try.
        UpForRetry = "up_for_retry",
        /// A sensor waits for its next look.
        UpForReschedule = "up_for_reschedule",
        /// It waits for a trigger.
        Deferred = "deferred",
        /// It waits for a human.
        AwaitingInput = "awaiting_input",
    }
}

words! {
    /// States of a run.
    DagRunState {
        /// It waits for its time, or for room.
        Queued = "queued",
        /// Its tasks run.
        Running = "running",
        /// It succeeded.
        Success = "success",
        /// It failed.
        Failed = "failed",
    }
}

words! {
    /// What a run was made by.
    DagRunType {
        /// A backfill.
        Backfill = "backfill",
        /// The schedule.
        Scheduled = "scheduled",
        /// A user.
        Manual = "manual",
        /// A `TriggerDagRunOperator`.
        OperatorTriggered = "operator_triggered",
        /// Events of assets.
        AssetTriggered = "asset_triggered",
        /// The materialization of an asset.
        AssetMaterialization = "asset_materialization",
    }
}

words! {
    /// States of the test of a connection.
    ConnectionTestState {
        /// It was asked for.
        Pending = "pending",
        /// It was given to the executor.
        Queued = "queued",
        /// A worker runs it.
        Running = "running",
        /// The connection works.
        Success = "success",
        /// It does not.
        Failed = "failed",
    }
}
