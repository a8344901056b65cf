//! The API against upstream's OpenAPI documents, and against exchanges of the unmodified task SDK.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::*;

mod bodies;
mod openapi;
mod recorded;
mod sample;

/// What a type makes of a value: it reads it, and writes it again.
fn through<T: Serialize + DeserializeOwned>(value: Value) -> Value {
    let read: T =
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    serde_json::to_value(read).unwrap()
}
