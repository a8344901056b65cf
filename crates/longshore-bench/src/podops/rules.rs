//! PodTransitionRules beside the pods, each over one group of them: what does a namespace with many rules cost?

use anyhow::Result;
use futures::{TryStreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use longshore_api::podops::{self, CONTROLLED, KIND_POD_TRANSITION_RULE, LABEL_CONTROL};
use serde_json::json;

use super::CLIENTS;
use crate::rig::Rig;

/// The label that says to which group a pod belongs.
pub(super) const GROUP: &str = "bench.longshore.dev/group";

/// Makes so many rules. Half of the pods of each group may be out of service.
pub(super) async fn create(rig: &Rig, n: usize) -> Result<()> {
    let kind = GroupVersionKind::gvk(podops::GROUP, podops::VERSION, KIND_POD_TRANSITION_RULE);
    let kind = ApiResource::from_gvk_with_plural(&kind, "podtransitionrules");
    let api: Api<DynamicObject> = Api::namespaced_with(rig.client.clone(), &rig.namespace, &kind);
    let api = &api;
    stream::iter((0..n).map(Ok))
        .try_for_each_concurrent(CLIENTS, |i| async move {
            let rule = serde_json::from_value(json!({
                "apiVersion": format!("{}/{}", podops::GROUP, podops::VERSION),
                "kind": KIND_POD_TRANSITION_RULE,
                "metadata": {"name": format!("rule-{i}")},
                "spec": {
                    "selector": {"matchLabels": {GROUP: i.to_string()}},
                    "rules": [
                        {"name": "half", "availablePolicy": {"maxUnavailableValue": "50%"}},
                        {"name": "controlled", "labelCheck": {"requires": {
                            "matchLabels": {LABEL_CONTROL: CONTROLLED},
                        }}},
                    ],
                },
            }))?;
            api.create(&PostParams::default(), &rule).await?;
            anyhow::Ok(())
        })
        .await
}
