//! One request in the form that webhooks receive, and which webhooks it matches.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{Admission, GROUP, rules::Asked, webhook::Webhook};
use crate::server::{
    error::{ApiError, Result},
    hub::Key,
    meta,
    registry::Resource,
    strategy,
    subresources::scale,
    verbs::{Call, delete::DeleteOptions},
};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A way into a pod or a service.
    Connect,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// What the objects of a question are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Objects of the resource, in its stored form.
    Resource,
    /// The number of replicas of such objects.
    Scale,
    /// Objects of this group, version and kind, which stand for an action.
    Action(&'static str, &'static str, &'static str),
}

/// A request that webhooks may have an opinion on.
pub(crate) struct Question<'a> {
    pub(super) call: &'a Call,
    operation: Operation,
    pub(super) content: Content,
    given: Option<DeleteOptions>,
    pub(super) is_dry_run: bool,
}

impl<'a> Question<'a> {
    /// About a write of a resource's objects. `is_dry_run` is what the request says.
    pub(crate) fn new(call: &'a Call, operation: Operation, is_dry_run: bool) -> Question<'a> {
        Question {
            call,
            operation,
            content: match call.subresource.as_deref() {
                Some("scale") => Content::Scale,
                Some(_) | None => Content::Resource,
            },
            given: None,
            is_dry_run,
        }
    }

    /// The objects are of this kind: they stand for an action on the object of the URL.
    pub(crate) fn of_kind(
        mut self,
        group: &'static str,
        version: &'static str,
        kind: &'static str,
    ) -> Question<'a> {
        self.content = Content::Action(group, version, kind);
        self
    }

    /// The options of a deletion that came in its body.
    pub(crate) fn with_options(mut self, options: DeleteOptions) -> Question<'a> {
        self.given = Some(options);
        self
    }

    /// The options of the request, those of an update also for a patch.
    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = Map::new();
        if let Value::Object(given) = json!(self.given) {
            options.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
        }
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        if self.is_dry_run {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        for option in ["fieldManager", "fieldValidation"] {
            let value = self.call.query.text(option);
            if !value.is_empty() && self.operation != Operation::Delete {
                options.insert(option.to_owned(), value.into());
            }
        }
        Value::Object(options)
    }

    /// The resource as which a webhook wants to see the objects, if it wants to.
    pub(super) fn shown_as(
        &self,
        webhook: &Webhook,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Resource>>> {
        let served = &self.call.served;
        let matches = |resource: &Resource| {
            let asked = self.asked(resource);
            webhook.rules.iter().any(|rule| rule.matches(&asked))
        };
        let shown = if matches(served) {
            Some(Arc::clone(served))
        } else if webhook.matches_equivalent && self.has_equivalent(webhook) {
            let others = self.call.server.registry.forms_of(&self.call.collection);
            others.into_iter().find(|other| matches(other))
        } else {
            None
        };
        let Some(shown) = shown else { return Ok(None) };
        let is_selected =
            self.is_in_namespace_of(webhook, new)? && self.is_selected(webhook, new, old);
        Ok(is_selected.then_some(shown))
    }

    /// Whether it is worth looking for a form of the resource that a webhook's rules name.
    fn has_equivalent(&self, webhook: &Webhook) -> bool {
        let served = &self.call.served;
        let asked = self.asked(served);
        match served.custom {
            Some(_) => webhook
                .rules
                .iter()
                .any(|rule| rule.matches_a_version(&asked)),
            // Events are the only built-in objects that are served in two forms.
            None => served.plural == "events",
        }
    }

    fn asked<'b>(&'b self, resource: &'b Resource) -> Asked<'b> {
        Asked {
            operation: self.operation,
            group: &resource.group,
            version: &resource.version,
            plural: &resource.plural,
            subresource: self.subresource().unwrap_or(""),
            is_namespaced: resource.is_namespaced(),
        }
    }

    /// The name of the subresource: that of a proxy is followed by a path.
    fn subresource(&self) -> Option<&str> {
        self.call.subresource.as_deref()?.split('/').next()
    }

    fn is_in_namespace_of(&self, webhook: &Webhook, new: &Value) -> Result<bool> {
        let selector = &webhook.namespace_selector;
        if selector.selects_all() {
            return Ok(true);
        }
        let is_namespace = self.is_about_namespaces();
        // A write of a namespace is matched by the labels in the request, not by the stored ones.
        let is_written =
            is_namespace && self.call.subresource.is_none() && self.operation != Operation::Delete;
        if is_written {
            return Ok(selector.matches_object(new));
        }
        let name = match &self.call.namespace {
            Some(namespace) => namespace,
            None if is_namespace => &self.call.name,
            None => return Ok(true),
        };
        let namespaces = &self.admission().namespaces;
        let Some(namespace) = namespaces.get(&Key::new(None, name)) else {
            return Err(ApiError::not_found(&namespaces.resource, name));
        };
        Ok(selector.matches(&namespace.facets.labels))
    }

    /// Whether the object before or after has the labels that the selector of a webhook requires.
    fn is_selected(&self, webhook: &Webhook, new: &Value, old: Option<&Value>) -> bool {
        let selector = &webhook.object_selector;
        // The options of a way in are no object, which a selector could match.
        if self.operation == Operation::Connect {
            return selector.selects_all();
        }
        // A Scale has no labels.
        let has_labels = self.content != Content::Scale;
        let matches = |object: &Value| match has_labels {
            true => !object.is_null() && selector.matches_object(object),
            false => selector.matches(&BTreeMap::new()),
        };
        selector.selects_all() || matches(new) || old.is_some_and(matches)
    }

    fn is_about_namespaces(&self) -> bool {
        let served = &self.call.served;
        served.group.is_empty() && served.plural == "namespaces"
    }

    /// Webhooks receive no requests about webhook registrations: a broken webhook must be
    /// removable.
    pub(super) fn is_exempt(&self) -> bool {
        self.call.served.group == GROUP
    }

    pub(super) fn admission(&self) -> &Admission {
        &self.call.server.admission
    }

    /// An action says what it is and where, also when its sender left that to the path.
    pub(super) fn set_type(&self, action: &mut Value) {
        let Content::Action(group, version, kind) = self.content else {
            return;
        };
        let api_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let members = meta::members(action);
        members.insert("kind".into(), kind.into());
        members.insert("apiVersion".into(), api_version.into());
        // The options of a way in have no metadata.
        if let Some(namespace) = &self.call.namespace
            && self.operation != Operation::Connect
        {
            meta::metadata(action).insert("namespace".into(), namespace.as_str().into());
        }
    }

    /// Fills in what upstream's types fill in when they decode an object.
    pub(super) fn complete(&self, object: &mut Value, old: Option<&Value>) {
        if self.content == Content::Resource && !object.is_null() {
            strategy::set_defaults(self.call.resource(), object, old);
        }
    }

    /// An object as a webhook gets it.
    pub(super) fn sent(&self, shown: &Resource, object: &Value) -> Value {
        match self.content {
            Content::Resource if !object.is_null() => shown.to_served(object.clone()),
            Content::Scale if !object.is_null() => scale::of(self.call, object),
            Content::Resource | Content::Scale | Content::Action(..) => object.clone(),
        }
    }

    pub(super) fn request(
        &self,
        uid: &str,
        shown: &Resource,
        new: &Value,
        old: Option<&Value>,
    ) -> Value {
        let call = self.call;
        let name = match call.name.as_str() {
            "" => meta::name(new),
            _ if call.is_of_collection => "",
            name => name,
        };
        let mut request = Map::new();
        let mut put = |key: &str, value: Value| {
            request.insert(key.to_owned(), value);
        };
        put("uid", uid.into());
        put("kind", self.kind(shown));
        put("resource", resource(shown));
        put("requestKind", self.kind(&call.served));
        put("requestResource", resource(&call.served));
        if let Some(subresource) = self.subresource() {
            put("subResource", subresource.into());
            put("requestSubResource", subresource.into());
        }
        if !name.is_empty() {
            put("name", name.into());
        }
        match &call.namespace {
            Some(namespace) => put("namespace", namespace.as_str().into()),
            // A namespace counts as being in itself.
            None if self.is_about_namespaces() && !name.is_empty() => {
                put("namespace", name.into());
            }
            None => {}
        }
        put("operation", self.operation.name().into());
        put("userInfo", call.user.to_json());
        put("object", self.sent(shown, new));
        let old = old.map_or(Value::Null, |old| self.sent(shown, old));
        put("oldObject", old);
        put("dryRun", self.is_dry_run.into());
        put("options", self.options());
        Value::Object(request)
    }

    fn kind(&self, shown: &Resource) -> Value {
        let (group, version, kind) = match self.content {
            Content::Resource => (&*shown.group, &*shown.version, &*shown.kind),
            Content::Scale => ("autoscaling", "v1", "Scale"),
            Content::Action(group, version, kind) => (group, version, kind),
        };
        json!({"group": group, "version": version, "kind": kind})
    }
}

fn resource(shown: &Resource) -> Value {
    json!({"group": shown.group, "version": shown.version, "resource": shown.plural})
}
