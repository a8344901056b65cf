//! Removes actions that ended long ago (task action spec §5.4).

use std::sync::Arc;

use jiff::SignedDuration;
use kube::{
    Api,
    api::ListParams,
    core::{DynamicObject, ObjectMeta},
};
use longshore_api::flyte::{LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS, TERMINATED};
use longshore_core::ObjectRef;
use longshore_kit::{Clock, Requests};
use longshore_plugins::TASK_ACTION;
use tokio::time::Instant;

use crate::{
    config::Collection,
    measures::{ActionMeasures, Swept},
    status,
};

/// Actions per page of a list.
const PAGE: u32 = 500;

/// One pass now, and one after each interval, for ever.
pub(crate) async fn run(
    api: Api<DynamicObject>,
    collection: Collection,
    measures: ActionMeasures,
    clock: Arc<dyn Clock>,
) {
    if collection.interval.is_zero() {
        return;
    }
    loop {
        let began_at = Instant::now();
        let passed = pass(&api, collection, &measures, clock.as_ref()).await;
        measures.sweep_ended(began_at.elapsed(), passed.is_ok());
        if let Err(error) = passed {
            tracing::warn!(%error, "the collection of ended actions stopped half-way");
        }
        tokio::time::sleep(collection.interval).await;
    }
}

/// Deletes every action that ended longer ago than it may stay. What cannot be deleted stays for the next pass.
async fn pass(
    api: &Api<DynamicObject>,
    collection: Collection,
    measures: &ActionMeasures,
    clock: &dyn Clock,
) -> Result<(), kube::Error> {
    let ttl = SignedDuration::try_from(collection.ttl).unwrap_or(SignedDuration::MAX);
    let now = clock.now();
    let oldest = status::minute(now.saturating_sub(ttl).unwrap_or(now));
    let selector = format!("{LABEL_TERMINATION_STATUS}={TERMINATED},{LABEL_COMPLETED_TIME}");
    let requests = Requests::new(api.clone().into_client());
    let mut params = ListParams::default().labels(&selector).limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await?;
        for action in page.items {
            let labels = action.metadata.labels.as_ref();
            let ended = labels.and_then(|labels| labels.get(LABEL_COMPLETED_TIME));
            let is_due = collection.ttl.is_zero() || ended.is_some_and(|ended| *ended < oldest);
            if let (true, Some(name)) = (is_due, &action.metadata.name) {
                measures.swept(delete(&requests, name, &action.metadata).await);
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

async fn delete(requests: &Requests, name: &str, metadata: &ObjectMeta) -> Swept {
    let target = ObjectRef {
        resource: TASK_ACTION,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
        uid: metadata.uid.clone(),
    };
    match requests.delete(&target, None).await {
        Ok(_) => Swept::Deleted,
        // Gone already, or another one of the same name.
        Err(error) if error.code() == Some(404) || error.is_precondition_failure() => {
            Swept::AlreadyGone
        }
        Err(error) => {
            tracing::warn!(name, %error, "an ended action was not removed");
            Swept::Failed
        }
    }
}
