//! Which objects a list or a watch selects.

mod field;

use std::sync::Arc;

use field::FieldSelector;
pub(crate) use field::required_name;
use longshore_k8s::Selector;

use super::{
    error::{ApiError, Result},
    hub::{Event, EventType, Object},
    registry::Resource,
};

/// The objects of one collection that a request selects.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    /// `namespace/`, when the request is about one namespace.
    prefix: Option<String>,
    labels: Selector,
    fields: FieldSelector,
}

impl Selection {
    /// Parses the selectors of a request.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: Option<&str>,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<Selection> {
        Ok(Selection {
            prefix: namespace.map(|namespace| format!("{namespace}/")),
            labels: Selector::parse(label_selector)
                .map_err(|error| ApiError::bad_request(error.to_string()))?,
            fields: FieldSelector::parse(field_selector, resource)?,
        })
    }

    /// The selection of one name.
    pub(crate) fn narrowed_to(mut self, name: &str) -> Selection {
        self.fields.require_name(name);
        self
    }

    /// `namespace/`, when the selection is about one namespace.
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Whether a selector (beyond the namespace) is in force.
    pub(crate) fn has_selector(&self) -> bool {
        !self.labels.selects_all() || !self.fields.is_empty()
    }

    /// Whether the object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.prefix
            .as_ref()
            .is_none_or(|prefix| object.key.as_str().starts_with(prefix.as_str()))
            && self.labels.matches(&object.facets.labels)
            && self.fields.matches(object)
    }

    /// How a watcher of this selection sees an event: an object that starts to match is ADDED, one
    /// that stops is DELETED in its old form under the new revision.
    pub(crate) fn project(&self, event: &Event) -> Option<(EventType, Arc<Object>)> {
        let matched = event
            .previous
            .as_ref()
            .is_some_and(|object| self.matches(object));
        match event.kind {
            EventType::Added => self
                .matches(&event.object)
                .then(|| (EventType::Added, Arc::clone(&event.object))),
            EventType::Deleted => matched.then(|| (EventType::Deleted, Arc::clone(&event.object))),
            EventType::Modified => match (matched, self.matches(&event.object), &event.previous) {
                (true, true, _) => Some((EventType::Modified, Arc::clone(&event.object))),
                (false, true, _) => Some((EventType::Added, Arc::clone(&event.object))),
                (true, false, Some(previous)) => Some((
                    EventType::Deleted,
                    Arc::new(previous.departed(event.revision())),
                )),
                (_, false, _) => None,
            },
        }
    }
}
