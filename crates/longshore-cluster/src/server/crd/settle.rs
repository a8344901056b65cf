//! Makes the stored definitions true: their status, and the end of those that are deleted.
//!
//! There is no background task. The request that writes a definition, or that removes an object of
//! a definition under deletion, settles all definitions before its answer goes out; so does a
//! server that starts. A client that disconnects does not stop it: `http` runs every write to its
//! end.

use serde_json::Value;

use super::{catalog::Entry, definition::Definition, names};
use crate::server::{
    Server,
    hub::{Change, CommitError, Draft, Expected, Key, Object},
    meta,
    verbs::delete::mark,
};

/// Keeps a definition until its objects are gone.
pub(super) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Writes the status of every definition that has another one than it should, and removes those
/// that are deleted and empty.
pub(crate) async fn settle(server: &Server) {
    let catalog = server.registry.catalog();
    let _settling = catalog.settling.lock().await;
    for entry in catalog.entries() {
        if entry.definition.is_terminating {
            clean_up(server, &entry).await;
        }
    }
    // A released name goes to another definition in this pass, and that releases no further name:
    // one pass is enough.
    for entry in catalog.entries() {
        if !entry.definition.is_terminating {
            accept_names(server, &entry).await;
        }
    }
}

async fn accept_names(server: &Server, entry: &Entry) {
    let entries = server.registry.catalog().entries();
    let others: Vec<&Definition> = entries.iter().map(|entry| &*entry.definition).collect();
    let status = names::status_of(&entry.definition, &others, server.now());
    if status != entry.definition.status {
        let key = entry.instances.resource.qualified();
        let set_status = |definition: &mut Value| definition["status"] = status.clone();
        rewrite(server, &Key::new(None, &key), set_status).await;
    }
}

/// Deletes the objects of a definition; when there are none left, the definition goes.
async fn clean_up(server: &Server, entry: &Entry) {
    let (objects, _) = entry.instances.snapshot(0);
    for object in objects.values() {
        remove_instance(server, entry, object).await;
    }
    let (left, _) = entry.instances.snapshot(0);
    if !left.is_empty() {
        return;
    }
    let name = entry.instances.resource.qualified();
    let key = Key::new(None, &name);
    rewrite(server, &key, without_finalizer).await;
    let definitions = server.registry.catalog().definitions();
    if definitions.get(&key).is_none() {
        server.registry.catalog().forget(&key);
    }
}

/// Takes away what keeps a definition.
fn without_finalizer(definition: &mut Value) {
    let finalizers: Vec<String> = meta::finalizers(definition)
        .into_iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .map(str::to_owned)
        .collect();
    let metadata = meta::metadata(definition);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Deletes one object, or marks it when finalizers stand in the way.
async fn remove_instance(server: &Server, entry: &Entry, object: &Object) {
    let mut value = object.value();
    let change = if meta::finalizers(&value).is_empty() {
        Change::Delete
    } else if meta::is_deleting(&value) {
        return;
    } else {
        mark(&mut value, 0, server.now());
        Change::Put(Draft::new(&entry.instances.resource, &value))
    };
    let expected = Expected::At(object.revision);
    // A conflict needs no retry: the other writer settles the definitions after its own write.
    let _ = server
        .hub
        .commit(&entry.instances, object.key.clone(), expected, change)
        .await;
}

/// Changes a definition as it is now; the last finalizer takes it away.
async fn rewrite(server: &Server, key: &Key, change: impl Fn(&mut Value)) {
    let definitions = server.registry.catalog().definitions();
    loop {
        let Some(stored) = definitions.get(key) else {
            return;
        };
        let before = stored.value();
        let mut value = before.clone();
        change(&mut value);
        if value == before {
            return;
        }
        let is_over = meta::is_deleting(&value) && meta::finalizers(&value).is_empty();
        let write = if is_over {
            Change::Delete
        } else {
            Change::Put(Draft::new(&definitions.resource, &value))
        };
        let expected = Expected::At(stored.revision);
        let written = server
            .hub
            .commit(definitions, key.clone(), expected, write)
            .await;
        match written {
            Err(CommitError::Raced | CommitError::Claimed) => {}
            Err(error @ CommitError::Store(_)) => {
                // The next write of a definition tries again.
                return tracing::warn!(%error, definition = key.as_str(), "status not stored");
            }
            Ok(_) => return,
        }
    }
}
