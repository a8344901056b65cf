//! Flink's configuration files: the flat `flink-conf.yaml` of Flink 1.x and the standard `config.yaml` of 2.x (spec
//! 13.3, 13.5; upstream: `GlobalConfiguration`, `YamlParserUtils`).

use serde_json::Value;

use super::{FlinkConfig, structured};

mod standard;

pub use standard::write_standard;

/// Name of the file that Flink before 2.0 reads.
pub const FLAT_FILE: &str = "flink-conf.yaml";
/// Name of the file that Flink 2.0 and later reads.
pub const STANDARD_FILE: &str = "config.yaml";

/// A configuration that cannot be read or written as a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A text that is not YAML, or not a mapping.
    #[error("expected a YAML mapping of configuration keys, found: {0}")]
    NotYaml(String),
    /// Nested YAML cannot hold a key that has a value and keys below it (the message is upstream's).
    #[error(
        "Overlapping key prefixes detected ({short} -> {long}), please replace with Flink v2 compatible, non-deprecated keys."
    )]
    Overlap {
        /// The key with a value.
        short: String,
        /// A key below it.
        long: String,
    },
}

/// A configuration as a flat file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatFile {
    /// The content of the file.
    pub text: String,
    /// Keys whose values Flink 1.x does not read whole, because they hold a `#` or a line break.
    pub cut: Vec<String>,
}

/// Reads a directory of configuration: the flat file, or else the standard one (upstream:
/// `GlobalConfiguration.loadConfiguration` of Flink 1.20, which the operator is built upon). Empty without either.
///
/// # Errors
/// [`FormatError::NotYaml`] for a standard file that is not one.
pub fn read_directory(
    flat: Option<&str>,
    standard: Option<&str>,
) -> Result<FlinkConfig, FormatError> {
    match (flat, standard) {
        (Some(flat), _) => Ok(read_flat(flat)),
        (None, Some(standard)) => read_standard(standard),
        (None, None) => Ok(FlinkConfig::new()),
    }
}

/// Reads a flat file: one `key: value` a line, `#` starts a comment anywhere, a later line wins. Lines without a key or
/// a value do not count, as in Flink.
#[must_use]
pub fn read_flat(text: &str) -> FlinkConfig {
    text.lines()
        .flat_map(|line| line.split('\r'))
        .filter_map(|line| {
            let content = line.split('#').next().unwrap_or_default().trim();
            let (key, value) = content.split_once(": ")?;
            let (key, value) = (key.trim(), value.trim());
            (!key.is_empty() && !value.is_empty()).then_some((key, value))
        })
        .collect()
}

/// Writes a flat file.
///
/// A value with a line break is written up to it: that is what Flink reads of it, and the rest would be lines of their
/// own, with keys that nobody set.
#[must_use]
pub fn write_flat(config: &FlinkConfig) -> FlatFile {
    let mut text = String::new();
    let mut cut = Vec::new();
    for (key, value) in config.iter() {
        let value = value.trim_end_matches(['\n', '\r']);
        let line = value.split(['\n', '\r']).next().unwrap_or_default();
        if line.len() < value.len() || line.contains('#') {
            cut.push(key.to_owned());
        }
        text.push_str(key);
        text.push_str(": ");
        text.push_str(line);
        text.push('\n');
    }
    FlatFile { text, cut }
}

/// Reads a standard YAML file: nested mappings, flat keys, or both. Lists become `a;b`.
///
/// # Errors
/// [`FormatError::NotYaml`] for a text that is not YAML, has a key twice, or is not a mapping.
pub fn read_standard(text: &str) -> Result<FlinkConfig, FormatError> {
    let parsed: Value =
        serde_saphyr::from_str(text).map_err(|error| FormatError::NotYaml(error.to_string()))?;
    match parsed {
        Value::Null => Ok(FlinkConfig::new()),
        Value::Object(_) => {
            let mut config = FlinkConfig::new();
            flatten_into(&mut config, "", &parsed);
            Ok(config)
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(FormatError::NotYaml("a single value".to_owned()))
        }
    }
}

fn flatten_into(config: &mut FlinkConfig, key: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            config.set_text(key, scalar(value));
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(element).collect();
            let text = structured::write_list(elements.iter().map(String::as_str));
            config.set_text(key, text);
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let below = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                flatten_into(config, &below, field);
            }
        }
    }
}

/// An element of a list: a scalar, or a map in Flink's own notation.
fn element(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let pairs: Vec<(&str, String)> = fields
                .iter()
                .map(|(key, value)| (key.as_str(), scalar(value)))
                .collect();
            structured::write_map(pairs.iter().map(|(key, value)| (*key, value.as_str())))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            scalar(value)
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> FlinkConfig {
        pairs.iter().copied().collect()
    }

    #[test]
    fn a_flat_file_is_read_line_by_line() {
        let text = "###########\n# a comment\nmykey1: myvalue1\nmykey2       : myvalue2\nmykey3:myvalue3\n \
            some nonsense\n :  \n   \nmykey4: myvalue4# a comment\n   mykey5    :    myvalue5    \nmykey6: my: \
            value6\nmykey7: \n: myvalue8\nmykey9: myvalue9\r\nmykey9: myvalue10\r\n";
        assert_eq!(
            read_flat(text),
            config(&[
                ("mykey1", "myvalue1"),
                ("mykey2", "myvalue2"),
                ("mykey4", "myvalue4"),
                ("mykey5", "myvalue5"),
                ("mykey6", "my: value6"),
                ("mykey9", "myvalue10"),
            ])
        );
    }

    #[test]
    fn a_flat_file_says_what_flink_will_not_read_of_it() {
        let written = write_flat(&config(&[
            ("$internal.application.program-args", ""),
            ("env.java.opts.all", "-Xa\n-Xb: c\n"),
            ("pipeline.name", "a #1"),
            ("taskmanager.memory.process.size", "1 gb\n"),
        ]));
        assert_eq!(
            written.text,
            "$internal.application.program-args: \nenv.java.opts.all: -Xa\npipeline.name: a \
             #1\ntaskmanager.memory.process.size: 1 gb\n"
        );
        assert_eq!(written.cut, ["env.java.opts.all", "pipeline.name"]);
        assert_eq!(
            read_flat(&written.text),
            config(&[
                ("env.java.opts.all", "-Xa"),
                ("pipeline.name", "a"),
                ("taskmanager.memory.process.size", "1 gb"),
            ])
        );
    }

    #[test]
    fn the_flat_file_of_a_directory_counts() {
        let (flat, standard) = (Some("a: flat # x"), Some("a: standard # x"));
        for (flat, standard, expected) in [
            (flat, standard, config(&[("a", "flat")])),
            (None, standard, config(&[("a", "standard")])),
            (None, None, config(&[])),
        ] {
            assert_eq!(read_directory(flat, standard), Ok(expected));
        }
    }

    #[test]
    fn a_standard_file_may_be_nested_or_flat() {
        let text = "taskmanager:\n  numberOfTaskSlots: 2\n  memory.process.size: 1728m\nrest.port: '8081'\nhigh: \
            {availability: {type: kubernetes}}\nempty: ~\nflag: true\nlist: [a, 'b;c', 3]\nmaps: [{a: 1, b: x}]\n";
        assert_eq!(
            read_standard(text),
            Ok(config(&[
                ("flag", "true"),
                ("high.availability.type", "kubernetes"),
                ("list", "a;'b;c';3"),
                ("maps", "a:1,b:x"),
                ("rest.port", "8081"),
                ("taskmanager.memory.process.size", "1728m"),
                ("taskmanager.numberOfTaskSlots", "2"),
            ]))
        );
        assert_eq!(read_standard("# nothing\n"), Ok(FlinkConfig::new()));
        for text in ["- a", "a", "a: 1\na: 2", "a: [", "a: b: c"] {
            assert!(read_standard(text).is_err(), "{text:?}");
        }
    }
}
