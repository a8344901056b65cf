//! The "common JSON" form of Ben Laurie's objecthash: a hash of what a document says, however it is written.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// A SHA-256.
pub(super) type Hash = [u8; 32];

/// The hash of a document. Every number is a float.
pub(super) fn of(value: &Value) -> Hash {
    match value {
        Value::Null => tagged(b"n", &[]),
        Value::Bool(is_true) => tagged(b"b", if *is_true { b"1" } else { b"0" }),
        Value::Number(number) => tagged(b"f", normal(number.as_f64().unwrap_or(0.0)).as_bytes()),
        Value::String(text) => tagged(b"u", text.as_bytes()),
        Value::Array(values) => {
            let hashes: Vec<Hash> = values.iter().map(of).collect();
            tagged(b"l", hashes.as_flattened())
        }
        Value::Object(fields) => object(fields),
    }
}

fn object(fields: &Map<String, Value>) -> Hash {
    let pair = |(key, value): (&String, &Value)| [tagged(b"u", key.as_bytes()), of(value)];
    let mut pairs: Vec<[Hash; 2]> = fields.iter().map(pair).collect();
    pairs.sort_unstable();
    tagged(b"d", pairs.as_flattened().as_flattened())
}

fn tagged(tag: &[u8], content: &[u8]) -> Hash {
    Sha256::new()
        .chain_update(tag)
        .chain_update(content)
        .finalize()
        .into()
}

/// A float as text that every language writes alike: sign, exponent, and the bits of a mantissa over 1/2 and up to 1.
fn normal(number: f64) -> String {
    if number == 0.0 {
        return "+0:".to_owned();
    }
    let sign = if number < 0.0 { '-' } else { '+' };
    let mut rest = number.abs();
    let mut exponent = 0;
    while rest > 1.0 {
        rest /= 2.0;
        exponent += 1;
    }
    while rest <= 0.5 {
        rest *= 2.0;
        exponent -= 1;
    }
    let mut text = format!("{sign}{exponent}:");
    while rest != 0.0 {
        let is_one = rest >= 1.0;
        text.push(if is_one { '1' } else { '0' });
        rest = (rest - f64::from(is_one)) * 2.0;
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hex(hash: Hash) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn documents_have_the_hashes_that_other_implementations_give_them() {
        let table = include_str!("../../testdata/common_json.test");
        let lines: Vec<&str> = table.lines().collect();
        let lines = lines.iter().filter(|line| !line.is_empty());
        let lines: Vec<&&str> = lines.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 22);
        for pair in lines.chunks(2) {
            let document: Value = serde_json::from_str(pair[0]).unwrap();
            assert_eq!(hex(of(&document)), *pair[1], "of {}", pair[0]);
        }
    }

    #[test]
    fn numbers_are_equal_where_their_values_are() {
        assert_eq!(of(&json!(1)), of(&json!(1.0)));
        assert_eq!(of(&json!(0)), of(&json!(-0.0)));
        assert_ne!(of(&json!(1)), of(&json!("1")));
        for (number, expected) in [
            (0.0, "+0:"),
            (1.0, "+0:1"),
            (-1.0, "-0:1"),
            (1.5, "+1:011"),
            (0.5, "+-1:1"),
            (1000.0, "+10:01111101"),
            (f64::from_bits(1), "+-1074:1"),
        ] {
            assert_eq!(normal(number), expected);
        }
        assert_eq!(normal(f64::MAX).len(), "+1024:".len() + 54);
    }
}
