//! An object of any kind, with what its controller reads of it.

use std::{borrow::Cow, sync::Arc};

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use crate::raw::RawObject;

/// An object as the API server sent it, and the `T` that was read from it.
///
/// The `T` is read once, when the object comes, and not once for each use: a cache whose objects are looked at together
/// (each pod against each rule) holds this. Cached objects are shared, so that there is one `T` for each version of an
/// object. It costs the memory of a `T` beside the text: a `T` should have few of the fields.
#[derive(Clone, Debug)]
pub struct Parsed<T> {
    raw: RawObject,
    /// `None` where the object does not have the shape of a `T`.
    value: Option<Arc<T>>,
}

impl<T: DeserializeOwned> Parsed<T> {
    /// What was read of the object; `None` where it does not have the shape of a `T`.
    pub fn value(&self) -> Option<&Arc<T>> {
        self.value.as_ref()
    }

    /// The same, or why the object cannot be read.
    ///
    /// # Errors
    /// The object does not have the shape of a `T`.
    pub fn read(&self) -> serde_json::Result<Arc<T>> {
        match &self.value {
            Some(value) => Ok(Arc::clone(value)),
            None => self.raw.read().map(Arc::new),
        }
    }

    /// The object itself.
    pub fn raw(&self) -> &RawObject {
        &self.raw
    }
}

impl<T: DeserializeOwned> From<RawObject> for Parsed<T> {
    fn from(raw: RawObject) -> Self {
        let value = raw.read().ok().map(Arc::new);
        Self { raw, value }
    }
}

/// Fails where [`RawObject`] fails, and not where the object does not have the shape of a `T`: one such object does not
/// end a watch.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawObject::deserialize(deserializer).map(Self::from)
    }
}

impl<T> Resource for Parsed<T> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        RawObject::kind(kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        RawObject::group(kind)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        RawObject::version(kind)
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        RawObject::api_version(kind)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        RawObject::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.raw.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.raw.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Named {
        spec: String,
    }

    #[test]
    fn an_object_that_cannot_be_read_comes_and_says_why() {
        let object = json!({"metadata": {"name": "a"}, "spec": "s"});
        let parsed: Parsed<Named> = serde_json::from_value(object).unwrap();
        assert_eq!(parsed.value().unwrap().spec, "s");
        assert!(Arc::ptr_eq(
            parsed.value().unwrap(),
            &parsed.read().unwrap()
        ));
        let object = json!({"metadata": {"name": "a"}, "spec": 1});
        let parsed: Parsed<Named> = serde_json::from_value(object).unwrap();
        assert!(parsed.value().is_none() && parsed.read().is_err());
        assert_eq!(parsed.meta().name.as_deref(), Some("a"));
        assert_eq!(parsed.raw().to_value().unwrap()["spec"], 1);
    }
}
