//! The keys of several controllers that share a wiring.

use std::fmt;

use futures::{Stream, StreamExt, channel::mpsc, stream::BoxStream};
use tokio::task::coop::consume_budget;

/// Gives each controller its own keys.
pub struct Router<T> {
    outlets: Vec<Outlet<T>>,
}

/// Whether a key is of a controller: then that controller gets it.
type Outlet<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

impl<T> fmt::Debug for Router<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self {
            outlets: Vec::new(),
        }
    }
}

impl<T> Router<T> {
    /// The keys that `pick` finds, for the runner of one controller. Each key goes to the first controller that picks it.
    pub fn keys<K: Clone + Send + 'static>(
        &mut self,
        pick: impl Fn(&T) -> Option<&K> + Send + Sync + 'static,
    ) -> BoxStream<'static, K> {
        let (sender, keys) = mpsc::unbounded();
        self.outlets.push(Box::new(move |trigger| {
            let key = pick(trigger).cloned();
            // A controller that has ended takes no more.
            key.is_some_and(|key| sender.unbounded_send(key).is_ok())
        }));
        keys.boxed()
    }

    /// Passes on what comes, for as long as something does.
    pub async fn run(self, triggers: impl Stream<Item = T>) {
        let outlets = self.outlets;
        let passing_on = triggers.for_each(|trigger| {
            let _ = outlets.iter().any(|outlet| outlet(&trigger));
            // A list is one batch of keys: the other tasks of this thread have their turn in between.
            consume_budget()
        });
        passing_on.await;
    }
}
