//! The actor's part in volumes whose content changes: tokens are renewed, and what has changed is read again.

use jiff::Timestamp;
use longshore_k8s::Backoff;

use super::{Actor, Fact};
use crate::{
    clock,
    pod::resolve::refresh,
    refusal::Refusal,
    sources::{Tokens, has_tokens},
};

impl Actor {
    /// An earlier node has written the tokens of a pod that runs, and nobody remembers how long they are good.
    pub(super) fn recall_tokens(&mut self) {
        if self.local.has_shim && has_tokens(&self.pod) {
            self.local.refresh.due_at = Some(clock::now());
        }
    }

    /// Remembers what the volumes hold now.
    pub(super) fn keep_tokens(&mut self, tokens: Tokens) {
        self.local.refresh.due_at = first_renewal(&tokens);
        self.tokens = tokens;
    }

    pub(super) fn refresh(&mut self) {
        self.local.refresh.is_in_flight = true;
        let (shared, pod, dir) = (self.shared.clone(), self.pod.clone(), self.dir.clone());
        let (pod_ip, known) = (self.pod_ip, self.tokens.clone());
        self.work.push(Box::pin(async move {
            Fact::Refreshed(refresh(&shared, &pod, pod_ip, &dir, &known).await)
        }));
    }

    pub(super) fn learn_refreshed(&mut self, result: Result<(Tokens, Vec<Refusal>), Refusal>) {
        self.local.refresh.is_in_flight = false;
        let is_outdated = std::mem::take(&mut self.local.refresh.is_outdated);
        match result {
            Ok((tokens, missing)) => {
                self.local.refresh.n_failures = 0;
                self.keep_tokens(tokens);
                if is_outdated {
                    self.local.refresh.due_at = Some(clock::now());
                }
                for refusal in missing {
                    let why = refusal.message;
                    tracing::warn!(pod = %self.this.name, why, "a volume stays as it was");
                }
            }
            Err(refusal) => {
                let refresh = &mut self.local.refresh;
                refresh.n_failures = refresh.n_failures.saturating_add(1);
                let wait = Backoff::RETRY.wait(refresh.n_failures);
                refresh.due_at = clock::now().checked_add(wait).ok();
                let why = refusal.message;
                tracing::warn!(pod = %self.this.name, why, "volumes not renewed, trying again");
            }
        }
    }
}

/// When the first of these tokens is to be renewed.
fn first_renewal(tokens: &Tokens) -> Option<Timestamp> {
    tokens.values().map(|token| token.renew_at).min()
}
