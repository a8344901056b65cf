//! What kept creates from happening, until the launch that they were for is over. Kept in memory: after a restart the
//! create is tried again, and says so again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use crate::model::{ActionKey, LaunchId, Obstacle, ObstacleKind};

/// What kept creates from happening.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    /// With the launch that it was for.
    known: Mutex<BTreeMap<ActionKey, (String, Obstacle)>>,
}

impl Obstacles {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ActionKey, (String, Obstacle)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This kept the create of a launch from happening.
    pub(crate) fn note(&self, key: &ActionKey, launch: &str, kind: ObstacleKind, now: Timestamp) {
        let mut known = self.known();
        let since = known
            .get(key)
            .filter(|(of, obstacle)| of == launch && obstacle.kind == kind)
            .map_or(now, |(_, obstacle)| obstacle.since);
        known.insert(key.clone(), (launch.to_owned(), Obstacle { since, kind }));
    }

    /// What keeps this launch from happening. Whatever was there for another launch is forgotten.
    pub(crate) fn of(&self, key: &ActionKey, launch: &LaunchId) -> Option<Obstacle> {
        let mut known = self.known();
        let (of, obstacle) = known.get(key)?;
        if *of == launch.to_string() {
            return Some(obstacle.clone());
        }
        known.remove(key);
        None
    }

    /// There is no such action any more.
    pub(crate) fn forget(&self, key: &ActionKey) {
        self.known().remove(key);
    }
}
