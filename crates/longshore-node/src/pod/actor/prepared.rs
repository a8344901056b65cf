//! What follows from the preparation of a pod.

use std::collections::BTreeMap;

use kube::runtime::events::EventType;
use longshore_api::node::REASON_IMAGE_NOT_MAPPED;
use tokio::sync::OwnedSemaphorePermit;

use super::Actor;
use crate::{
    clock,
    images::unmapped_note,
    pod::{
        model::{AttemptState, Preparation},
        resolve::Resolved,
    },
    refusal::Refusal,
    shim::protocol::{AttemptId, Exit, ExitReason},
};

impl Actor {
    pub(super) fn learn_prepared(
        &mut self,
        mut result: Result<Resolved, Refusal>,
        permit: OwnedSemaphorePermit,
    ) {
        let refused = result.as_mut().map(|it| std::mem::take(&mut it.refused));
        let refused = refused.unwrap_or_default();
        // Of those that are refused no report comes.
        let permit = Some(permit).filter(|_| refused.is_empty());
        self.end_refused(refused);
        let ready = result.and_then(|resolved| {
            self.specs = resolved.specs;
            self.keep_tokens(resolved.tokens);
            self.start_shim(resolved.network)
                .map_err(|e| Refusal::io("start the shim", &e))
        });
        let before = std::mem::replace(&mut self.local.preparation, Preparation::Ready);
        let Err(refusal) = ready else {
            self.permit = permit;
            self.before_shim = before;
            self.tell_unmapped_images();
            return;
        };
        self.refuse(before, refusal);
    }

    /// Says, once for each image, that its containers run whatever this machine has.
    fn tell_unmapped_images(&self) {
        for image in self.shared.config.images.missing(&self.pod) {
            if self.shared.is_first_use(image) {
                tracing::warn!(
                    image,
                    namespace = %self.this.namespace,
                    pod = %self.this.name,
                    "an image has no entry in images.yaml: its containers run the programs of this machine"
                );
                let note = unmapped_note(image);
                self.announce(EventType::Warning, REASON_IMAGE_NOT_MAPPED, note);
            }
        }
    }

    /// Ends ephemeral containers that cannot be made, each once: the pod goes on without them.
    fn end_refused(&mut self, refused: BTreeMap<String, Refusal>) {
        for (container, refusal) in refused {
            let id = AttemptId {
                container,
                attempt: 0,
            };
            if self.local.last(&id.container).is_some() {
                continue;
            }
            let exit = Exit {
                code: 128,
                signal: None,
                reason: ExitReason::StartError,
                started_at: None,
                finished_at: clock::now(),
                message: refusal.message.clone(),
            };
            self.local.learn(&id, AttemptState::Exited(exit));
            self.announce(EventType::Warning, refusal.event, refusal.message);
        }
    }
}
