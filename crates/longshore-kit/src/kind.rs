//! A [`Resource`] as the API client has it.

use kube::core::ApiResource;
use longshore_core::Resource;

/// What an `Api` of dynamic objects is made for.
pub fn api_resource(resource: Resource) -> ApiResource {
    ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    }
}
