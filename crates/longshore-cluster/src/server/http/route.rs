//! The paths of the API, parsed.

/// The thing that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Objects of a resource, or one of them, or a part of one.
    Resource(ResourcePath),
    /// `/api` and below, up to a version.
    Discovery(DiscoveryPath),
    /// Anything else, without a leading slash.
    Other(String),
}

/// A path to objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// A path to a description of groups and resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiscoveryPath {
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/apis`: the list of groups.
    Groups,
    /// `/apis/<group>`.
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`.
    Resources { group: String, version: String },
}

impl Route {
    /// Reads a path.
    pub(crate) fn parse(path: &str) -> Route {
        let decoded: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| {
                percent_encoding::percent_decode_str(segment)
                    .decode_utf8_lossy()
                    .into()
            })
            .collect();
        let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["api"] => Route::Discovery(DiscoveryPath::CoreVersions),
            ["apis"] => Route::Discovery(DiscoveryPath::Groups),
            ["apis", group] => Route::Discovery(DiscoveryPath::Group((*group).to_owned())),
            ["api", version, rest @ ..] => below("", version, rest),
            ["apis", group, version, rest @ ..] => below(group, version, rest),
            other => Route::Other(other.join("/")),
        }
    }
}

fn below(group: &str, version: &str, rest: &[&str]) -> Route {
    let owned = |text: &str| text.to_owned();
    let path = |namespace: Option<&str>, plural: &str, rest: &[&str]| {
        Route::Resource(ResourcePath {
            group: owned(group),
            version: owned(version),
            plural: owned(plural),
            namespace: namespace.map(owned),
            name: rest.first().copied().map(owned),
            subresource: (rest.len() > 1).then(|| rest[1..].join("/")),
        })
    };
    match rest {
        [] => Route::Discovery(DiscoveryPath::Resources {
            group: owned(group),
            version: owned(version),
        }),
        // Parts of a namespace object look like resources inside that namespace.
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
            path(None, "namespaces", &rest[1..])
        }
        ["namespaces", namespace, plural, rest @ ..] => path(Some(namespace), plural, rest),
        [plural, rest @ ..] => path(None, plural, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_objects() {
        let read = |path: &str| match Route::parse(path) {
            Route::Resource(path) => [
                path.group,
                path.version,
                path.plural,
                path.namespace.unwrap_or_default(),
                path.name.unwrap_or_default(),
                path.subresource.unwrap_or_default(),
            ]
            .join(" "),
            other @ (Route::Discovery(_) | Route::Other(_)) => format!("{other:?}"),
        };
        for (path, expected) in [
            ("/api/v1/pods", " v1 pods   "),
            ("/api/v1/namespaces/a/pods/b/log", " v1 pods a b log"),
            ("/api/v1/namespaces/a", " v1 namespaces  a "),
            (
                "/api/v1/namespaces/a/finalize",
                " v1 namespaces  a finalize",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/",
                "apps v1 deployments a  ",
            ),
            (
                "/apis/rbac/v1/roles/system%3Anode",
                "rbac v1 roles  system:node ",
            ),
            ("/healthz", "Other(\"healthz\")"),
        ] {
            assert_eq!(read(path), expected, "{path}");
        }
    }
}
