//! Removes actions that ended long ago (task action spec §5.4).

use std::sync::Arc;

use jiff::SignedDuration;
use kube::{
    Api, Client,
    api::ListParams,
    core::{DynamicObject, ObjectMeta},
};
use longshore_api::flyte::{LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS, TERMINATED};
use longshore_core::ObjectRef;
use longshore_kit::{Clock, Namespaces, Requests, api_resource};
use longshore_plugins::TASK_ACTION;
use tokio::time::Instant;

use crate::{
    config::Collection,
    measures::{ActionMeasures, Swept},
    status,
};

/// Actions per page of a list.
const PAGE: u32 = 500;

/// What removes them.
pub(crate) struct Collector {
    pub(crate) client: Client,
    pub(crate) namespaces: Namespaces,
    pub(crate) collection: Collection,
    pub(crate) measures: ActionMeasures,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Collector {
    /// One pass now, and one after each interval, for ever.
    pub(crate) async fn run(self) {
        if self.collection.interval.is_zero() {
            return;
        }
        loop {
            let began_at = Instant::now();
            let mut is_complete = true;
            for api in self.places() {
                let passed = self.pass(&api).await;
                is_complete &= passed.is_ok();
                if let Err(error) = passed {
                    tracing::warn!(%error, "the collection of ended actions stopped half-way");
                }
            }
            self.measures.sweep_ended(began_at.elapsed(), is_complete);
            tokio::time::sleep(self.collection.interval).await;
        }
    }

    /// The actions of each namespace, or of all at once.
    fn places(&self) -> Vec<Api<DynamicObject>> {
        let (client, kind) = (&self.client, api_resource(TASK_ACTION));
        let Some(namespaces) = self.namespaces.now() else {
            return vec![Api::all_with(client.clone(), &kind)];
        };
        let places = namespaces.iter();
        let api = |namespace: &String| Api::namespaced_with(client.clone(), namespace, &kind);
        places.map(api).collect()
    }

    /// Deletes every action that ended longer ago than it may stay. What cannot be deleted stays for the next pass.
    async fn pass(&self, api: &Api<DynamicObject>) -> Result<(), kube::Error> {
        let Collection { ttl, .. } = self.collection;
        let longest = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let now = self.clock.now();
        let oldest = status::minute(now.saturating_sub(longest).unwrap_or(now));
        let selector = format!("{LABEL_TERMINATION_STATUS}={TERMINATED},{LABEL_COMPLETED_TIME}");
        let requests = Requests::new(self.client.clone());
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            for action in page.items {
                let labels = action.metadata.labels.as_ref();
                let ended = labels.and_then(|labels| labels.get(LABEL_COMPLETED_TIME));
                let is_due = ttl.is_zero() || ended.is_some_and(|ended| *ended < oldest);
                if let (true, Some(name)) = (is_due, &action.metadata.name) {
                    self.measures
                        .swept(delete(&requests, name, &action.metadata).await);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
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
