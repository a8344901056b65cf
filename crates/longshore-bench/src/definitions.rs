//! Custom resources on the API server under test.

use anyhow::Result;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    runtime::wait::await_condition,
};
use serde_json::Value;

/// Installs the resource of this CustomResourceDefinition, and waits until it is served.
pub(crate) async fn install(client: &Client, definition: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let definition: DynamicObject = serde_saphyr::from_str(definition)?;
    let name = definition.name_any();
    match definitions
        .create(&PostParams::default(), &definition)
        .await
    {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        other => drop(other?),
    }
    let is_established = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|object| object.data.pointer("/status/conditions"));
        let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        let mut conditions = conditions.filter(|condition| {
            condition["type"] == "Established" && condition["status"] == "True"
        });
        conditions.next().is_some()
    };
    await_condition(definitions, &name, is_established).await?;
    Ok(())
}
