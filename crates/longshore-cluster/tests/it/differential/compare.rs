//! What is different between two answers, and where.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

/// One difference.
#[derive(Debug)]
pub(super) struct Found {
    /// Name of the request.
    pub(super) id: String,
    /// JSON pointer into the answer.
    pub(super) pointer: String,
    kubernetes: Option<Value>,
    here: Option<Value>,
}

impl Found {
    /// A request whose answer by a real server is not known.
    pub(super) fn unrecorded(id: &str) -> Found {
        Found {
            id: id.to_owned(),
            pointer: String::new(),
            kubernetes: Some(
                "not recorded: run the test on a real server with LONGSHORE_RECORD=1".into(),
            ),
            here: None,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| {
            value
                .as_ref()
                .map_or("nothing".to_owned(), Value::to_string)
        };
        write!(
            f,
            "{} {}\n  kubernetes: {}\n  here:       {}",
            self.id,
            self.pointer,
            show(&self.kubernetes),
            show(&self.here)
        )
    }
}

/// The differences between two masked answers.
pub(super) fn compare(id: &str, kubernetes: &Value, here: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    descend(id, String::new(), Some(kubernetes), Some(here), &mut found);
    found
}

fn descend(
    id: &str,
    pointer: String,
    kubernetes: Option<&Value>,
    here: Option<&Value>,
    found: &mut Vec<Found>,
) {
    match (kubernetes, here) {
        (Some(Value::Object(theirs)), Some(Value::Object(ours))) => {
            let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            for key in keys {
                let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                descend(id, pointer, theirs.get(key), ours.get(key), found);
            }
        }
        (Some(Value::Array(theirs)), Some(Value::Array(ours))) => {
            for index in 0..theirs.len().max(ours.len()) {
                let pointer = format!("{pointer}/{index}");
                descend(id, pointer, theirs.get(index), ours.get(index), found);
            }
        }
        (theirs, ours) if theirs == ours => {}
        (theirs, ours) => found.push(Found {
            id: id.to_owned(),
            pointer,
            kubernetes: theirs.cloned(),
            here: ours.cloned(),
        }),
    }
}
