//! The time in which the API server wants no creates: section 2.4 of the DAG scheduler spec, for every controller.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Until when the API server wants no creates. Kept in memory: after a restart the first create gets the same answer
/// again.
#[derive(Debug, Default)]
pub(crate) struct Pause(Mutex<Option<Instant>>);

impl Pause {
    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = (*self.until())?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The API server answered a create with this `Retry-After`.
    pub(crate) fn begin(&self, time: Duration) {
        let asked = Instant::now() + time;
        let mut until = self.until();
        *until = Some(until.map_or(asked, |until| until.max(asked)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_wish_counts_and_passes() {
        let pause = Pause::default();
        assert_eq!(pause.left(), None);
        for seconds in [5, 3] {
            pause.begin(Duration::from_secs(seconds));
            assert_eq!(pause.left(), Some(Duration::from_secs(5)));
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(pause.left(), Some(Duration::from_secs(1)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(pause.left(), None);
    }
}
