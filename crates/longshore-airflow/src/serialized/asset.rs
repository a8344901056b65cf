//! Assets: what a task reads and writes, and the conditions of schedules on them (spec section 5.3).

use serde_json::Value;

use super::{
    error::Unreadable,
    record::{Json, record},
};
use crate::pointer::Place;

record! {
    /// An asset, by name and URI.
    pub struct OneAsset {
        /// The name; the URI where the DAG gives none.
        "name" needs name: String,
        /// The URI.
        "uri" needs uri: String,
        /// The kind, for the page: `asset`.
        "group" may group: String,
        /// What the DAG says of it.
        "extra" may extra: Value,
        /// Triggers that watch it from outside.
        "watchers" may watchers: Vec<Value>,
    }
}

record! {
    /// A name that stands for the assets that tasks add to it.
    pub struct AssetAlias {
        /// The name.
        "name" needs name: String,
        /// The kind, for the page.
        "group" may group: String,
    }
}

record! {
    /// A reference to an asset by its name or by its URI.
    pub struct AssetRef {
        /// The name.
        "name" may name: String,
        /// The URI.
        "uri" may uri: String,
    }
}

record! {
    /// Several assets.
    pub struct AssetGroup {
        /// They.
        "objects" needs objects: Vec<Asset>,
    }
}

/// An asset, or a condition of several.
#[derive(Clone, Debug, PartialEq)]
pub enum Asset {
    /// One.
    One(OneAsset),
    /// Those of an alias.
    Alias(AssetAlias),
    /// One that another DAG file describes.
    Ref(AssetRef),
    /// All of them.
    All(AssetGroup),
    /// Any of them.
    Any(AssetGroup),
}

impl Asset {
    /// Reads the members of an asset whose `__type` is known.
    pub(super) fn read_parts(
        name: &str,
        members: Value,
        at: &Place<'_>,
    ) -> Result<Self, Unreadable> {
        Ok(match name {
            "asset" => Self::One(Json::read(members, at)?),
            "asset_alias" => Self::Alias(Json::read(members, at)?),
            "asset_ref" => Self::Ref(Json::read(members, at)?),
            "asset_all" => Self::All(Json::read(members, at)?),
            "asset_any" => Self::Any(Json::read(members, at)?),
            _ => {
                let expected = "the type of an asset";
                return Err(Unreadable::form(
                    &at.member("__type"),
                    expected,
                    &name.into(),
                ));
            }
        })
    }

    /// Its `__type` and its members.
    pub(super) fn write_parts(&self) -> (&'static str, Value) {
        match self {
            Self::One(asset) => ("asset", asset.write()),
            Self::Alias(alias) => ("asset_alias", alias.write()),
            Self::Ref(reference) => ("asset_ref", reference.write()),
            Self::All(group) => ("asset_all", group.write()),
            Self::Any(group) => ("asset_any", group.write()),
        }
    }
}

/// In a condition the type is a member beside the others.
impl Json for Asset {
    fn read(mut value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let name = value
            .as_object_mut()
            .and_then(|object| object.remove("__type"));
        match name {
            Some(Value::String(name)) => Self::read_parts(&name, value, at),
            _ => Err(Unreadable::form(at, "an asset with its `__type`", &value)),
        }
    }

    fn write(&self) -> Value {
        let (name, mut members) = self.write_parts();
        if let Some(members) = members.as_object_mut() {
            members.insert("__type".to_owned(), name.into());
        }
        members
    }
}
