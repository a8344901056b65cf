//! Names of objects and values of labels as Airflow makes them, from texts that may hold anything.
//!
//! All of them are functions of their input alone: a creation that is repeated after a crash has the same name.

use longshore_core::names::suffix;
use md5::{Digest, Md5};

/// Longest value of a label, and longest name of most objects.
const MAX_LABEL: usize = 63;
/// How much of a changed text stays in a label value, before its hash.
const LABEL_STEM: usize = 53;
/// Hexadecimal digits of the hash in a label value.
const LABEL_HASH: usize = 9;
/// Characters of a name's [`suffix`].
const SUFFIX: usize = 8;

/// A value that is allowed in a label and differs for different texts, exactly as Airflow makes it.
///
/// A text that is allowed already stays; any other loses what is not allowed and gains a piece of its hash. One
/// difference: upstream makes an invalid value (a leading `-`) of a text without any ASCII letter or digit; ours gets
/// an `x` in front.
pub fn label_value(text: &str) -> String {
    let allowed: String = text
        .chars()
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        .collect();
    let allowed = allowed.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    if allowed == text && allowed.len() <= MAX_LABEL {
        return allowed.to_owned();
    }
    let stem = &allowed[..allowed.len().min(LABEL_STEM)];
    let hash = hex(&Md5::digest(text.as_bytes()));
    let first = if stem.is_empty() { "x" } else { stem };
    format!("{first}-{}", &hash[..LABEL_HASH])
}

/// The part of a pod's name that people recognise: DAG and task, transliterated as Airflow does it, at most 63
/// characters. Empty if the ids hold nothing that can be transliterated.
pub fn pod_base_name(dag_id: &str, task_id: &str) -> String {
    let slug = slug(&format!("{dag_id}-{task_id}"));
    cut(&slug, MAX_LABEL).to_owned()
}

/// The name of the pod of one launch of one task instance.
///
/// The suffix follows from the identity, so a repeated creation meets its own pod.
pub fn pod_name(dag_id: &str, task_id: &str, task_instance_id: &str, launch: u32) -> String {
    let base = pod_base_name(dag_id, task_id);
    let suffix = suffix(&format!("{task_instance_id}/{launch}"));
    with_suffix(&base, &suffix)
}

/// The name of an object that the pods of one run share: what it is for, and a hash of the run's address.
pub fn run_object_name(dag_id: &str, run_id: &str, purpose: &str) -> String {
    // Both ids are free text: without the length, a/b + c and a + b/c would share their objects.
    let identity = format!("{}/{dag_id}/{run_id}/{purpose}", dag_id.len());
    with_suffix(&slug(&format!("{dag_id}-{purpose}")), &suffix(&identity))
}

fn with_suffix(base: &str, suffix: &str) -> String {
    let stem = cut(base, MAX_LABEL - SUFFIX - 1);
    if stem.is_empty() {
        // A name starts with a letter or digit.
        format!("x-{suffix}")
    } else {
        format!("{stem}-{suffix}")
    }
}

fn cut(name: &str, length: usize) -> &str {
    name[..name.len().min(length)].trim_matches(['-', '.'])
}

/// Lower-case ASCII letters, digits and single dashes.
fn slug(text: &str) -> String {
    // An apostrophe that the user wrote separates words, one that the transliteration made (a soft sign) does not.
    let ascii: String = text
        .chars()
        .flat_map(|c| {
            if c.is_ascii() {
                c.to_string()
            } else {
                deunicode::deunicode_char(c)
                    .unwrap_or_default()
                    .replace('\'', "")
            }
            .into_bytes()
        })
        .map(char::from)
        .collect();
    let words: Vec<String> = ascii
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn vectors(text: &str) -> Vec<Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn label_values_are_airflows() {
        for vector in vectors(include_str!("../../testdata/executor/label-values.json")) {
            let text = vector["in"].as_str().unwrap();
            let upstream = vector["label"].as_str().unwrap();
            let expected = if upstream.starts_with('-') {
                format!("x{upstream}")
            } else {
                upstream.to_owned()
            };
            assert_eq!(label_value(text), expected, "of {text:?}");
        }
    }

    #[test]
    fn pod_base_names_are_airflows() {
        for vector in vectors(include_str!("../../testdata/executor/pod-names.json")) {
            let dag_id = vector["dag_id"].as_str().unwrap_or_default();
            let task_id = vector["task_id"].as_str().unwrap_or_default();
            let expected = vector["base_name"].as_str().unwrap();
            assert_eq!(pod_base_name(dag_id, task_id), expected);
        }
    }

    #[test]
    fn pod_names_follow_from_the_launch() {
        let id = "01a1fb91-1df8-7778-b405-15c59206e630";
        let first = pod_name("etl", "extract", id, 1);
        assert_eq!(first, pod_name("etl", "extract", id, 1));
        assert_ne!(first, pod_name("etl", "extract", id, 2));
        assert_ne!(first, pod_name("etl", "extract", "another", 1));
        assert_eq!(first.len(), "etl-extract-".len() + SUFFIX);
        assert!(first.starts_with("etl-extract-"), "{first}");
    }

    #[test]
    fn names_are_allowed_whatever_the_ids_are() {
        let long = "a".repeat(300);
        for id in ["a", "--", "", "影", "\u{0378}", "Ünï.code_", &long] {
            for name in [pod_name(id, id, id, 1), run_object_name(id, id, "files")] {
                assert!(name.len() <= MAX_LABEL, "{name}");
                assert!(
                    name.bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                    "{name}"
                );
                assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
            }
        }
    }

    #[test]
    fn runs_do_not_share_objects() {
        let names = [
            run_object_name("a", "b", "files"),
            run_object_name("a", "b", "workspace"),
            run_object_name("a", "c", "files"),
            run_object_name("a/b", "c", "files"),
            run_object_name("a", "b/c", "files"),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} twice");
        }
    }
}
