//! Reads the annotations that describe a pod's secrets: protobuf's text format in base 32.

use longshore_api::flyte::ANNOTATION_SECRET_PREFIX;
use longshore_proto::flyteidl2::core::{Secret, secret::MountType};
use serde_json::Value;

use super::SecretError;

/// The secrets that a pod requests, in the order of their numbers.
///
/// # Errors
/// Where an annotation is not what the executor writes.
pub fn requested_secrets(pod: &Value) -> Result<Vec<Secret>, SecretError> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let mut secrets = Vec::new();
    for (annotation, value) in annotations.into_iter().flatten() {
        let number = annotation.strip_prefix(ANNOTATION_SECRET_PREFIX);
        let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        let secret = decode(value.as_str().unwrap_or_default());
        let secret = secret.map_err(|why| SecretError::BadAnnotation {
            annotation: annotation.clone(),
            why,
        })?;
        secrets.push((number, secret));
    }
    secrets.sort_by_key(|(number, _)| *number);
    Ok(secrets.into_iter().map(|(_, secret)| secret).collect())
}

/// The secret of an annotation's value, or why it is none.
pub(super) fn decode(value: &str) -> Result<Secret, String> {
    let bytes = base32(value).ok_or("it is not base 32")?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let mut secret = Secret::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (field, after) = rest.split_once(':').ok_or("a field has no value")?;
        let (value, after) = token(after.trim_start())?;
        match (field.trim_end(), value) {
            ("group", Token::Text(text)) => secret.group = text,
            ("group_version", Token::Text(text)) => secret.group_version = text,
            ("key", Token::Text(text)) => secret.key = text,
            ("env_var", Token::Text(text)) => secret.env_var = text,
            ("mount_requirement", Token::Word(word)) => {
                let mount = MountType::from_str_name(word)
                    .or_else(|| MountType::try_from(word.parse::<i32>().ok()?).ok());
                let mount = mount.ok_or_else(|| format!("{word} is no mount requirement"))?;
                secret.mount_requirement = mount.into();
            }
            (field, _) => return Err(format!("its field {field:?} is not one of a secret")),
        }
        rest =
            after.trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ';'));
    }
    Ok(secret)
}

/// A value in the text format.
enum Token<'a> {
    Text(String),
    Word(&'a str),
}

/// The first value, and what follows it.
fn token(text: &str) -> Result<(Token<'_>, &str), String> {
    let Some(quote @ ('"' | '\'')) = text.chars().next() else {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        return Ok((Token::Word(word), rest));
    };
    let mut bytes = Vec::new();
    let mut at = 1;
    let source = text.as_bytes();
    loop {
        match source.get(at) {
            None => return Err("a text has no end".to_owned()),
            Some(b'\\') => {
                let (escaped, length) = escaped(&source[at + 1..]).ok_or("an escape is unknown")?;
                bytes.push(escaped);
                at += 1 + length;
            }
            Some(byte) if char::from(*byte) == quote => break,
            Some(byte) => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    let value = String::from_utf8(bytes).map_err(|_| "a text is not UTF-8")?;
    Ok((Token::Text(value), &text[at + 1..]))
}

/// The byte of an escape, and how long that is without its backslash. Writers escape bytes, never characters.
fn escaped(source: &[u8]) -> Option<(u8, usize)> {
    let first = *source.first()?;
    let simple = match first {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'\\' | b'"' | b'\'' => first,
        b'0'..=b'7' => {
            let digits = source
                .iter()
                .take(3)
                .take_while(|it| (b'0'..=b'7').contains(it));
            let digits: Vec<u32> = digits.map(|it| u32::from(it - b'0')).collect();
            let value = digits.iter().fold(0, |value, digit| value * 8 + digit);
            return Some((u8::try_from(value).ok()?, digits.len()));
        }
        b'x' => {
            let digits = source[1..]
                .iter()
                .take(2)
                .take_while(|it| it.is_ascii_hexdigit());
            let digits: String = digits.map(|it| char::from(*it)).collect();
            return Some((u8::from_str_radix(&digits, 16).ok()?, 1 + digits.len()));
        }
        _ => return None,
    };
    Some((simple, 1))
}

/// Upstream's base 32: `a` to `z`, then `1` to `6`, without padding.
fn base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let mut waiting: u32 = 0;
    let mut n_bits = 0;
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'a'..=b'z' => digit - b'a',
            b'1'..=b'6' => digit - b'1' + 26,
            _ => return None,
        };
        waiting = waiting << 5 | u32::from(value);
        n_bits += 5;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((waiting >> n_bits & 255) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{fixtures::vectors, names, secrets::to_text};

    #[test]
    fn upstreams_annotations_are_read() {
        let pod = json!({"metadata": {"annotations": vectors()["secretAnnotations"]}});
        let secrets = requested_secrets(&pod).unwrap();
        let first = Secret {
            key: "my-key".to_owned(),
            mount_requirement: MountType::EnvVar.into(),
            env_var: "MYVAR".to_owned(),
            ..Secret::default()
        };
        let second = Secret {
            group: "g".to_owned(),
            key: "k2".to_owned(),
            mount_requirement: MountType::File.into(),
            ..Secret::default()
        };
        assert_eq!(secrets, [first, second]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for key in ["k", "", "é\"\n\\\t'", "a b:c;", "\u{1}9"] {
            let secret = Secret {
                group: key.to_owned(),
                group_version: "1".to_owned(),
                key: key.to_owned(),
                mount_requirement: MountType::File.into(),
                env_var: key.to_owned(),
            };
            let text = to_text(&secret).unwrap();
            assert_eq!(
                decode(&names::base32(text.as_bytes())),
                Ok(secret),
                "{text}"
            );
        }
    }

    #[test]
    fn spaces_and_numbers_are_no_difference() {
        for text in [
            "key:  \"k\"  mount_requirement:  FILE",
            "key:'k', mount_requirement:2",
            "\n key : \"\\x6b\" ; mount_requirement: FILE\n",
            "mount_requirement: FILE key: \"\\153\"",
        ] {
            let secret = decode(&names::base32(text.as_bytes())).unwrap();
            assert_eq!(
                (secret.key.as_str(), secret.mount_requirement),
                ("k", 2),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_with_its_reason() {
        for (text, expected) in [
            ("key", "a field has no value"),
            ("key: \"k", "a text has no end"),
            ("key: \"\\q\"", "an escape is unknown"),
            ("key: \"\\777\"", "an escape is unknown"),
            ("key: \"\\377\"", "a text is not UTF-8"),
            ("lock: \"k\"", "its field \"lock\" is not one of a secret"),
            ("mount_requirement: NAIL", "NAIL is no mount requirement"),
        ] {
            let error = decode(&names::base32(text.as_bytes())).unwrap_err();
            assert_eq!(error, expected, "{text}");
        }
        assert_eq!(decode("A").unwrap_err(), "it is not base 32");
        let pod = json!({"metadata": {"annotations": {"flyte.secrets/s7": "!"}}});
        let error = requested_secrets(&pod).unwrap_err();
        assert!(error.to_string().contains("flyte.secrets/s7"), "{error}");
    }
}
