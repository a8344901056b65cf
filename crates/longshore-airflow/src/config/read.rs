//! Fills a configuration from a file and an environment.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AirflowConfig, ConfigProblem, Fetch, KEYS, Key, Name, Origin, Pending, Setting, Support,
    environment::{self, Variable},
    file::{self, Entry},
    keys,
    problem::closest,
};

/// Makes of a text how a value is got.
type Make = fn(String) -> Fetch;

/// What a name in a section stands for.
enum Found {
    Key,
    Fetched(&'static Key, Make),
    NotSecret(&'static Key),
    UnknownKey,
    UnknownSection,
}

fn find(section: &str, name: &str) -> Found {
    let of_section = || KEYS.iter().filter(|key| key.section() == section);
    let exact = |name: &str| of_section().find(|key| key.name == name);
    if exact(name).is_some() {
        return Found::Key;
    }
    let ends: [(&str, Make); 2] = [("_cmd", Fetch::Command), ("_secret", Fetch::Secret)];
    for (end, fetch) in ends {
        match name.strip_suffix(end).and_then(exact) {
            Some(key) if key.is_secret => return Found::Fetched(key, fetch),
            Some(key) => return Found::NotSecret(key),
            None => {}
        }
    }
    if of_section().next().is_some() {
        Found::UnknownKey
    } else {
        Found::UnknownSection
    }
}

/// Reads the file. A later line wins over an earlier one, and a key over one that is fetched.
pub(super) fn from_file(
    config: &mut AirflowConfig,
    file: &str,
    environment: &BTreeMap<String, String>,
) {
    let mut unknown = BTreeSet::new();
    for entry in file::parse(file) {
        match entry {
            Entry::Setting {
                line,
                section,
                key,
                value,
            } => {
                let origin = Origin::Line(line);
                let name = Name { section, key };
                let value = interpolated(config, &name, &origin, &value);
                let value = expanded(&value, environment);
                set(config, &mut unknown, name, value, origin);
            }
            Entry::Unreadable { line, text } => config.problems.push(ConfigProblem::Unreadable {
                origin: Origin::Line(line),
                text,
            }),
        }
    }
}

/// Reads the environment. A variable wins over the file, one that is fetched too.
pub(super) fn from_environment(config: &mut AirflowConfig, environment: &BTreeMap<String, String>) {
    let mut of_environment = AirflowConfig::default();
    let mut unknown = BTreeSet::new();
    for (variable, value) in environment {
        let origin = Origin::Variable(variable.clone());
        let problems = &mut of_environment.problems;
        match environment::parse(variable) {
            Variable::Foreign => {}
            Variable::Unnamed => problems.push(ConfigProblem::Unnamed { origin }),
            Variable::Team { team, .. } => problems.push(ConfigProblem::Team { origin, team }),
            Variable::Setting { section, key } => {
                let value = expanded(value, environment);
                let name = Name { section, key };
                set(&mut of_environment, &mut unknown, name, value, origin);
            }
        }
    }
    let AirflowConfig {
        settings,
        pending,
        problems,
    } = of_environment;
    for name in pending.keys() {
        config.settings.remove(name);
    }
    for name in settings.keys() {
        config.pending.remove(name);
    }
    config.settings.extend(settings);
    config.pending.extend(pending);
    config.problems.extend(problems);
}

fn set(
    config: &mut AirflowConfig,
    unknown: &mut BTreeSet<String>,
    name: Name,
    text: String,
    origin: Origin,
) {
    match find(&name.section, &name.key) {
        Found::Key => {
            config.pending.remove(&name);
            config.settings.insert(name, Setting { text, origin });
        }
        Found::Fetched(key, fetch) => {
            let name = Name::of(key);
            let fetch = fetch(text);
            // A key comes before a command, and a command before a secret.
            let is_command = matches!(fetch, Fetch::Command(_));
            let is_free = is_command || !config.pending.contains_key(&name);
            if is_free && !config.settings.contains_key(&name) {
                let pending = Pending {
                    name: name.clone(),
                    fetch,
                    origin,
                };
                config.pending.insert(name, pending);
            }
        }
        Found::NotSecret(key) => {
            let name = Name::of(key);
            config
                .problems
                .push(ConfigProblem::NotFetched { origin, name });
        }
        Found::UnknownKey => {
            let of_section = KEYS.iter().filter(|key| key.section() == name.section);
            let suggestion = closest(&name.key, of_section.map(|key| key.name));
            let suggestion = suggestion.map(str::to_owned);
            config.problems.push(ConfigProblem::UnknownKey {
                origin,
                name,
                suggestion,
            });
        }
        Found::UnknownSection => {
            if unknown.insert(name.section.clone()) {
                let sections = KEYS.iter().map(Key::section);
                let suggestion = closest(&name.section, sections).map(str::to_owned);
                config.problems.push(ConfigProblem::UnknownSection {
                    origin,
                    section: name.section,
                    suggestion,
                });
            }
        }
    }
}

/// Tells of each key that is set and has no effect, unless it is set to its default.
pub(super) fn tell_ignored(config: &mut AirflowConfig) {
    tell_ignored_arguments(config);
    for key in KEYS {
        let Support::Instead(instead) = key.support else {
            continue;
        };
        let name = Name::of(key);
        if let Some(Setting { text, origin }) = config.settings.get(&name)
            && !text.trim().eq_ignore_ascii_case(key.default)
        {
            config.problems.push(ConfigProblem::NoEffect {
                origin: origin.clone(),
                name,
                instead,
            });
        }
    }
}

/// Of the arguments of requests, one has an effect.
fn tell_ignored_arguments(config: &mut AirflowConfig) {
    let key = &keys::KUBE_CLIENT_REQUEST_ARGS;
    let Ok(arguments) = config.object(key) else {
        return;
    };
    if arguments.keys().any(|it| it != "_request_timeout") {
        let (_, origin) = config.text(key);
        config.problems.push(ConfigProblem::NoEffect {
            origin: origin.clone(),
            name: Name::of(key),
            instead: "of its members, only `_request_timeout` is used",
        });
    }
}

/// `%%` is a percent sign in the file, as `configparser` has it.
fn interpolated(config: &mut AirflowConfig, name: &Name, origin: &Origin, value: &str) -> String {
    if value.replace("%%", "").contains("%(") {
        config.problems.push(ConfigProblem::Reference {
            origin: origin.clone(),
            name: name.clone(),
        });
    }
    value.replace("%%", "%")
}

/// Replaces `$NAME`, `${NAME}` and a `~` at the beginning. A variable that is not set stays as it is written.
fn expanded(value: &str, environment: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(value.len());
    let mut rest = value;
    if let Some(after) = value.strip_prefix('~')
        && (after.is_empty() || after.starts_with('/'))
        && let Some(home) = environment.get("HOME")
    {
        expanded.push_str(home);
        rest = after;
    }
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (name, end) = variable(after);
        match environment.get(name).filter(|_| !name.is_empty()) {
            Some(text) => {
                expanded.push_str(text);
                rest = &after[end..];
            }
            None => {
                expanded.push('$');
                rest = after;
            }
        }
    }
    expanded.push_str(rest);
    expanded
}

/// The name behind a `$`, and where it ends.
fn variable(text: &str) -> (&str, usize) {
    if let Some((name, _)) = text.strip_prefix('{').and_then(|it| it.split_once('}')) {
        return (name, name.len() + 2);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    (&text[..end], end)
}
