//! How many statuses have just said what holds their actions. Such a status may wait; the rounds of new actions and of those
//! that go on share the API server with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// So many statuses in a second say what holds their actions.
const A_SECOND: u32 = 250;

/// The statuses of this second.
#[derive(Debug, Default)]
pub(crate) struct Sayings(Mutex<(i64, u32)>);

impl Sayings {
    /// Whether an action that is held has to wait until it may say so.
    pub(crate) fn is_crowded(&self, now: Timestamp) -> bool {
        let (second, n_said) = *self.lock();
        second == now.as_second() && n_said >= A_SECOND
    }

    /// A status that says what holds its action was written.
    pub(crate) fn note(&self, now: Timestamp) {
        let mut said = self.lock();
        let (second, n_said) = *said;
        let is_same = second == now.as_second();
        *said = (now.as_second(), if is_same { n_said + 1 } else { 1 });
    }

    fn lock(&self) -> MutexGuard<'_, (i64, u32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longshore_test::EPOCH;

    use super::*;

    #[test]
    fn a_second_has_room_for_some_statuses_and_the_next_one_for_others() {
        let sayings = Sayings::default();
        for _ in 0..A_SECOND {
            assert!(!sayings.is_crowded(EPOCH));
            sayings.note(EPOCH);
        }
        let at = |millis| EPOCH + Duration::from_millis(millis);
        assert!(sayings.is_crowded(at(999)));
        assert!(!sayings.is_crowded(at(1000)));
        sayings.note(at(1000));
        assert!(!sayings.is_crowded(at(1000)));
    }
}
