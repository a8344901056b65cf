//! Flink's configuration: its values, its files, the layers of the operator, and the effective configuration of a
//! deployment.
//!
//! A [`FlinkConfig`] holds every value as the text that a user would write into `flink-conf.yaml`; an option ([`Key`],
//! [`Defaulted`]) gives it a type when it is read. Read [`effective`] for what a deployment runs with.

use std::collections::BTreeMap;

pub mod duration;
pub mod effective;
pub mod format;
pub mod layers;
pub mod memory_size;
pub mod operator;
pub mod options;
pub mod structured;
pub mod value;

pub use memory_size::MemorySize;
pub use value::{Defaulted, FromConf, InvalidOption, InvalidValue, Key};

/// A flat configuration: keys with dots, each with its text. The keys are sorted, so that equal configurations are
/// written as equal bytes (upstream keeps them in the order of a hash table).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlinkConfig(BTreeMap<String, String>);

impl FlinkConfig {
    /// A configuration without a key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of a key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Sets the text of a key.
    pub fn set_text(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.0.insert(key.into(), text.into());
    }

    /// Removes a key and returns its text.
    pub fn remove_text(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// All keys with their texts, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the keys for which this holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Takes over every key of another configuration, whose values win.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend(
            other
                .0
                .iter()
                .map(|(key, text)| (key.clone(), text.clone())),
        );
    }

    /// Whether the option is set, under its key or an older one.
    #[must_use]
    pub fn contains<T>(&self, option: &Key<T>) -> bool {
        self.entry(option).is_some()
    }

    /// The value of an option, `None` where it is not set.
    ///
    /// # Errors
    /// [`InvalidOption`] where the text is no value of the option's type.
    pub fn find<T: FromConf>(&self, option: &Key<T>) -> Result<Option<T>, InvalidOption> {
        self.entry(option)
            .map(|(key, text)| typed(key, text))
            .transpose()
    }

    /// The value of an option, or its default.
    ///
    /// # Errors
    /// [`InvalidOption`] where the text is no value of the option's type.
    pub fn get<T: FromConf>(&self, option: &Defaulted<T>) -> Result<T, InvalidOption> {
        let (key, text) = self
            .entry(&option.key)
            .unwrap_or((option.key.name, option.default));
        typed(key, text)
    }

    /// Sets an option, under the key that Flink documents. The older keys of it stay, and no longer count.
    pub fn set<T>(&mut self, option: &Key<T>, text: impl Into<String>) {
        self.set_text(option.name, text);
    }

    /// Sets an option unless it is set.
    pub fn set_default<T>(&mut self, option: &Key<T>, text: impl Into<String>) {
        if !self.contains(option) {
            self.set(option, text);
        }
    }

    /// Removes an option with all its keys.
    pub fn remove<T>(&mut self, option: &Key<T>) {
        for name in option.names() {
            self.0.remove(name);
        }
    }

    /// The value of an option that is a map: the pairs of its own key, or else every key below it (`a.b.x: y` is the
    /// pair `x: y` of `a.b`). Empty where it is not set.
    ///
    /// # Errors
    /// [`InvalidOption`] where the text is no map.
    pub fn map(
        &self,
        option: &Key<BTreeMap<String, String>>,
    ) -> Result<BTreeMap<String, String>, InvalidOption> {
        if let Some(map) = self.find(option)? {
            return Ok(map);
        }
        let below = |name: &str| -> BTreeMap<String, String> {
            let prefix = format!("{name}.");
            self.below(&prefix)
                .map(|(rest, text)| (rest.to_owned(), text.to_owned()))
                .collect()
        };
        let found = option.names().map(below).find(|map| !map.is_empty());
        Ok(found.unwrap_or_default())
    }

    /// Sets an option that is a map, in place of any keys below it.
    pub fn set_map(
        &mut self,
        option: &Key<BTreeMap<String, String>>,
        map: &BTreeMap<String, String>,
    ) {
        let prefix = format!("{}.", option.name);
        self.0.retain(|key, _| !key.starts_with(&prefix));
        let pairs = map
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        self.set(option, structured::write_map(pairs));
    }

    /// What follows this prefix in each key that has it, with its text.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .range(prefix.to_owned()..)
            .map_while(move |(key, text)| Some((key.strip_prefix(prefix)?, text.as_str())))
    }

    /// The key under which an option is set, and its text.
    fn entry<T>(&self, option: &Key<T>) -> Option<(&str, &str)> {
        option.names().find_map(|name| {
            let (key, text) = self.0.get_key_value(name)?;
            Some((key.as_str(), text.as_str()))
        })
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for FlinkConfig {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(key, text)| (key.into(), text.into()))
                .collect(),
        )
    }
}

fn typed<T: FromConf>(key: &str, text: &str) -> Result<T, InvalidOption> {
    T::from_conf(text).map_err(|why| InvalidOption {
        key: key.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Defaulted<i32> =
        Key::with_older("new.slots", &["old.slots", "older.slots"]).or("1");
    const LABELS: Key<BTreeMap<String, String>> = Key::new("x.labels");

    fn config(pairs: &[(&str, &str)]) -> FlinkConfig {
        pairs.iter().copied().collect()
    }

    #[test]
    fn an_option_is_found_under_its_key_then_under_the_older_ones() {
        for (pairs, found) in [
            (vec![], 1),
            (vec![("older.slots", "4")], 4),
            (vec![("older.slots", "4"), ("old.slots", "3")], 3),
            (vec![("old.slots", "3"), ("new.slots", "2")], 2),
        ] {
            assert_eq!(config(&pairs).get(&SLOTS), Ok(found), "{pairs:?}");
        }
        let error = config(&[("old.slots", "two")]).get(&SLOTS).unwrap_err();
        assert_eq!(error.key, "old.slots");
    }

    #[test]
    fn a_set_option_wins_over_its_older_keys() {
        let mut found = config(&[("old.slots", "3")]);
        found.set_default(&SLOTS.key, "5");
        assert_eq!(found.get(&SLOTS), Ok(3));
        found.set(&SLOTS.key, "5");
        assert_eq!(found.get(&SLOTS), Ok(5));
        found.remove(&SLOTS.key);
        assert!(found.is_empty());
    }

    #[test]
    fn a_map_is_one_value_or_the_keys_below_it() {
        let mut found = config(&[
            ("x.labels.a", "1"),
            ("x.labels.b.c", "2"),
            ("x.labelsd", "3"),
        ]);
        let below = found.map(&LABELS).unwrap();
        assert_eq!(
            below.into_iter().collect::<Vec<_>>(),
            [
                ("a".to_owned(), "1".to_owned()),
                ("b.c".to_owned(), "2".to_owned())
            ]
        );

        found.set_map(
            &LABELS,
            &BTreeMap::from([("e".to_owned(), "f:g".to_owned())]),
        );
        assert_eq!(
            found,
            config(&[("x.labels", "'e:''f:g'''"), ("x.labelsd", "3")])
        );
        assert_eq!(found.map(&LABELS).unwrap()["e"], "f:g");
    }

    #[test]
    fn merged_values_win() {
        let mut found = config(&[("a", "1"), ("b", "1")]);
        found.merge(&config(&[("b", "2"), ("c", "2")]));
        assert_eq!(found, config(&[("a", "1"), ("b", "2"), ("c", "2")]));
    }
}
