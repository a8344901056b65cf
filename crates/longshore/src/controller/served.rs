//! Whether the API server knows the resource that a role works on.

use std::time::Duration;

use kube::{Api, Client, api::ListParams, core::DynamicObject};
use longshore_core::Resource;
use longshore_kit::api_resource;

use super::Context;
use crate::output;

/// How often the controller checks whether the API server serves the resource.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Waits until the API server knows the resource, and logs meanwhile what is missing. Without this,
/// watches would retry without end, and no log would say why nothing happens.
pub(super) async fn until_served(
    role: &'static str,
    resource: Resource,
    context: &Context,
    client: &Client,
) {
    let has_told = watch(resource, context, client, |crd| {
        tracing::warn!(
            crd,
            "the resource of the role is not served; waiting for it"
        );
        output::note(&format!(
            "{role}: waits for the resource {crd}, which the API server does not serve: {}",
            advice(role)
        ));
        context.standing.finds(role, false);
    });
    if has_told.await {
        context.standing.finds(role, true);
    }
}

/// Says what does not work while the API server does not know one of several resources of a role, and when it does; the role
/// goes on meanwhile. Returns when the resource is there.
pub(super) async fn while_missing(
    role: &'static str,
    resource: Resource,
    meanwhile: &str,
    context: &Context,
    client: &Client,
) {
    let has_told = watch(resource, context, client, |crd| {
        tracing::warn!(crd, "a resource of the role is not served");
        output::note(&format!(
            "{role}: {meanwhile} until the API server serves {crd}: {}",
            advice(role)
        ));
    });
    if has_told.await {
        output::note(&format!(
            "{role}: the API server serves {} now",
            resource.plural
        ));
    }
}

/// Waits until the API server knows a resource. Calls `missing` once with the name of its definition, if it does not at
/// first, and returns whether it did.
async fn watch(
    resource: Resource,
    context: &Context,
    client: &Client,
    missing: impl Fn(&str),
) -> bool {
    let namespace = context.cluster.namespace();
    let kind = api_resource(resource);
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let one = ListParams::default().limit(1);
    let mut has_told = false;
    while is_unknown(objects.list_metadata(&one).await.map(drop)) {
        if !has_told {
            missing(&format!("{}.{}", resource.plural, resource.group));
            has_told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    has_told
}

/// The command that installs the definitions of a role.
fn advice(role: &str) -> String {
    format!(
        "longshore controller crd{} | kubectl apply -f -",
        flags(role)
    )
}

/// The flag that enables a role which does not run by default; empty for the other roles.
fn flags(role: &str) -> String {
    let defaults = super::roles::defaults();
    if defaults.iter().any(|default| default.name == role) {
        String::new()
    } else {
        format!(" --enable {role}")
    }
}

/// The watches handle every other error.
fn is_unknown(listed: kube::Result<()>) -> bool {
    matches!(listed, Err(kube::Error::Api(status)) if status.code == 404)
}
