//! The registered webhooks of one kind, compiled.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::webhook::Webhook;
use crate::server::hub::{Collection, Objects, lock};

/// The webhooks of a collection of configurations, in the order of their calls.
pub(super) struct Registered {
    collection: Arc<Collection>,
    /// The state of the collection that the webhooks were compiled from.
    compiled: Mutex<(Objects, Arc<[Webhook]>)>,
}

impl Registered {
    pub(super) fn new(collection: Arc<Collection>) -> Registered {
        let compiled = Mutex::new((Objects::default(), Arc::from([])));
        Registered {
            collection,
            compiled,
        }
    }

    /// The webhooks that are registered now: configurations by name, their webhooks in their order.
    pub(super) fn webhooks(&self) -> Arc<[Webhook]> {
        let (objects, _) = self.collection.snapshot(0);
        let mut compiled = lock(&self.compiled);
        if !Arc::ptr_eq(&objects, &compiled.0) {
            let webhooks: Arc<[Webhook]> = match objects.is_empty() {
                true => Arc::from([]),
                false => compile(&objects),
            };
            // Kept, so that no other state can have its address.
            *compiled = (objects, webhooks);
        }
        Arc::clone(&compiled.1)
    }
}

fn compile(objects: &Objects) -> Arc<[Webhook]> {
    let mut webhooks = Vec::new();
    for object in objects.values() {
        let configuration = object.value();
        let listed = configuration.get("webhooks").and_then(Value::as_array);
        for webhook in listed.into_iter().flatten() {
            match Webhook::read(webhook) {
                Ok(webhook) => webhooks.push(webhook),
                Err(error) => {
                    tracing::warn!(configuration = object.key.as_str(), %error, "webhook not read");
                }
            }
        }
    }
    webhooks.into()
}
