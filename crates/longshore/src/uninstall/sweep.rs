//! Removes Longshore's finalizers, labels or gates from all objects of a resource.

use std::{fmt, time::Duration};

use futures::{TryStreamExt, stream};
use jiff::Timestamp;
use longshore_core::{Patch, Resource};
use longshore_kit::{Clock, SystemClock};
use serde_json::Value;

use super::objects::{Objects, name_of};
use crate::error::UninstallError;

/// Objects that are written at the same time.
const AT_ONCE: usize = 16;
/// Passes over all objects, before the command reports that another client restores what was removed.
const LOOKS: usize = 20;
/// Patches of one object in one look: the gate of a pod, and everything else.
const PATCHES: usize = 2;
/// Pause between two passes.
const PAUSE: Duration = Duration::from_millis(500);

/// The patches that a sweep makes to one object, in order.
pub(super) type Due = Box<dyn Fn(&Value, Timestamp) -> Vec<Patch> + Send + Sync>;

/// A finalizer, a label or a gate of Longshore on all objects of a resource.
pub(super) struct Sweep {
    /// What the sweep removes, in words for the user.
    pub(super) what: String,
    pub(super) resource: Resource,
    /// `None`: everywhere.
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) due: Due,
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep")
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

impl Sweep {
    /// The objects that carry what the sweep removes.
    pub(super) async fn look(
        &self,
        objects: &Objects,
        now: Timestamp,
    ) -> Result<Vec<String>, UninstallError> {
        let carriers = self.carriers(objects, now).await?;
        Ok(carriers.iter().map(name_of).collect())
    }

    /// Patches the objects until none carries what the sweep removes; returns the names of those that did.
    pub(super) async fn run(&self, objects: &Objects) -> Result<Vec<String>, UninstallError> {
        let mut done: Vec<String> = Vec::new();
        for _ in 0..LOOKS {
            let carriers = self.carriers(objects, SystemClock.now()).await?;
            if carriers.is_empty() {
                return Ok(done);
            }
            let names = carriers.iter().map(name_of);
            let new: Vec<String> = names.filter(|name| !done.contains(name)).collect();
            done.extend(new);
            stream::iter(carriers.into_iter().map(Ok))
                .try_for_each_concurrent(AT_ONCE, |object| self.take_off(objects, object))
                .await?;
            tokio::time::sleep(PAUSE).await;
        }
        let carriers = self.look(objects, SystemClock.now()).await?;
        if carriers.is_empty() {
            return Ok(done);
        }
        Err(UninstallError::ComesBack {
            what: self.what.clone(),
            objects: carriers,
        })
    }

    async fn carriers(
        &self,
        objects: &Objects,
        now: Timestamp,
    ) -> Result<Vec<Value>, UninstallError> {
        let namespace = self.namespace.as_deref();
        let labels = self.labels.as_deref();
        let mut all = objects.list(self.resource, namespace, labels).await?;
        all.retain(|object| !(self.due)(object, now).is_empty());
        Ok(all)
    }

    /// Makes each patch from the object as the patch before has left it.
    async fn take_off(&self, objects: &Objects, object: Value) -> Result<(), UninstallError> {
        let mut object = object;
        for _ in 0..PATCHES {
            let due = (self.due)(&object, SystemClock.now());
            let Some(patch) = due.first() else {
                return Ok(());
            };
            let Some(after) = objects.patch(patch).await? else {
                return Ok(());
            };
            // The last finalizer of an object that was deleted: it is gone.
            if due.len() == 1 {
                return Ok(());
            }
            object = after;
        }
        Ok(())
    }
}
