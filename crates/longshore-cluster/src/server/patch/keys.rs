//! How the lists of built-in kinds merge, as upstream's `patchStrategy` and `patchMergeKey` tags say.

/// How a strategic patch combines a list with the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMerge {
    /// The patch's list takes the place of the old one.
    Atomic,
    /// Plain values are united.
    Set,
    /// Items are objects, matched by the value of this member.
    ByKey(&'static str),
}

/// The rule of a list, by the member that holds it and the kind of the whole object.
pub(super) fn list_merge(kind: &str, member: &str) -> ListMerge {
    match (kind, member) {
        ("EndpointSlice" | "Endpoints" | "NetworkPolicy" | "Ingress", "ports") => ListMerge::Atomic,
        ("Service", "ports") => ListMerge::ByKey("port"),
        (_, "ports") => ListMerge::ByKey("containerPort"),
        (_, "finalizers" | "podCIDRs") => ListMerge::Set,
        (_, "ownerReferences") => ListMerge::ByKey("uid"),
        (_, "conditions" | "addresses") => ListMerge::ByKey("type"),
        (_, "volumeMounts") => ListMerge::ByKey("mountPath"),
        (_, "volumeDevices") => ListMerge::ByKey("devicePath"),
        (_, "hostAliases" | "podIPs" | "hostIPs") => ListMerge::ByKey("ip"),
        (_, "topologySpreadConstraints") => ListMerge::ByKey("topologyKey"),
        ("ServiceAccount", "secrets")
        | (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumes"
            | "imagePullSecrets"
            | "schedulingGates"
            | "resourceClaims"
            | "resourceClaimStatuses"
            | "webhooks",
        ) => ListMerge::ByKey("name"),
        _ => ListMerge::Atomic,
    }
}
