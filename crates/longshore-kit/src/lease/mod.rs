//! Which of several replicas acts: the holder of a `coordination.k8s.io/v1` Lease, and no other process (rule R7 of the
//! reliability spec).
//!
//! The [`Elector`] takes the lease and renews it; `decide` says when, as a pure function of what was seen; the
//! [`Gate`] is what the rest of the process sees of it. Every write passes the gate ([`GateWrites`] around the API
//! client, [`Gate::check`] before a commit), which closes by itself before another process can take the lease: a
//! process that was paused for a minute and goes on finds the gate closed, whatever it was about to write.
//!
//! A controller that works in several namespaces takes the lease of each ([`Electors`]), so that of two controllers with
//! overlapping sets one acts; one that works in all of them looks for the leases of others ([`Survey`]).
//!
//! **Invariant: a gate is open for less time than others wait.** It opens until *the sending* of the last successful
//! renewal + [`Terms::renew_deadline`]; others count [`Terms::lease_duration`], which is longer, from when they *saw*
//! that renewal. Clocks are compared with themselves only, so that their skew does not matter.

mod decide;
mod elector;
mod electors;
mod gate;
mod record;
mod survey;
mod turn;

use std::time::Duration;

pub use elector::{Elector, LeaseError, LeaseName, Lost};
pub use electors::{Electors, Notice, Tenure};
pub use gate::{Gate, GateWrites, NotLeader};
pub use record::{LEASE, is_uninstalled};
pub use survey::{OtherHolder, Survey};

/// How long leadership lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Other candidates take the lease when they have seen no renewal for this long; default 15 s.
    pub lease_duration: Duration,
    /// The holder stops acting when it has not renewed for this long; less than the lease's duration; default 10 s.
    pub renew_deadline: Duration,
    /// Between two renewals, and between two looks of a candidate that waits; default 2 s.
    pub retry_period: Duration,
}

impl Terms {
    /// The terms of leases that last this long, in the proportions of client-go.
    pub fn lasting(lease_duration: Duration) -> Self {
        Self {
            lease_duration,
            renew_deadline: lease_duration * 2 / 3,
            retry_period: lease_duration * 2 / 15,
        }
    }
}

impl Default for Terms {
    /// The terms of client-go.
    fn default() -> Self {
        Self::lasting(Duration::from_secs(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_terms_are_those_of_client_go() {
        let terms = Terms::default();
        let seconds = [
            terms.lease_duration,
            terms.renew_deadline,
            terms.retry_period,
        ];
        assert_eq!(seconds.map(|time| time.as_secs_f64()), [15.0, 10.0, 2.0]);
    }
}
