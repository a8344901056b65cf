//! Lists and maps in one value: `a;b`, `k:v,k2:v2`, `k:v,k2:v2;k:w` (upstream: `StructuredOptionsSplitter`).

use std::collections::BTreeMap;

use super::value::{FromConf, InvalidValue};

/// One part of a text between delimiters.
enum Token {
    Quoted(String),
    Plain(String),
    Delimiter,
}

/// Splits a text at a delimiter. Blanks around an element do not count; an element in `'` or `"` may hold the
/// delimiter, and holds its own quote when that is written twice. `None` where the quoting is broken.
fn split(text: &str, delimiter: char) -> Option<Vec<String>> {
    let tokens = tokenize(text, delimiter)?;
    let mut parts = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        match (token, next) {
            (Token::Quoted(part), None | Some(Token::Delimiter)) | (Token::Plain(part), _) => {
                parts.push(part.clone());
            }
            (Token::Quoted(_), Some(Token::Quoted(_) | Token::Plain(_))) => return None,
            (Token::Delimiter, Some(Token::Delimiter)) => parts.push(String::new()),
            (Token::Delimiter, None | Some(Token::Quoted(_) | Token::Plain(_))) => {}
        }
    }
    Some(parts)
}

fn tokenize(text: &str, delimiter: char) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = if first == '\'' || first == '"' {
            let (part, after) = quoted(after, first)?;
            tokens.push(Token::Quoted(part));
            after
        } else if first == delimiter {
            tokens.push(Token::Delimiter);
            after
        } else if first.is_whitespace() {
            after
        } else {
            let end = rest.find(delimiter).unwrap_or(rest.len());
            tokens.push(Token::Plain(rest[..end].trim().to_owned()));
            &rest[end..]
        };
    }
    Some(tokens)
}

/// The text up to the closing quote, and what follows it; `None` where it is not closed.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let at = rest.find(quote)?;
        part.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix(quote) {
            Some(after) => {
                part.push(quote);
                rest = after;
            }
            None => return Some((part, rest)),
        }
    }
}

/// An element as it must be written between these delimiters.
///
/// Upstream does not quote an empty element, nor blanks at the ends of one, and Flink then reads another list: an
/// argument is lost. Quoted, Flink reads the same list.
fn escape(element: &str, delimiter: char) -> String {
    let is_trimmed = element.trim().len() == element.len();
    if element.is_empty() || !is_trimmed || element.contains([delimiter, '\'', '"']) {
        format!("'{}'", element.replace('\'', "''"))
    } else {
        element.to_owned()
    }
}

/// Writes a list: `a;b`.
#[must_use]
pub fn write_list<'a>(elements: impl IntoIterator<Item = &'a str>) -> String {
    let escaped: Vec<String> = elements
        .into_iter()
        .map(|element| escape(element, ';'))
        .collect();
    escaped.join(";")
}

/// Writes a map: `k:v,k2:v2`, in the order of the pairs.
#[must_use]
pub fn write_map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let escaped: Vec<String> = pairs
        .into_iter()
        .map(|(key, value)| escape(&format!("{}:{}", escape(key, ':'), escape(value, ':')), ','))
        .collect();
    escaped.join(",")
}

impl FromConf for Vec<String> {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        split(text, ';')
            .ok_or_else(|| InvalidValue::new("a list such as `a;b`, with closed quotes", text))
    }
}

impl FromConf for BTreeMap<String, String> {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        let error = || {
            InvalidValue::new(
                "a map such as `key:value,key2:value2`, with closed quotes",
                text,
            )
        };
        let mut map = Self::new();
        for item in split(text, ',').ok_or_else(error)? {
            match split(&item, ':').ok_or_else(error)?.as_slice() {
                [key, value] => {
                    map.insert(key.clone(), value.clone());
                }
                _ => return Err(error()),
            }
        }
        Ok(map)
    }
}

/// A list of maps, as of tolerations: `key:a,effect:NoSchedule;key:b`.
impl FromConf for Vec<BTreeMap<String, String>> {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        let items = Vec::<String>::from_conf(text)?;
        items.iter().map(|item| BTreeMap::from_conf(item)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_list_is_read_as_it_was_written(list in prop::collection::vec("[ -~\\n]{0,6}", 0..5)) {
            let written = write_list(list.iter().map(String::as_str));
            prop_assert_eq!(Vec::<String>::from_conf(&written), Ok(list));
        }

        #[test]
        fn every_map_is_read_as_it_was_written(
            map in prop::collection::btree_map("[ -~]{0,5}", "[ -~]{0,5}", 0..4)
        ) {
            let pairs = map.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            prop_assert_eq!(BTreeMap::from_conf(&write_map(pairs)), Ok(map));
        }
    }

    #[test]
    fn texts_are_split_at_delimiters_outside_of_quotes() {
        for (text, parts) in [
            ("A;B;C", Some(vec!["A", "B", "C"])),
            ("'A;B';C", Some(vec!["A;B", "C"])),
            ("\"AB'D\";B;C", Some(vec!["AB'D", "B", "C"])),
            ("\"AB'\"\"D;B\";C", Some(vec!["AB'\"D;B", "C"])),
            ("A'C;D", Some(vec!["A'C", "D"])),
            ("  A  ;  'B ' ;C", Some(vec!["A", "B ", "C"])),
            ("A;;B", Some(vec!["A", "", "B"])),
            (";A;", Some(vec!["A"])),
            ("", Some(vec![])),
            ("''", Some(vec![""])),
            ("'A", None),
            ("'A'B;C", None),
            ("'A''", None),
        ] {
            let found = split(text, ';');
            let found = found
                .as_ref()
                .map(|parts| parts.iter().map(String::as_str).collect());
            assert_eq!(found, parts, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let elements = ["--a", "b c", "it's", "x;y", "\"q\"", "k:v,w", "", " z"];
        let written = write_list(elements);
        assert_eq!(written, "--a;b c;'it''s';'x;y';'\"q\"';k:v,w;'';' z'");
        assert_eq!(Vec::<String>::from_conf(&written).unwrap(), elements);

        let map = BTreeMap::from([
            ("a".to_owned(), "1".to_owned()),
            ("example.com/x".to_owned(), "http://h:80/,'q'".to_owned()),
        ]);
        let written = write_map(
            map.iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        assert_eq!(written, "a:1,'example.com/x:''http://h:80/,''''q'''''''");
        assert_eq!(BTreeMap::from_conf(&written), Ok(map));
    }

    #[test]
    fn maps_have_a_value_for_each_key() {
        let tolerations = Vec::<BTreeMap<String, String>>::from_conf(
            "key:a,operator:Exists;key:b,effect:NoSchedule",
        );
        let found: Vec<usize> = tolerations.unwrap().iter().map(BTreeMap::len).collect();
        assert_eq!(found, [2, 2]);
        for text in ["a", "a:b:c", "a:b,c", "'a:b"] {
            assert!(BTreeMap::from_conf(text).is_err(), "{text}");
        }
    }
}
