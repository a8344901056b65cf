//! What a request asks for, as roles name it. Pure.

use http::Method;

use crate::server::{
    auth::UserInfo,
    error::ApiError,
    http::{
        query::Query,
        route::{ResourcePath, Route},
    },
    names::NameRule,
    selectors,
};

/// A verb, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) target: Target,
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(ResourceTarget),
    /// A path outside the resources.
    Path(String),
}

/// Objects of a resource, or a part of one; what does not apply is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceTarget {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Attributes {
    /// What a request with this path asks for. `route` is the parsed path, by which the server answers too: so
    /// permission and answer are about the same thing.
    pub(crate) fn of(method: &Method, path: &str, route: &Route, query: &Query) -> Attributes {
        match route {
            Route::Resource(route) => of_resource(method, route, query),
            Route::Discovery(_) | Route::Other(_) => Attributes {
                verb: method.as_str().to_lowercase(),
                target: Target::Path(
                    percent_encoding::percent_decode_str(path)
                        .decode_utf8_lossy()
                        .into(),
                ),
            },
        }
    }

    /// A verb on a resource.
    pub(crate) fn about(verb: &str, target: ResourceTarget) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            target: Target::Resource(target),
        }
    }

    /// The namespace whose roles count besides those of the cluster; empty when there is none.
    pub(crate) fn namespace(&self) -> &str {
        match &self.target {
            Target::Resource(target) => &target.namespace,
            Target::Path(_) => "",
        }
    }

    /// The refusal, in the words of kube-apiserver.
    pub(crate) fn denied(&self, user: &UserInfo, reason: &str) -> ApiError {
        let (username, verb) = (&user.username, &self.verb);
        let (group, resource, name, text) = match &self.target {
            Target::Path(path) => {
                let text = format!("User {username:?} cannot {verb} path {path:?}");
                ("", "", "", text)
            }
            Target::Resource(target) => {
                let place = match target.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let (group, resource) = (&target.group, target.qualified());
                let text = format!(
                    "User {username:?} cannot {verb} resource {resource:?} in API group {group:?} {place}"
                );
                (&**group, &*target.resource, &*target.name, text)
            }
        };
        // Upstream keeps the text from being taken for HTML.
        let mut text = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        ApiError::access_denied(group, resource, name, &text)
    }
}

impl ResourceTarget {
    /// `pods`, `pods/log`.
    fn qualified(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            part => format!("{}/{part}", self.resource),
        }
    }
}

fn of_resource(method: &Method, path: &ResourcePath, query: &Query) -> Attributes {
    let mut name = path.name.clone().unwrap_or_default();
    let verb = match *method {
        Method::GET | Method::HEAD if name.is_empty() => {
            // A flag that cannot be read is refused by whoever answers.
            let is_watch = !matches!(query.flag("watch"), Ok(None | Some(false)));
            let selected = selectors::required_name(query.text("fieldSelector"));
            let is_name = |name: &String| NameRule::PathSegment.violations(name).is_empty();
            name = selected.filter(is_name).unwrap_or_default();
            if is_watch { "watch" } else { "list" }
        }
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    };
    let mut namespace = path.namespace.clone().unwrap_or_default();
    // A namespace counts as being in itself.
    if path.plural == "namespaces" && namespace.is_empty() {
        namespace = path.name.clone().unwrap_or_default();
    }
    let subresource = path.subresource.as_deref().unwrap_or_default();
    let target = ResourceTarget {
        group: path.group.clone(),
        resource: path.plural.clone(),
        subresource: subresource.split('/').next().unwrap_or_default().to_owned(),
        namespace,
        name,
    };
    Attributes::about(verb, target)
}

#[cfg(test)]
impl Attributes {
    /// `VERB GROUP/RESOURCE[/PART] NAMESPACE/NAME` or `VERB @PATH`.
    pub(super) fn for_test(text: &str) -> Attributes {
        let (verb, rest) = text.split_once(' ').unwrap();
        if let Some(path) = rest.strip_prefix('@') {
            let target = Target::Path(path.to_owned());
            return Attributes {
                verb: verb.to_owned(),
                target,
            };
        }
        let (what, whose) = rest.split_once(' ').unwrap();
        let (namespace, name) = whose.split_once('/').unwrap();
        let (group, resource) = what.split_once('/').unwrap();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let target = ResourceTarget {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Attributes::about(verb, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &str) -> Attributes {
        let (method, uri) = request.split_once(' ').unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Attributes::of(&method, path, &Route::parse(path), &Query::parse(query))
    }

    #[test]
    fn each_request_has_its_verb_and_its_resource() {
        for (request, expected) in [
            ("GET /api/v1/pods", "list /pods /"),
            ("GET /api/v1/namespaces/n/pods", "list /pods n/"),
            ("HEAD /api/v1/namespaces/n/pods/p", "get /pods n/p"),
            ("GET /api/v1/namespaces/n/pods?watch=1", "watch /pods n/"),
            ("GET /api/v1/namespaces/n/pods?watch=false", "list /pods n/"),
            ("GET /api/v1/namespaces/n/pods/p?watch=1", "get /pods n/p"),
            (
                "GET /api/v1/pods?fieldSelector=metadata.name%3Dp",
                "list /pods /p",
            ),
            (
                "GET /api/v1/pods?fieldSelector=metadata.name!%3Dp",
                "list /pods /",
            ),
            (
                "GET /api/v1/pods?fieldSelector=a%3Db,metadata.name%3D%3Dp&watch=t",
                "watch /pods /p",
            ),
            (
                "GET /api/v1/pods?fieldSelector=nonsense,metadata.name%3Dp",
                "list /pods /",
            ),
            ("POST /api/v1/namespaces/n/pods", "create /pods n/"),
            (
                "POST /api/v1/namespaces/n/pods/p/eviction",
                "create /pods/eviction n/p",
            ),
            (
                "PUT /apis/apps/v1/namespaces/n/deployments/d/scale",
                "update apps/deployments/scale n/d",
            ),
            (
                "PATCH /api/v1/namespaces/n/pods/p/status",
                "patch /pods/status n/p",
            ),
            ("DELETE /api/v1/namespaces/n/pods/p", "delete /pods n/p"),
            (
                "DELETE /api/v1/namespaces/n/pods",
                "deletecollection /pods n/",
            ),
            ("GET /api/v1/namespaces", "list /namespaces /"),
            ("POST /api/v1/namespaces", "create /namespaces /"),
            ("GET /api/v1/namespaces/n", "get /namespaces n/n"),
            (
                "PUT /api/v1/namespaces/n/finalize",
                "update /namespaces/finalize n/n",
            ),
            (
                "GET /api/v1/namespaces/n/services/s/proxy/a/b",
                "get /services/proxy n/s",
            ),
            (
                "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "create authorization.k8s.io/selfsubjectaccessreviews /",
            ),
            ("FETCH /api/v1/pods", " /pods /"),
            ("GET /api", "get @/api"),
            ("GET /apis/apps/v1", "get @/apis/apps/v1"),
            ("GET /apis/", "get @/apis/"),
            ("GET /open%61pi/v2", "get @/openapi/v2"),
            ("POST /version", "post @/version"),
        ] {
            assert_eq!(read(request), Attributes::for_test(expected), "{request}");
        }
    }

    #[test]
    fn refusals_are_worded_as_upstream_words_them() {
        let user = UserInfo {
            username: "x".to_owned(),
            ..UserInfo::default()
        };
        for (asked, reason, expected) in [
            (
                "list /pods y/",
                "",
                "pods is forbidden: User \"x\" cannot list resource \"pods\" in API group \"\" in the namespace \"y\"",
            ),
            (
                "get apps/deployments/scale y/d",
                "",
                "deployments.apps \"d\" is forbidden: User \"x\" cannot get resource \"deployments/scale\" in API group \
                 \"apps\" in the namespace \"y\"",
            ),
            (
                "get /nodes /n",
                "RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found",
                "nodes \"n\" is forbidden: User \"x\" cannot get resource \"nodes\" in API group \"\" at the cluster \
                 scope: RBAC: clusterrole.rbac.authorization.k8s.io \"r\" not found",
            ),
            (
                "get @/a<b>",
                "",
                "forbidden: User \"x\" cannot get path \"/a&lt;b&gt;\"",
            ),
        ] {
            let refused = Attributes::for_test(asked).denied(&user, reason);
            assert_eq!((refused.code, &*refused.message), (403, expected));
        }
        let status = Attributes::for_test("get apps/deployments/scale y/d")
            .denied(&user, "")
            .to_status();
        let details = serde_json::json!({"name": "d", "group": "apps", "kind": "deployments"});
        assert_eq!(status["details"], details);
        let status = Attributes::for_test("get @/a")
            .denied(&user, "")
            .to_status();
        assert_eq!(status["details"], serde_json::json!({}));
    }
}
