//! Reads sections of the peer's configuration. A key that the code reads is known; every other key is reported.

use std::{collections::BTreeMap, fmt, time::Duration};

use longshore_k8s::Quantity;
use serde_json::Value;

use super::{
    duration,
    keys::{ConfigKey, KeyUse, duration_text, map_text, nothing},
};

/// How many letters a suggestion may differ in.
const MAX_DISTANCE: usize = 3;

/// Something in the configuration that cannot be what was meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    /// Nothing has this name.
    #[error("{path} is unknown{}", suggest(.suggestion.as_deref()))]
    UnknownKey {
        /// Of the key, as `plugins.k8s.default-cpu`.
        path: String,
        /// What it may have been meant to be.
        suggestion: Option<String>,
    },
    /// The value is of another kind.
    #[error("{path}: expected {expected}, found {found}")]
    WrongValue {
        /// The path of the key.
        path: String,
        /// The values that it can have, in words.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
    /// A section that cannot be used as a whole.
    #[error("{path}: {why}")]
    Unusable {
        /// The path of the section.
        path: String,
        /// What is wrong with the section.
        why: String,
    },
}

fn suggest(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

/// Something in the configuration that upstream knows, and that is done otherwise here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The path of the key.
    pub path: String,
    /// What Longshore does instead.
    pub instead: String,
}

/// The findings of a reading.
#[derive(Clone, Debug, Default)]
pub struct ConfigReport {
    /// Values that are wrong.
    pub problems: Vec<ConfigProblem>,
    /// Settings that have another effect here than with the peer.
    pub warnings: Vec<ConfigWarning>,
    /// The keys that the code has read, where the report records them.
    keys: Option<Vec<ConfigKey>>,
}

impl ConfigReport {
    /// A report that records each key that the code reads. Such a reading also enters sections that
    /// the document does not have.
    pub fn recording() -> Self {
        Self {
            keys: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Whether keys are recorded.
    pub fn is_recording(&self) -> bool {
        self.keys.is_some()
    }

    /// The recorded keys, in the order in which the code read them.
    pub fn into_keys(self) -> Vec<ConfigKey> {
        self.keys.unwrap_or_default()
    }

    /// Records a key that is read without a [`Section`]; nothing where keys are not recorded.
    pub fn record(&mut self, path: &str, expected: &'static str, default: impl fmt::Display) {
        let default = default.to_string();
        self.record_use(path.to_owned(), KeyUse::Read { expected, default });
    }

    fn record_use(&mut self, path: String, key_use: KeyUse) {
        if let Some(keys) = &mut self.keys {
            keys.push(ConfigKey { path, key_use });
        }
    }

    /// Reads a section of a whole document, if it is there.
    pub fn section(
        &mut self,
        document: &Value,
        name: &'static str,
        read: impl FnOnce(&mut Section<'_>),
    ) {
        let nothing = nothing();
        let section = crate::proto_json::field(document, name);
        if let Some(section) = section.or(self.is_recording().then_some(&nothing)) {
            Section::read(section, name, self, read);
        }
    }
}

/// A section that is being read. Keys count whatever their case, as upstream's loader has them.
#[derive(Debug)]
pub struct Section<'a> {
    path: String,
    value: &'a Value,
    known: Vec<&'static str>,
    report: &'a mut ConfigReport,
}

impl<'a> Section<'a> {
    /// Reads a section with `read`, and reports the keys that `read` did not read.
    pub fn read(
        value: &'a Value,
        path: impl Into<String>,
        report: &'a mut ConfigReport,
        read: impl FnOnce(&mut Section<'_>),
    ) {
        let path = path.into();
        if value.is_null() {
            return;
        }
        let mut section = Section {
            path,
            value,
            known: Vec::new(),
            report,
        };
        if !value.is_object() {
            let path = section.path.clone();
            section.wrong(path, "a section", value);
            return;
        }
        read(&mut section);
        section.refuse_unknown();
    }

    fn refuse_unknown(&mut self) {
        let keys: Vec<&String> = self
            .value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            if self
                .known
                .iter()
                .any(|known| known.eq_ignore_ascii_case(key))
            {
                continue;
            }
            let lower = key.to_lowercase();
            let near = self
                .known
                .iter()
                .map(|known| (strsim::osa_distance(&lower, &known.to_lowercase()), known))
                .filter(|(distance, _)| *distance <= MAX_DISTANCE)
                .min();
            self.report.problems.push(ConfigProblem::UnknownKey {
                path: format!("{}.{key}", self.path),
                suggestion: near.map(|(_, known)| (*known).to_owned()),
            });
        }
    }

    fn find(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        let value: &'a Value = self.value;
        let fields = value.as_object()?;
        let (_, value) = fields
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(key))?;
        Some(value).filter(|value| !value.is_null())
    }

    /// Records a key with its default.
    fn declare(&mut self, key: &'static str, expected: &'static str, default: impl fmt::Display) {
        if self.report.is_recording() {
            let path = format!("{}.{key}", self.path);
            self.report.record(&path, expected, default);
        }
    }

    fn wrong(&mut self, path: String, expected: &'static str, found: &Value) {
        self.report.problems.push(ConfigProblem::WrongValue {
            path,
            expected,
            found: found.to_string(),
        });
    }

    /// Reads a key into its place, if it is there. The caller has declared the key.
    fn set<T>(
        &mut self,
        key: &'static str,
        place: &mut T,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) {
        let Some(value) = self.find(key) else {
            return;
        };
        match read(value) {
            Some(read) => *place = read,
            None => self.wrong(format!("{}.{key}", self.path), expected, value),
        }
    }

    /// A text; numbers and flags are texts too.
    pub fn text(&mut self, key: &'static str, place: &mut String) {
        let expected = "a text";
        self.declare(key, expected, &*place);
        self.set(key, place, expected, scalar);
    }

    /// One of several names.
    pub fn choice<T: fmt::Display>(
        &mut self,
        key: &'static str,
        place: &mut T,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) {
        self.declare(key, expected, &*place);
        self.set(key, place, expected, |value| read(value.as_str()?));
    }

    /// One of several texts, some of which mean none.
    pub fn option_choice<T>(
        &mut self,
        key: &'static str,
        place: &mut Option<T>,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<Option<T>>,
    ) {
        self.declare(key, expected, "");
        self.set(key, place, expected, |value| read(value.as_str()?));
    }

    /// An empty text is none.
    pub fn option(&mut self, key: &'static str, place: &mut Option<String>) {
        let expected = "a text";
        self.declare(key, expected, place.as_deref().unwrap_or_default());
        self.set(key, place, expected, |value| {
            scalar(value).map(|text| Some(text).filter(|text| !text.is_empty()))
        });
    }

    /// True or false.
    pub fn flag(&mut self, key: &'static str, place: &mut bool) {
        let expected = "true or false";
        self.declare(key, expected, *place);
        self.set(key, place, expected, flag);
    }

    /// True or false, or nothing said.
    pub fn option_flag(&mut self, key: &'static str, place: &mut Option<bool>) {
        let expected = "true or false";
        self.declare(key, expected, "");
        self.set(key, place, expected, |value| flag(value).map(Some));
    }

    /// A whole number.
    pub fn number<T: TryFrom<i64> + fmt::Display>(&mut self, key: &'static str, place: &mut T) {
        let expected = "a whole number";
        self.declare(key, expected, &*place);
        self.set(key, place, expected, |value| {
            T::try_from(value.as_i64()?).ok()
        });
    }

    /// A whole number, or nothing said.
    pub fn option_number<T: TryFrom<i64>>(&mut self, key: &'static str, place: &mut Option<T>) {
        let expected = "a whole number";
        self.declare(key, expected, "");
        self.set(key, place, expected, |value| {
            T::try_from(value.as_i64()?).ok().map(Some)
        });
    }

    /// An amount of Kubernetes, as `500m`.
    pub fn quantity(&mut self, key: &'static str, place: &mut String) {
        let expected = "an amount as \"500m\" or \"2Gi\"";
        self.declare(key, expected, &*place);
        self.set(key, place, expected, |value| {
            scalar(value).filter(|text| Quantity::parse(text).is_some())
        });
    }

    /// A duration as Go writes it, or nanoseconds.
    pub fn duration(&mut self, key: &'static str, place: &mut Duration) {
        let expected = "a duration as \"1m30s\"";
        self.declare(key, expected, duration_text(*place));
        self.set(key, place, expected, duration_of);
    }

    /// Durations by name.
    pub fn durations(&mut self, key: &'static str, place: &mut BTreeMap<String, Duration>) {
        let expected = "durations as \"1m30s\" by name";
        self.declare(key, expected, map_text(place, |it| duration_text(*it)));
        self.set(key, place, expected, |value| {
            let durations = value.as_object()?.iter();
            durations
                .map(|(name, value)| Some((name.clone(), duration_of(value)?)))
                .collect()
        });
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str, place: &mut Vec<String>) {
        let expected = "a list of texts";
        self.declare(key, expected, place.join(", "));
        self.set(key, place, expected, |value| {
            value.as_array()?.iter().map(scalar).collect()
        });
    }

    /// A map of texts, or a list of such maps, which is how upstream keeps the case of the keys.
    pub fn map(&mut self, key: &'static str, place: &mut BTreeMap<String, String>) {
        let expected = "texts by name";
        self.declare(key, expected, map_text(place, Clone::clone));
        self.set(key, place, expected, map);
    }

    /// A part of the Kubernetes API, as it is.
    pub fn object(&mut self, key: &'static str, place: &mut Option<Value>) {
        let expected = "an object";
        let default = place.as_ref().map(Value::to_string);
        self.declare(key, expected, default.unwrap_or_default());
        self.set(key, place, expected, |value| {
            value.is_object().then(|| Some(value.clone()))
        });
    }

    /// A list of parts of the Kubernetes API, as they are.
    pub fn objects(&mut self, key: &'static str, place: &mut Vec<Value>) {
        let expected = "a list of objects";
        let default: Vec<String> = place.iter().map(Value::to_string).collect();
        self.declare(key, expected, default.join(", "));
        self.set(key, place, expected, objects);
    }

    /// Lists of parts of the Kubernetes API by name.
    pub fn objects_by_name(&mut self, key: &'static str, place: &mut BTreeMap<String, Vec<Value>>) {
        let expected = "lists of objects by name";
        let text = |list: &Vec<Value>| Value::from(list.clone()).to_string();
        self.declare(key, expected, map_text(place, text));
        self.set(key, place, expected, |value| {
            let lists = value.as_object()?.iter();
            lists
                .map(|(name, list)| Some((name.clone(), objects(list)?)))
                .collect()
        });
    }

    /// A section in this one.
    pub fn section(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>)) {
        let (nothing, is_recording) = (nothing(), self.report.is_recording());
        let value: Option<&Value> = self.find(key);
        if let Some(value) = value.or(is_recording.then_some(&nothing)) {
            let path = format!("{}.{key}", self.path);
            Section::read(value, path, self.report, read);
        }
    }

    /// Sections in this one, by a name that is the user's.
    pub fn sections(&mut self, key: &'static str, mut read: impl FnMut(&str, &mut Section<'_>)) {
        if self.report.is_recording() {
            let (nothing, path) = (nothing(), format!("{}.{key}.NAME", self.path));
            Section::read(&nothing, path, self.report, |section| read("NAME", section));
        }
        let Some(value) = self.find(key) else {
            return;
        };
        let Some(sections) = value.as_object() else {
            self.wrong(format!("{}.{key}", self.path), "sections by name", value);
            return;
        };
        for (name, value) in sections {
            let path = format!("{}.{key}.{name}", self.path);
            Section::read(value, path, self.report, |section| read(name, section));
        }
    }

    /// A list of sections.
    pub fn list(&mut self, key: &'static str, mut read: impl FnMut(&mut Section<'_>)) {
        if self.report.is_recording() {
            let (nothing, path) = (nothing(), format!("{}.{key}[]", self.path));
            Section::read(&nothing, path, self.report, &mut read);
        }
        let Some(value) = self.find(key) else {
            return;
        };
        let Some(sections) = value.as_array() else {
            self.wrong(format!("{}.{key}", self.path), "a list of sections", value);
            return;
        };
        for (at, value) in sections.iter().enumerate() {
            let path = format!("{}.{key}[{at}]", self.path);
            Section::read(value, path, self.report, &mut read);
        }
    }

    /// One of several names, which has to be there.
    pub fn required<T: fmt::Display>(
        &mut self,
        key: &'static str,
        place: &mut T,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) {
        if self.report.is_recording() {
            self.declare(key, expected, "required");
        } else if self.find(key).is_some() {
            self.choice(key, place, expected, read);
        } else {
            self.wrong(format!("{}.{key}", self.path), expected, &Value::Null);
        }
    }

    /// A key of upstream's that changes nothing here.
    pub fn unsupported(&mut self, key: &'static str, instead: &str) {
        if self.report.is_recording() {
            let (path, instead) = (format!("{}.{key}", self.path), instead.to_owned());
            let key_use = KeyUse::Unsupported { instead };
            self.report.record_use(path, key_use);
        }
        if self.find(key).is_some() {
            self.differs(key, instead);
        }
    }

    /// A key of upstream's whose value means something else here.
    pub fn differs(&mut self, key: &'static str, instead: impl Into<String>) {
        self.report.warnings.push(ConfigWarning {
            path: format!("{}.{key}", self.path),
            instead: instead.into(),
        });
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn duration_of(value: &Value) -> Option<Duration> {
    match value.as_str() {
        Some(text) => duration::parse(text),
        // A plain number is nanoseconds, as upstream.
        None => value.as_u64().map(Duration::from_nanos),
    }
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn objects(value: &Value) -> Option<Vec<Value>> {
    let list = value.as_array()?;
    list.iter().all(Value::is_object).then(|| list.clone())
}

fn map(value: &Value) -> Option<BTreeMap<String, String>> {
    let maps = value.as_array().map(Vec::as_slice);
    let maps = maps.unwrap_or(std::slice::from_ref(value));
    let mut texts = BTreeMap::new();
    for map in maps {
        for (name, value) in map.as_object()? {
            texts.insert(name.clone(), scalar(value)?);
        }
    }
    Some(texts)
}
