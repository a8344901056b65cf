//! ConfigMaps and Secrets: `stringData`, immutability and the size limit.

use serde_json::{Map, Value};

use crate::server::{error::Cause, meta};

/// Largest sum of values, in bytes.
const SIZE_LIMIT: usize = 1024 * 1024;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Secrets: `stringData` moves into `data`, the type is `Opaque` unless given.
pub(super) fn prepare(object: &mut Value) {
    if meta::text(object, "/kind") != "Secret" {
        return;
    }
    let members = meta::members(object);
    members.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(texts)) = members.remove("stringData") else {
        return;
    };
    let data = meta::member(object, "data");
    for (key, text) in texts {
        data.insert(
            key,
            encode_base64(text.as_str().unwrap_or("").as_bytes()).into(),
        );
    }
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let sextet = usize::try_from((bits >> (18 - 6 * index)) & 63).unwrap_or(0);
            let is_padding = index > chunk.len();
            out.push(if is_padding {
                '='
            } else {
                char::from(BASE64[sextet])
            });
        }
    }
    out
}

/// What is wrong with the data.
pub(super) fn violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let empty = Map::new();
    let values = |key: &str| {
        new.get(key)
            .and_then(Value::as_object)
            .unwrap_or(&empty)
            .clone()
    };
    let is_secret = meta::text(new, "/kind") == "Secret";
    let size_of = |key: &str, is_encoded: bool| -> usize {
        let lengths = values(key)
            .values()
            .filter_map(Value::as_str)
            .map(str::len)
            .sum::<usize>();
        if is_encoded { lengths / 4 * 3 } else { lengths }
    };
    if size_of("data", is_secret) + size_of("binaryData", true) > SIZE_LIMIT {
        causes.push(Cause::too_long(
            if is_secret { "data" } else { "" },
            SIZE_LIMIT,
        ));
    }
    let Some(old) = old else { return causes };
    if is_secret && new.get("type") != old.get("type") {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if new.get("immutable") != Some(&Value::Bool(true)) {
            let why = "field is immutable when `immutable` is set";
            causes.push(Cause::forbidden("immutable", why));
        }
        for key in ["data", "binaryData"] {
            if new.get(key) != old.get(key) {
                let why = "field is immutable when `immutable` is set";
                causes.push(Cause::forbidden(key, why));
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_the_standard_says() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode_base64(text.as_bytes()), expected);
        }
    }
}
