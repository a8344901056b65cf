//! Default values: put where a member is missing and its parent is there.

use serde_json::Value;

use super::schema::Schema;

impl Schema {
    /// Completes a value. Null where the schema has no null counts as missing: it gets the default,
    /// or goes.
    pub(crate) fn set_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, member| {
                    let Some(schema) = self.member(name) else {
                        return true;
                    };
                    !schema.refuses(member) || schema.default.is_some()
                });
                for (name, schema) in &self.properties {
                    let Some(default) = &schema.default else {
                        continue;
                    };
                    let is_missing = members.get(name).is_none_or(|it| schema.refuses(it));
                    if is_missing {
                        members.insert(name.clone(), (**default).clone());
                    }
                }
                for (name, member) in members {
                    if let Some(schema) = self.member(name) {
                        schema.set_own_default(member);
                        schema.set_defaults(member);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.set_own_default(item);
                    schema.set_defaults(item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Replaces a null that the schema has no room for.
    fn set_own_default(&self, value: &mut Value) {
        if let Some(default) = &self.default
            && self.refuses(value)
        {
            *value = (**default).clone();
        }
    }
}
