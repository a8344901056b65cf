//! What a custom resource has that built-in ones do not.

use std::sync::Arc;

use serde_json::Value;

use super::{
    columns::Column,
    json_path::{at, put},
    schema::Schema,
};
use crate::server::{error::Cause, meta};

/// Where the parts of a Scale stand in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    /// A selector as text.
    pub(crate) selector: Option<Vec<String>>,
}

/// One version of a custom resource.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    pub(crate) schema: Arc<Schema>,
    /// The schema as JSON, in its author's words, for `kubectl explain`.
    pub(crate) published: Arc<str>,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) list_kind: String,
    /// `group/version` of this version and of the stored one.
    pub(crate) api_version: String,
    pub(crate) stored_api_version: String,
    pub(crate) scale: Option<ScalePaths>,
    /// The warning that a deprecated version answers with.
    pub(crate) deprecation: Option<String>,
    /// Rules in CEL, which are not enforced.
    pub(crate) n_rules: usize,
    /// The definition is being deleted: nothing new is taken.
    pub(crate) is_terminating: bool,
    /// Objects written after this revision have been admitted by this very schema.
    pub(crate) since: u64,
}

impl ScalePaths {
    /// The requested number of replicas, the present number, and the selector.
    pub(crate) fn read(&self, object: &Value) -> (i64, i64, String) {
        let number = |members: &[String]| at(object, members).and_then(Value::as_i64).unwrap_or(0);
        let selector = self
            .selector
            .as_ref()
            .and_then(|it| at(object, it)?.as_str());
        (
            number(&self.spec_replicas),
            number(&self.status_replicas),
            selector.unwrap_or("").to_owned(),
        )
    }

    /// Sets the requested number of replicas.
    pub(crate) fn set_replicas(&self, object: &mut Value, n_replicas: i64) {
        put(object, &self.spec_replicas, n_replicas.into());
    }
}

impl Custom {
    /// Drops what the schema does not know and sets its defaults.
    pub(crate) fn admit(&self, object: &mut Value) {
        self.schema.prune(object);
        self.schema.set_defaults(object);
    }

    /// The paths of what the schema does not know.
    pub(crate) fn unknown_fields(&self, object: &Value) -> Vec<String> {
        self.schema.prune(&mut object.clone())
    }

    /// The stored form of an admitted object. Versions differ in nothing but their name.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        meta::members(&mut object)
            .insert("apiVersion".into(), self.stored_api_version.as_str().into());
        object
    }

    /// The form that clients of this version get.
    pub(crate) fn to_served(&self, mut object: Value) -> Value {
        self.admit(&mut object);
        meta::members(&mut object).insert("apiVersion".into(), self.api_version.as_str().into());
        object
    }

    /// Whether clients of this version get exactly the bytes that were stored by this revision.
    pub(crate) fn shows_stored(&self, revision: u64) -> bool {
        self.api_version == self.stored_api_version && revision > self.since
    }

    /// What is wrong with an object; `old` is its stored state, if there is one.
    pub(crate) fn violations(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = self.schema.violations(object, old);
        causes.extend(self.scale_violations(object));
        causes.extend(self.schema.untyped_embedded(object));
        let had_duplicates = old.is_some_and(|old| !self.schema.duplicates(old).is_empty());
        if !had_duplicates {
            causes.extend(self.schema.duplicates(object));
        }
        causes
    }

    fn scale_violations(&self, object: &Value) -> Option<Cause> {
        let paths = self.scale.as_ref()?;
        let replicas = at(object, &paths.spec_replicas)?.as_i64()?;
        let field = format!(".{}", paths.spec_replicas.join("."));
        (replicas < 0)
            .then(|| Cause::invalid(&field, &replicas.into(), "should be a non-negative integer"))
    }
}
