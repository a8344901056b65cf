//! In which order the leases of one candidate are taken.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// The turn of one of several leases: it comes once those before it are settled.
#[derive(Debug)]
pub(super) struct Turn {
    position: usize,
    /// Which of the leases are settled, in their order.
    settled: watch::Receiver<Vec<bool>>,
}

impl Turn {
    /// Of a lease that is alone.
    pub(super) fn at_once() -> Self {
        let (_, settled) = watch::channel(Vec::new());
        Self::of(0, settled)
    }

    /// Of the lease at this position.
    pub(super) fn of(position: usize, settled: watch::Receiver<Vec<bool>>) -> Self {
        Self { position, settled }
    }

    pub(super) fn has_come(&self) -> bool {
        are_settled_before(self.position, &self.settled.borrow())
    }

    /// Waits for it, at most for this time.
    pub(super) async fn come_within(&mut self, limit: Duration) {
        let position = self.position;
        let came = self
            .settled
            .wait_for(|settled| are_settled_before(position, settled));
        let will_never_come = matches!(timeout(limit, came).await, Ok(Err(_)));
        if will_never_come {
            sleep(limit).await;
        }
    }
}

fn are_settled_before(position: usize, settled: &[bool]) -> bool {
    settled.iter().take(position).all(|is_settled| *is_settled)
}
