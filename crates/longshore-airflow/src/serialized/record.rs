//! How objects with known members are read and written: one list of members makes the type, its reader and its writer.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::error::{Problem, Unreadable};
use crate::pointer::Place;

/// A value that has one form in JSON.
pub(super) trait Json: Sized {
    /// Reads it.
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable>;
    /// Writes what was read, as the same JSON.
    fn write(&self) -> Value;
}

/// The members of an object that are not read yet.
pub(super) struct Members<'a> {
    at: &'a Place<'a>,
    left: Map<String, Value>,
}

impl<'a> Members<'a> {
    pub(super) fn of(value: Value, at: &'a Place<'a>) -> Result<Self, Unreadable> {
        match value {
            Value::Object(left) => Ok(Self { at, left }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(Unreadable::form(at, "an object", &value)),
        }
    }

    /// A member that must be there.
    pub(super) fn needs<T: Json>(&mut self, name: &'static str) -> Result<T, Unreadable> {
        match self.left.remove(name) {
            Some(value) => T::read(value, &self.at.member(name)),
            None => Err(Unreadable::new(self.at, Problem::Missing { member: name })),
        }
    }

    /// A member that may be left out. One that is null stays with the rest: so null and nothing both read as `None`,
    /// and are written as they were.
    pub(super) fn may<T: Json>(&mut self, name: &'static str) -> Result<Option<T>, Unreadable> {
        if self.left.get(name).is_none_or(Value::is_null) {
            return Ok(None);
        }
        self.needs(name).map(Some)
    }

    /// What nobody read.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.left
    }
}

/// Members of an object, in one list: `"name" needs field: Type` must be there, `may` can be left out.
///
/// `record!` makes a type for the whole object, with the members that are not listed in `rest`. `members!` makes one for
/// some of its members, which a record takes in with `flat`; there, `= default` is what Airflow takes for a member that
/// is left out, and gives the field an accessor of the same name.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $key:literal $kind:ident $field:ident: $type:ty,)*
        $(flat { $($(#[$flat_doc:meta])* $flat:ident: $flat_type:ty,)* })?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $crate::serialized::record::field!($kind $type),)*
            $($($(#[$flat_doc])* pub $flat: $flat_type,)*)?
            /// The members that Longshore does not know, and those that are null.
            pub rest: serde_json::Map<String, serde_json::Value>,
        }

        impl $name {
            /// The names of the members that are read.
            pub const MEMBERS: &'static [&'static str] = &[$($key),*];
        }

        impl $crate::serialized::record::Json for $name {
            fn read(
                value: serde_json::Value,
                at: &$crate::pointer::Place<'_>,
            ) -> Result<Self, $crate::serialized::error::Unreadable> {
                let mut members = $crate::serialized::record::Members::of(value, at)?;
                Ok(Self {
                    $($field: members.$kind($key)?,)*
                    $($($flat: <$flat_type>::take(&mut members)?,)*)?
                    rest: members.rest(),
                })
            }

            fn write(&self) -> serde_json::Value {
                let mut map = self.rest.clone();
                $($crate::serialized::record::put!($kind &mut map, $key, &self.$field);)*
                $($(self.$flat.put(&mut map);)*)?
                map.into()
            }
        }
    };
}

macro_rules! members {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $key:literal $field:ident: $type:ty $(= $default:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl $name {
            /// The names of the members that are read.
            pub const MEMBERS: &'static [&'static str] = &[$($key),*];

            pub(super) fn take(
                members: &mut $crate::serialized::record::Members<'_>,
            ) -> Result<Self, $crate::serialized::error::Unreadable> {
                Ok(Self { $($field: members.may($key)?,)* })
            }

            pub(super) fn put(&self, map: &mut serde_json::Map<String, serde_json::Value>) {
                $($crate::serialized::record::put!(may map, $key, &self.$field);)*
            }

            /// These, and where one is left out, that of `other`.
            #[must_use]
            pub fn or(&self, other: &Self) -> Self {
                Self { $($field: self.$field.clone().or_else(|| other.$field.clone()),)* }
            }

            /// What Airflow takes for members that are left out.
            #[must_use]
            pub fn defaults() -> Self {
                Self { $($field: $crate::serialized::record::default!($($default)?),)* }
            }

            $($crate::serialized::record::accessor!($key $field $type $(, $default)?);)*
        }
    };
}

macro_rules! field {
    (needs $type:ty) => { $type };
    (may $type:ty) => { Option<$type> };
}

macro_rules! put {
    (needs $map:expr, $key:literal, $value:expr) => {
        $map.insert(
            $key.to_owned(),
            $crate::serialized::record::Json::write($value),
        );
    };
    (may $map:expr, $key:literal, $value:expr) => {
        if let Some(value) = $value {
            $map.insert(
                $key.to_owned(),
                $crate::serialized::record::Json::write(value),
            );
        }
    };
}

macro_rules! default {
    () => {
        None
    };
    ($default:expr) => {
        Some($default)
    };
}

macro_rules! accessor {
    ($key:literal $field:ident $type:ty) => {};
    ($key:literal $field:ident $type:ty, $default:expr) => {
        #[doc = concat!("`", $key, "`; where it is left out, Airflow's default.")]
        #[must_use]
        pub fn $field(&self) -> $type {
            self.$field.clone().unwrap_or_else(|| $default)
        }
    };
}

pub(super) use {accessor, default, field, members, put, record};

impl Json for Value {
    fn read(value: Value, _: &Place<'_>) -> Result<Self, Unreadable> {
        Ok(value)
    }

    fn write(&self) -> Value {
        self.clone()
    }
}

impl Json for String {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match value {
            Value::String(text) => Ok(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err(Unreadable::form(at, "a text", &value)),
        }
    }

    fn write(&self) -> Value {
        self.clone().into()
    }
}

impl Json for bool {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        value
            .as_bool()
            .ok_or_else(|| Unreadable::form(at, "true or false", &value))
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

impl Json for i64 {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        value
            .as_i64()
            .ok_or_else(|| Unreadable::form(at, "a whole number", &value))
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

impl Json for Number {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match value {
            Value::Number(number) => Ok(number),
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Err(Unreadable::form(at, "a number", &value)),
        }
    }

    fn write(&self) -> Value {
        self.clone().into()
    }
}

impl<T: Json> Json for Box<T> {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        T::read(value, at).map(Box::new)
    }

    fn write(&self) -> Value {
        T::write(self)
    }
}

impl<T: Json> Json for Vec<T> {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let Value::Array(items) = value else {
            return Err(Unreadable::form(at, "a list", &value));
        };
        let items = items.into_iter().enumerate();
        items
            .map(|(index, item)| T::read(item, &at.item(index)))
            .collect()
    }

    fn write(&self) -> Value {
        self.iter().map(T::write).collect()
    }
}

/// The two items of a list that has two.
pub(super) fn pair(
    value: Value,
    expected: &'static str,
    at: &Place<'_>,
) -> Result<[Value; 2], Unreadable> {
    let items = Vec::<Value>::read(value, at)?;
    <[Value; 2]>::try_from(items).map_err(|items| Unreadable::form(at, expected, &items.into()))
}

impl<T: Json> Json for BTreeMap<String, T> {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let members = Members::of(value, at)?.rest().into_iter();
        members
            .map(|(name, member)| {
                let member = T::read(member, &at.member(&name))?;
                Ok((name, member))
            })
            .collect()
    }

    fn write(&self) -> Value {
        self.iter()
            .map(|(name, member)| (name.clone(), member.write()))
            .collect()
    }
}
