//! `docs/reference/configuration.md`: the keys of `controller --config` as a reading asks for them, and those of
//! `storage.yaml` and `images.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use longshore_node::images::{Image, ImageMount};
use longshore_object_store::StorageConfig;
use longshore_plugins::{ConfigKey, KeyUse};
use longshore_tasks::Settings;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    head, is_in_the_repository,
    markdown::{code, table},
};

mod meanings;

use meanings::{CONNECTION, IMAGE, LIMITS, MOUNT, STORAGE, STOW, file_keys, meanings};

/// Sections that have the keys of another one.
const SHAPES: [(&str, &str); 12] = [
    ("plugins.connector-service.connectors.NAME", CONNECTOR),
    ("plugins.connector-service.connectorApps.NAME", CONNECTOR),
    ("plugins.connector-service.logs", LOGS),
    ("plugins.dask.logs", LOGS),
    ("plugins.ray.logs", LOGS),
    ("plugins.spark.logs.mixed", LOGS),
    ("plugins.spark.logs.user", LOGS),
    ("plugins.spark.logs.system", LOGS),
    ("plugins.spark.logs.all-user", LOGS),
    ("plugins.logs.azure-log-templates[]", LINK),
    ("plugins.logs.dynamic-log-links.NAME", LINK),
    ("plugins.ray.dashboardURLTemplate", LINK),
];
const CONNECTOR: &str = "plugins.connector-service.defaultConnector";
const LOGS: &str = "plugins.logs";
const LINK: &str = "plugins.logs.templates[]";

/// Key, type, default, meaning.
type Row = [String; 4];
const TITLES: [&str; 4] = ["Key", "Type", "Default", "Meaning"];

#[test]
fn the_reference_of_the_configuration_is_what_is_read() {
    is_in_the_repository("docs/reference/configuration.md", &page());
}

#[test]
fn every_key_that_is_read_has_a_meaning_and_every_meaning_a_key() {
    let keys = Settings::keys();
    let read: BTreeSet<&str> = keys
        .iter()
        .filter(|key| matches!(key.key_use, KeyUse::Read { .. }) && twin(key, &keys).is_none())
        .map(|key| key.path.as_str())
        .collect();
    let meant: BTreeSet<&str> = meanings().map(|(path, _)| path).collect();
    assert_eq!(read, meant);
    assert_eq!(meant.len(), meanings().count(), "a key has two meanings");
}

#[test]
fn every_key_of_the_files_is_listed() {
    let of_storage = |section: Value| StorageConfig::of(&section).unwrap_err();
    let of_image = |image: Value| Image::deserialize(&image).unwrap_err().to_string();
    let of_mount = |mount: Value| ImageMount::deserialize(&mount).unwrap_err().to_string();
    let unknown = || json!({"nobody-knows-this": 1});
    for (refused, listed) in [
        (of_storage(unknown()), STORAGE),
        (of_storage(json!({"connection": unknown()})), CONNECTION),
        (of_storage(json!({"stow": unknown()})), STOW),
        (of_storage(json!({"limits": unknown()})), LIMITS),
        (of_image(unknown()), IMAGE),
        (of_mount(unknown()), MOUNT),
    ] {
        let (_, known) = refused.split_once("expected ").unwrap();
        // Serde puts names between backticks. `signedURL` is another spelling of `signedUrl`.
        let known = known.split('`').skip(1).step_by(2);
        let known: BTreeSet<&str> = known.filter(|name| *name != "signedURL").collect();
        let listed = file_keys(listed).into_iter();
        let listed: BTreeSet<&str> = listed.map(|[name, ..]| name).collect();
        assert_eq!(known, listed, "{refused}");
    }
}

fn page() -> String {
    let mut page = head(
        "Configuration files",
        "`longshore controller --config FILE` and `longshore uninstall --config FILE` read the configuration of a Flyte \
         executor; `--set SECTION.KEY=VALUE` and `--SECTION.KEY=VALUE` set one key. Keys count whatever their case. An \
         unknown key in a section that is listed here is an error; other sections are passed over, because they belong to \
         other programs. A plugin that is not listed here is passed over with a warning. `standalone` has the defaults \
         of this page, with `storage.yaml` and `images.yaml` of its data directory.\n\n\
         Durations are written as `1h30m` or `500ms`; a number without unit is nanoseconds. In keys, `NAME` stands for a \
         name of yours, and `[]` for each element of a list. Keys that Flyte does not have are marked with *Ours*.",
    );
    for (section, rows) in sections(&Settings::keys()) {
        page += &format!("\n## `{section}`\n\n{}", table(TITLES, rows));
    }
    page += "\n## `storage`, and the file `storage.yaml`\n\n\
             `standalone` and `run` read `storage.yaml` in the data directory, which has the keys of this section.\n\n";
    let storage = [
        ("", STORAGE),
        ("connection.", CONNECTION),
        ("stow.", STOW),
        ("limits.", LIMITS),
    ];
    page += &table(TITLES, storage.into_iter().flat_map(file_rows));
    page += "\n## The file `images.yaml`\n\n\
             `standalone` and `run` read it in the data directory: it says what images mean on this machine. Each key is \
             a pattern, in which `*` stands for any characters; of those that match an image, the longest counts. An \
             image without an entry is the machine itself.\n\n";
    let image = [("PATTERN.", IMAGE), ("PATTERN.mounts[].", MOUNT)];
    page += &table(TITLES, image.into_iter().flat_map(file_rows));
    page
}

/// The rows of each section, in the order in which the keys are read.
fn sections(keys: &[ConfigKey]) -> Vec<(String, Vec<Row>)> {
    let meanings: BTreeMap<&str, &str> = meanings().collect();
    let mut sections: Vec<(String, Vec<Row>)> = Vec::new();
    let mut shapes = BTreeSet::new();
    for key in keys {
        let row = match twin(key, keys) {
            None => row(key, &meanings),
            Some((shape, like)) if shapes.insert(shape) => shape_row(shape, like, keys),
            Some(_) => continue,
        };
        let name = section_of(&key.path);
        match sections.iter_mut().find(|(section, _)| *section == name) {
            Some((_, rows)) => rows.push(row),
            None => sections.push((name.to_owned(), vec![row])),
        }
    }
    sections
}

/// `plugins.k8s` of `plugins.k8s.co-pilot.cpu`, `executor` of `executor.gc.interval`.
fn section_of(path: &str) -> &str {
    let n_parts = if path.starts_with("plugins.") { 2 } else { 1 };
    let dots = path.match_indices('.').map(|(at, _)| at);
    dots.take(n_parts).last().map_or(path, |at| &path[..at])
}

/// The section of this key and the one that it is like, where that one has the same key.
fn twin(key: &ConfigKey, keys: &[ConfigKey]) -> Option<(&'static str, &'static str)> {
    SHAPES.into_iter().find(|(shape, like)| {
        let rest = key.path.strip_prefix(shape);
        rest.filter(|rest| rest.starts_with('.'))
            .is_some_and(|rest| find(keys, &format!("{like}{rest}")).is_some())
    })
}

fn find<'a>(keys: &'a [ConfigKey], path: &str) -> Option<&'a ConfigKey> {
    keys.iter().find(|key| key.path == path)
}

fn row(key: &ConfigKey, meanings: &BTreeMap<&str, &str>) -> Row {
    let (expected, default, meaning) = match &key.key_use {
        KeyUse::Read { expected, default } => {
            let meaning = meanings.get(key.path.as_str()).copied();
            (
                *expected,
                default.as_str(),
                meaning.unwrap_or_default().to_owned(),
            )
        }
        KeyUse::Unsupported { instead } => ("", "", format!("Not supported: {instead}.")),
    };
    let default = match default {
        "required" => "required".to_owned(),
        default => code(default),
    };
    [code(&key.path), expected.to_owned(), default, meaning]
}

/// A section that is like another one, with the defaults that differ.
fn shape_row(shape: &str, like: &str, keys: &[ConfigKey]) -> Row {
    let of_shape = keys
        .iter()
        .filter_map(|key| Some((key.path.strip_prefix(shape)?.strip_prefix('.')?, key)));
    let differing = of_shape.filter_map(|(rest, key)| {
        let other = find(keys, &format!("{like}.{rest}"))?;
        let default = default_of(key);
        (default != default_of(other)).then(|| format!("`{rest}`: `{default}`"))
    });
    let differing: Vec<String> = differing.collect();
    [
        code(shape),
        "a section".to_owned(),
        differing.join(", "),
        format!("The keys of `{like}`."),
    ]
}

fn default_of(key: &ConfigKey) -> &str {
    match &key.key_use {
        KeyUse::Read { default, .. } => default,
        KeyUse::Unsupported { .. } => "",
    }
}

fn file_rows((prefix, keys): (&str, &'static str)) -> Vec<Row> {
    let row = |[name, expected, default, meaning]: [&str; 4]| {
        let default = match default {
            words if words.contains([' ', '`']) || words == "required" => words.to_owned(),
            value => code(value),
        };
        let name = code(&format!("{prefix}{name}"));
        [name, expected.to_owned(), default, meaning.to_owned()]
    };
    file_keys(keys).into_iter().map(row).collect()
}
