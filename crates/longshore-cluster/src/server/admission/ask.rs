//! Calls webhooks: mutating ones one after the other, validating ones all at once.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::Value;

use super::{
    question::{Content, Question},
    review::{self, Answer, Phase},
    webhook::{FailurePolicy, Webhook},
};
use crate::server::{
    error::{ApiError, Result},
    registry::Resource,
    subresources::scale,
};

/// How far the mutating webhooks have come.
struct Round {
    object: Value,
    /// Webhooks that want to see the end of it.
    again: Vec<usize>,
}

impl Question<'_> {
    /// Calls the mutating webhooks, one after the other. Returns the object with their patches; for
    /// a deletion `Null`.
    pub(crate) async fn mutate(&self, mut new: Value, old: Option<&Value>) -> Result<Value> {
        self.set_type(&mut new);
        let webhooks = self.admission().mutating.webhooks();
        if webhooks.is_empty() || self.is_exempt() {
            return Ok(new);
        }
        let mut round = Round {
            object: new,
            again: Vec::new(),
        };
        self.complete(&mut round.object, old);
        let all: Vec<usize> = (0..webhooks.len()).collect();
        let has_changed = self.mutate_once(&webhooks, &all, &mut round, old).await?;
        if has_changed && !round.again.is_empty() {
            let again = std::mem::take(&mut round.again);
            self.mutate_once(&webhooks, &again, &mut round, old).await?;
        }
        Ok(round.object)
    }

    /// Calls the validating webhooks, all at once. Fails with the first refusal.
    pub(crate) async fn validate(&self, new: Option<&Value>, old: Option<&Value>) -> Result<()> {
        let webhooks = self.admission().validating.webhooks();
        if webhooks.is_empty() || self.is_exempt() {
            return Ok(());
        }
        let new = new.unwrap_or(&Value::Null);
        let mut asked = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(shown) = self.shown_as(webhook, new, old)? {
                asked.push(self.ask(Phase::Validating, webhook, shown, new, old));
            }
        }
        for outcome in join_all(asked).await {
            outcome?;
        }
        Ok(())
    }

    async fn mutate_once(
        &self,
        webhooks: &[Webhook],
        chosen: &[usize],
        round: &mut Round,
        old: Option<&Value>,
    ) -> Result<bool> {
        let mut has_changed = false;
        let mut called = Vec::new();
        for &index in chosen {
            let webhook = &webhooks[index];
            let Some(shown) = self.shown_as(webhook, &round.object, old)? else {
                continue;
            };
            let phase = Phase::Mutating;
            let answer = self
                .ask(phase, webhook, Arc::clone(&shown), &round.object, old)
                .await?;
            if let Some(patch) = answer.and_then(|answer| answer.patch) {
                let patched = self.patched(webhook, &shown, (&round.object, old), &patch)?;
                if patched != round.object {
                    round.object = patched;
                    has_changed = true;
                    // Webhooks that were called before, and that want later changes, are called
                    // again at the end.
                    round.again.append(&mut called);
                }
            }
            if webhook.is_reinvoked {
                called.push(index);
            }
        }
        Ok(has_changed)
    }

    /// The object after a webhook's patch, in its stored form.
    fn patched(
        &self,
        webhook: &Webhook,
        shown: &Resource,
        (object, old): (&Value, Option<&Value>),
        patch: &[u8],
    ) -> Result<Value> {
        if object.is_null() {
            return Err(ApiError::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            )));
        }
        let sent = self.sent(shown, object);
        let patched = review::patched(&sent, patch).map_err(ApiError::internal)?;
        match self.content {
            Content::Resource => {
                let mut stored = self.call.to_stored_from(shown, patched)?;
                self.complete(&mut stored, old);
                Ok(stored)
            }
            Content::Scale => Ok(scale::applied(self.call, object, &patched)),
            Content::Action(..) => Ok(patched),
        }
    }

    /// Calls one webhook. Returns `None` for a webhook that did not answer and may be ignored.
    async fn ask(
        &self,
        phase: Phase,
        webhook: &Webhook,
        shown: Arc<Resource>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Answer>> {
        if self.is_dry_run && !webhook.takes_dry_runs {
            return Err(review::dry_run_unsupported(&webhook.name));
        }
        let uid = self.call.server.random.uuid();
        let question = review::question(&self.request(&uid, &shown, new, old));
        let asking = self.admission().caller.call(webhook, &question);
        let asked = self.call.client_gone.run_until_cancelled(asking).await;
        // Whatever the failure policy says: nothing is stored for a client that has gone away.
        let answer = asked.ok_or_else(|| {
            let why = format!(
                "the client has gone away before webhook {:?} answered",
                webhook.name
            );
            ApiError::unexplained(&why)
        })?;
        let answer = answer.and_then(|body| review::read(phase, &uid, &body));
        let begins_to_fail = webhook.begins_to_fail(answer.is_err());
        match (answer, webhook.failure_policy) {
            (Ok(answer), _) => {
                self.call.warnings.add(answer.warnings.iter().cloned());
                match answer.denial {
                    Some(denial) => Err(denial.into_error(&webhook.name)),
                    None => Ok(Some(answer)),
                }
            }
            (Err(error), FailurePolicy::Ignore) => {
                let webhook = &webhook.name;
                if begins_to_fail {
                    tracing::warn!(
                        webhook,
                        error,
                        "webhook fails, ignored until it answers again"
                    );
                } else {
                    tracing::debug!(webhook, error, "webhook failed, ignored");
                }
                Ok(None)
            }
            (Err(why), FailurePolicy::Fail) => Err(ApiError::internal(format!(
                "failed calling webhook {:?}: {why}",
                webhook.name
            ))),
        }
    }
}
