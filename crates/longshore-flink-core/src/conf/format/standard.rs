//! Writing `config.yaml`: nested by the dots of the keys, every value a string unless it is a list.

use std::{collections::BTreeMap, fmt::Write};

use super::FormatError;
use crate::conf::{FlinkConfig, FromConf, options};

/// A level of the nested mapping. Its parts are sorted, as the keys are.
#[derive(Default)]
struct Level<'a>(BTreeMap<&'a str, Part<'a>>);

enum Part<'a> {
    Level(Level<'a>),
    Text(&'a str),
    List(Vec<String>),
}

/// Writes a configuration as nested YAML.
///
/// A value that YAML would read as something else than a text is quoted. Program arguments become a YAML list; Flink
/// would read an argument such as `[a]` as a list of its own otherwise. The other lists keep the notation `a;b`, which
/// Flink 2.x reads too.
///
/// # Errors
/// [`FormatError::Overlap`] where a key has a value and keys below it.
pub fn write_standard(config: &FlinkConfig) -> Result<String, FormatError> {
    let mut root = Level::default();
    for (key, text) in config.iter() {
        check_overlap(config, key)?;
        root.insert(key, part(key, text));
    }
    let mut written = String::new();
    root.write(&mut written, 0);
    Ok(written)
}

fn check_overlap(config: &FlinkConfig, key: &str) -> Result<(), FormatError> {
    let shorter = key.match_indices('.').map(|(at, _)| &key[..at]);
    match shorter
        .into_iter()
        .find(|short| config.text(short).is_some())
    {
        Some(short) => Err(FormatError::Overlap {
            short: short.to_owned(),
            long: key.to_owned(),
        }),
        None => Ok(()),
    }
}

fn part<'a>(key: &str, text: &'a str) -> Part<'a> {
    if key == options::PROGRAM_ARGS.name
        && let Ok(list) = Vec::from_conf(text)
    {
        return Part::List(list);
    }
    Part::Text(text)
}

impl<'a> Level<'a> {
    fn insert(&mut self, key: &'a str, part: Part<'a>) {
        match key.split_once('.') {
            None => {
                self.0.insert(key, part);
            }
            Some((name, rest)) => {
                let below = self
                    .0
                    .entry(name)
                    .or_insert_with(|| Part::Level(Self::default()));
                match below {
                    Part::Level(level) => level.insert(rest, part),
                    // `check_overlap` has refused a key below a value.
                    Part::Text(_) | Part::List(_) => {}
                }
            }
        }
    }

    fn write(&self, written: &mut String, depth: usize) {
        for (name, part) in &self.0 {
            let indent = "  ".repeat(depth);
            written.push_str(&indent);
            written.push_str(&scalar(name));
            match part {
                Part::Level(level) => {
                    written.push_str(":\n");
                    level.write(written, depth + 1);
                }
                Part::Text(text) => {
                    written.push_str(": ");
                    written.push_str(&scalar(text));
                    written.push('\n');
                }
                Part::List(elements) if elements.is_empty() => written.push_str(": []\n"),
                Part::List(elements) => {
                    written.push_str(":\n");
                    for element in elements {
                        written.push_str(&indent);
                        written.push_str("- ");
                        written.push_str(&scalar(element));
                        written.push('\n');
                    }
                }
            }
        }
    }
}

/// A text as a YAML scalar: plain where every version of YAML reads the same text, quoted otherwise.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.chars().all(is_printable) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        double_quoted(text)
    }
}

/// Texts that YAML 1.1 or 1.2 reads as a boolean or as nothing.
const RESERVED: [&str; 11] = [
    "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf",
];

fn is_plain(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_' | '$');
    let is_inner = |c: char| c.is_ascii_alphanumeric() || " /_.-:$+@=;,()".contains(c);
    text.starts_with(is_start)
        && text.chars().all(is_inner)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
}

/// Whether a character stands for itself between single quotes.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..) && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if is_printable(c) => quoted.push(c),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conf::format::read_standard;

    fn config(pairs: &[(&str, &str)]) -> FlinkConfig {
        pairs.iter().copied().collect()
    }

    #[test]
    fn keys_are_nested_and_values_are_quoted_where_they_need_it() {
        let written = write_standard(&config(&[
            ("$internal.application.program-args", "--a;b c;'[x]'"),
            (
                "$internal.pipeline.job-id",
                "21082410317657204281234343217175",
            ),
            ("blob.server.port", "6124"),
            ("env.java.opts.all", "-Xa\n-Xb"),
            ("flag", "true"),
            ("kubernetes.cluster-id", "g-app"),
            (
                "kubernetes.jobmanager.annotations",
                "flink.apache.org/generation:2",
            ),
            ("pipeline.name", "it's # 1"),
            ("state.checkpoints.dir", "s3://b/c"),
        ]));
        let expected = "\
$internal:
  application:
    program-args:
    - --a
    - b c
    - '[x]'
  pipeline:
    job-id: '21082410317657204281234343217175'
blob:
  server:
    port: '6124'
env:
  java:
    opts:
      all: \"-Xa\\n-Xb\"
flag: 'true'
kubernetes:
  cluster-id: g-app
  jobmanager:
    annotations: flink.apache.org/generation:2
pipeline:
  name: 'it''s # 1'
state:
  checkpoints:
    dir: s3://b/c
";
        assert_eq!(written.unwrap(), expected.replace("- --a", "- '--a'"));
    }

    #[test]
    fn no_arguments_are_an_empty_list() {
        let written = write_standard(&config(&[("$internal.application.program-args", "")]));
        assert_eq!(
            written.unwrap(),
            "$internal:\n  application:\n    program-args: []\n"
        );
    }

    #[test]
    fn a_key_with_a_value_has_no_keys_below_it() {
        let error = write_standard(&config(&[
            ("state.backend", "rocksdb"),
            ("state.backend.incremental", "true"),
        ]));
        assert_eq!(
            error.unwrap_err().to_string(),
            "Overlapping key prefixes detected (state.backend -> state.backend.incremental), please replace with \
             Flink v2 compatible, non-deprecated keys."
        );
    }

    proptest! {
        #[test]
        fn every_text_is_read_as_it_was_written(text in ".{0,20}", key in "[a-z]{1,3}(\\.[a-z0-9-]{1,3}){0,2}") {
            let config: FlinkConfig = [(key, text)].into_iter().collect();
            prop_assert_eq!(read_standard(&write_standard(&config).unwrap()), Ok(config));
        }
    }
}
