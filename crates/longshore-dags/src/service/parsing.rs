//! The Python DAG files of the service.

use super::Dags;
use crate::parsing::{self, ParsingConfig};

impl Dags {
    /// Follows bundles of Python DAG files, and parses what changes in them. To be called once, like
    /// [`follow`](Self::follow), without which no schedule makes runs.
    ///
    /// DAGs of bundles that are not named here are not active any more.
    pub fn follow_bundles(&self, config: ParsingConfig) {
        let names = config.bundles.iter();
        let names = names.map(|bundle| bundle.name.as_str().to_owned());
        self.shared.catalog_mut().configure_bundles(names);
        self.shared.inbox.wake();
        let following = parsing::follow(self.shared.clone(), config, self.tasks.shutdown());
        self.tasks.spawn("dags.parsing", following);
    }

    /// No bundle is followed: the Python DAGs of earlier starts are not active.
    pub fn follow_no_bundles(&self) {
        self.shared.catalog_mut().configure_bundles([]);
        self.shared.inbox.wake();
    }
}
