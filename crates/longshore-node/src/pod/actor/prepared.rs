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
    volumes,
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
            self.withheld = resolved.withheld;
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

    /// Makes what a container needs at its own start: after the init containers, and anew for each attempt.
    pub(super) fn ready_to_start(&self, container: &str) -> Result<(), Refusal> {
        if let Some(refusal) = self.withheld.get(container) {
            return Err(refusal.clone());
        }
        match self.specs.get(container) {
            Some(spec) => volumes::make_sub_paths(container, &spec.sandbox),
            None => Ok(()),
        }
    }

    /// One container cannot start for now. Those that run go on; of several that cannot, the first one is told.
    pub(super) fn refuse_start(&mut self, refusal: Refusal) {
        // No report comes of it.
        self.permit = None;
        if matches!(self.local.preparation, Preparation::Failed { .. }) {
            return;
        }
        let before = std::mem::replace(&mut self.before_shim, Preparation::Needed);
        self.refuse(before, refusal);
    }

    /// A container has ended, which may have made what another one lacks: that is prepared again before its turn.
    pub(super) fn reconsider_withheld(&mut self) {
        if !self.withheld.is_empty() && self.local.preparation == Preparation::Ready {
            self.local.preparation = Preparation::Needed;
        }
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
