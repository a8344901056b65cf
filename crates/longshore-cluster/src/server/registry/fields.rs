//! Fields that selectors may name.

use serde_json::Value;

/// A selectable field: its label in selectors and where its value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// As written in a selector, `status.phase`.
    pub(crate) label: String,
    pointer: String,
    /// The value that an absent field counts as.
    absent: &'static str,
}

impl Field {
    /// A field whose path is its label.
    pub(super) fn of(label: &str) -> Field {
        let absent = match label {
            "spec.hostNetwork" | "spec.unschedulable" => "false",
            "status.successful" | "status.replicas" => "0",
            _ => "",
        };
        let pointer = match label {
            // Events name their reporter in two generations of fields.
            "source" => "/source/component".to_owned(),
            "status.successful" => "/status/succeeded".to_owned(),
            "status.podIPs" => "/status/podIPs/0/ip".to_owned(),
            path => format!("/{}", path.replace('.', "/")),
        };
        Field {
            label: label.to_owned(),
            pointer,
            absent,
        }
    }

    /// A field at a chain of members.
    pub(crate) fn at(members: &[String]) -> Field {
        let escaped = members
            .iter()
            .map(|it| it.replace('~', "~0").replace('/', "~1"));
        Field {
            label: members.join("."),
            pointer: escaped.fold(String::new(), |path, member| path + "/" + &member),
            absent: "",
        }
    }

    /// The field's value as selectors compare it.
    pub(crate) fn value_in(&self, object: &Value) -> String {
        match object.pointer(&self.pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(value)) => value.to_string(),
            Some(Value::Number(value)) => value.to_string(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => self.absent.to_owned(),
        }
    }
}
