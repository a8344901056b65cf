//! Templates as values: when two are equal, and their names. Pure.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Characters of hashes: none of them makes a word.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The same value with sorted keys and without nulls, which stand for nothing.
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().filter(|(_, it)| !it.is_null()).collect();
            sorted.sort_by_key(|(key, _)| *key);
            let canonical = sorted
                .into_iter()
                .map(|(key, it)| (key.clone(), canonical(it)));
            canonical.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Up to ten letters that stand for a text.
pub(crate) fn letters(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let number = digest
        .iter()
        .take(4)
        .fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    let digits = number.to_string();
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    digits.bytes().map(letter).collect()
}
