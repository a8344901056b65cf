//! The image map: what an image means on a machine without a registry.
//!
//! ```yaml
//! "registry.example/team/*":
//!   rootfs: /srv/images/team        # default: host
//!   entrypoint: [/bin/tini, --]
//!   command: [serve]
//!   env: {LANG: C.UTF-8}
//!   workdir: /app
//!   mounts: [{host: /srv/models, path: /models, readOnly: true}]
//!   network: pod                    # default: host
//!   hostPorts: [5432]
//!   egress: host                    # default: none
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Most patterns that a Node publishes: an annotation has a limit of size.
const MAX_PUBLISHED: usize = 1000;

/// The image map cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageMapError {
    /// The file cannot be read.
    #[error("cannot read the image map {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: std::io::Error,
    },
    /// The file is not an image map.
    #[error("the image map {} is not valid: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The place in the file, and what is wrong there.
        message: String,
    },
}

/// What happens with images that the map does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnmappedImages {
    /// Their containers run the programs of the machine.
    #[default]
    Run,
    /// Their containers wait, with the reason of a kubelet that cannot pull the image.
    Refuse,
}

/// Image patterns and what they stand for. Without an entry, an image is the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ImageMap {
    entries: BTreeMap<String, Image>,
}

/// The programs of the machine that an image stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Image {
    /// `host` (the default) or a directory that holds a root file system.
    pub rootfs: RootFs,
    /// What runs when the pod has no `command`.
    pub entrypoint: Vec<String>,
    /// The arguments of the program when the pod has neither `command` nor `args`.
    pub command: Vec<String>,
    /// Variables; the pod's win.
    pub env: BTreeMap<String, String>,
    /// The working directory when the pod has none.
    pub workdir: Option<String>,
    /// Host directories and files that come with the image.
    pub mounts: Vec<ImageMount>,
    /// Whose network pods of the image have.
    pub network: NetworkMode,
    /// TCP ports of the host's loopback that a pod with a network finds at its own loopback.
    #[serde(rename = "hostPorts")]
    pub host_ports: Vec<u16>,
    /// What a pod with a network reaches beyond pods, Services and the API server.
    pub egress: Egress,
}

/// The network of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// The host's.
    #[default]
    Host,
    /// One of its own: an address that only other pods and the node reach, and all ports.
    Pod,
}

/// What a pod with a network reaches of other networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// Nothing.
    #[default]
    None,
    /// What the host reaches, by TCP and by name.
    Host,
}

/// The files of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum RootFs {
    /// The host's own, under a private layer.
    #[default]
    Host,
    /// A directory, under a private layer.
    Dir(PathBuf),
}

impl From<String> for RootFs {
    fn from(text: String) -> Self {
        if text == "host" {
            Self::Host
        } else {
            Self::Dir(text.into())
        }
    }
}

/// A bind mount that comes with an image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ImageMount {
    /// The file or directory on the host.
    pub host: PathBuf,
    /// The path in the container.
    pub path: PathBuf,
    /// Whether the container must not write to it.
    #[serde(default)]
    pub read_only: bool,
}

impl ImageMap {
    /// Reads `images.yaml`.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or has an unknown key.
    pub fn load(path: &Path) -> Result<Self, ImageMapError> {
        let text = std::fs::read_to_string(path).map_err(|source| ImageMapError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|message| ImageMapError::Parse {
            path: path.to_owned(),
            message,
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// What `image` stands for: the entry with the longest pattern that matches, else the host.
    #[must_use]
    pub fn resolve(&self, image: &str) -> Image {
        self.find(image).cloned().unwrap_or_default()
    }

    /// The entry of `image`, where it has one: then it is known whether the image has an entry point.
    pub(crate) fn find(&self, image: &str) -> Option<&Image> {
        let pattern = longest_match(self.entries.keys(), image)?;
        self.entries.get(pattern)
    }

    /// The images of a pod that have no entry, each once.
    pub(crate) fn missing<'a>(&self, pod: &'a Pod) -> BTreeSet<&'a str> {
        images_of(pod)
            .filter(|image| self.find(image).is_none())
            .collect()
    }
}

/// The images of a pod's containers.
pub fn images_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    });
    let ephemeral = pod.spec.iter();
    let ephemeral = ephemeral.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let ephemeral = ephemeral.filter_map(|container| container.image.as_deref());
    let containers = containers.filter_map(|container| container.image.as_deref());
    containers.chain(ephemeral)
}

/// What a Node says about images, in an annotation: which ones a running node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeImages {
    /// What happens with others.
    pub unmapped: UnmappedImages,
    /// The patterns of the map.
    pub entries: BTreeSet<String>,
}

impl NodeImages {
    pub(crate) fn of(map: &ImageMap, unmapped: UnmappedImages) -> Self {
        let entries = map.entries.keys().take(MAX_PUBLISHED).cloned().collect();
        Self { unmapped, entries }
    }

    /// The entry that an image has.
    #[must_use]
    pub fn entry_of(&self, image: &str) -> Option<&str> {
        longest_match(&self.entries, image).map(String::as_str)
    }
}

/// Why the image of a container means nothing here; `None` = it does. Whether the node's profile allows what the entry
/// asks for is another question.
pub(crate) fn image_refusal(
    map: &ImageMap,
    unmapped: UnmappedImages,
    container: &Container,
) -> Option<Refusal> {
    let name = container.image.as_deref().unwrap_or_default();
    let refused = |message: String| Some(Refusal::image(&container.name, message));
    let Some(image) = map.find(name) else {
        let has_command = container.command.as_ref().is_some_and(|it| !it.is_empty());
        return match unmapped {
            UnmappedImages::Refuse => refused(format!(
                "image \"{name}\" has no entry in images.yaml, and --images strict refuses it: add \"{name}\": \
                 {{rootfs: DIRECTORY}}, or \"{name}\": {{}} for the programs of this machine, and start Longshore again"
            )),
            UnmappedImages::Run if !has_command => refused(nothing_to_run(name)),
            UnmappedImages::Run => None,
        };
    };
    let words = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    // The arguments alone are the program where the image has no entry point, which only its entry can say.
    if image
        .argv(&words(&container.command), &words(&container.args))
        .is_empty()
    {
        return refused(nothing_to_run(name));
    }
    match &image.rootfs {
        RootFs::Dir(dir) if !dir.is_dir() => refused(format!(
            "images.yaml maps image \"{name}\" to {}, which is no directory",
            dir.display()
        )),
        RootFs::Dir(_) | RootFs::Host => None,
    }
}

fn nothing_to_run(image: &str) -> String {
    format!(
        "there is no registry here, so nothing says what image \"{image}\" runs: set the container's command, or add to \
         images.yaml: \"{image}\": {{entrypoint: [PROGRAM]}}"
    )
}

/// What is said once about an image without an entry.
pub(crate) fn unmapped_note(image: &str) -> String {
    format!(
        "image \"{image}\" has no entry in images.yaml, so its containers run the programs of this machine: add \
         \"{image}\": {{rootfs: DIRECTORY}}, or \"{image}\": {{}} if this is meant; --images strict refuses such images, \
         and `longshore images` lists them"
    )
}

impl Image {
    /// The program and arguments of a container: a pod's `command` replaces entrypoint and command of the
    /// image, its `args` only the command.
    pub(crate) fn argv(&self, command: &[String], args: &[String]) -> Vec<String> {
        let (head, tail) = match (command.is_empty(), args.is_empty()) {
            (true, true) => (&self.entrypoint[..], &self.command[..]),
            (true, false) => (&self.entrypoint[..], args),
            (false, _) => (command, args),
        };
        [head, tail].concat()
    }
}

/// The longest of the patterns that match.
fn longest_match<'a>(
    patterns: impl IntoIterator<Item = &'a String>,
    image: &str,
) -> Option<&'a String> {
    let patterns = patterns.into_iter();
    patterns
        .filter(|pattern| matches(pattern, image))
        .max_by_key(|pattern| pattern.len())
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, image, expected) in [
            ("busybox", "busybox", true),
            ("busybox", "busybox:1", false),
            ("busybox*", "busybox:1", true),
            ("*/airflow:*", "registry/apache/airflow:3.2", true),
            ("*/airflow:*-slim", "registry/apache/airflow:3.2", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, image), expected, "{pattern} {image}");
        }
    }

    #[test]
    fn the_longest_matching_pattern_says_what_an_image_is() {
        let map = ImageMap::parse(
            "'*': {entrypoint: [any]}\n'app:*': {rootfs: /srv/app, workdir: /app, mounts: [{host: /a, path: /b, readOnly: true}]}\n",
        )
        .expect("valid");
        assert_eq!(map.resolve("other").entrypoint, ["any"]);
        let app = map.resolve("app:2");
        assert_eq!(app.rootfs, RootFs::Dir("/srv/app".into()));
        assert!(app.mounts[0].read_only);
        assert_eq!(ImageMap::default().resolve("x"), Image::default());
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let error = ImageMap::parse("app: {root: /x}").expect_err("must not pass");
        assert!(error.contains("root"), "{error}");
    }

    fn container(image: &str, command: &[&str], args: &[&str]) -> Container {
        let list = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Some(words).filter(|words| !words.is_empty())
        };
        Container {
            name: "main".into(),
            image: Some(image.into()),
            command: list(command),
            args: list(args),
            ..Container::default()
        }
    }

    #[test]
    fn an_image_is_refused_that_says_nothing_or_may_not() {
        let map = ImageMap::parse(
            "host: {}\nwhole: {entrypoint: [serve]}\ngone: {rootfs: /no/such/directory, command: [x]}",
        )
        .expect("valid");
        let strict = "has no entry in images.yaml, and --images strict";
        let nothing = "nothing says what image";
        for (image, command, args, run, refuse) in [
            ("other", &["sh"][..], &[][..], "", strict),
            ("other", &[], &[], nothing, strict),
            ("other", &[], &["sh"], nothing, strict),
            ("", &["sh"], &[], "", strict),
            ("host", &["sh"], &[], "", ""),
            ("host", &[], &["sh"], "", ""),
            ("host", &[], &[], nothing, nothing),
            ("whole", &[], &[], "", ""),
            ("gone", &[], &[], "is no directory", "is no directory"),
        ] {
            let container = container(image, command, args);
            for (unmapped, expected) in
                [(UnmappedImages::Run, run), (UnmappedImages::Refuse, refuse)]
            {
                let refusal = image_refusal(&map, unmapped, &container);
                let message = refusal.as_ref().map_or("", |it| it.message.as_str());
                let what = format!("{image:?} {command:?} {args:?} {unmapped:?}: {message}");
                assert_eq!(message.is_empty(), expected.is_empty(), "{what}");
                assert!(message.contains(expected), "{what}");
                if let Some(refusal) = refusal {
                    let now = Timestamp::UNIX_EPOCH;
                    let waiting = refusal.waiting(now, now);
                    assert_eq!(waiting["reason"], "ErrImagePull", "{what}");
                }
            }
        }
    }

    #[test]
    fn a_node_publishes_its_patterns_and_the_longest_one_counts() {
        let map = ImageMap::parse("'*/a:*': {}\n'x/*': {}\n'x/a:1': {}").expect("valid");
        let images = NodeImages::of(&map, UnmappedImages::Refuse);
        let text = serde_json::to_string(&images).expect("JSON");
        assert_eq!(
            text,
            r#"{"unmapped":"refuse","entries":["*/a:*","x/*","x/a:1"]}"#
        );
        let read: NodeImages = serde_json::from_str(&text).expect("the same");
        for (image, entry) in [
            ("x/a:1", Some("x/a:1")),
            ("y/a:1", Some("*/a:*")),
            ("x/b", Some("x/*")),
            ("b", None),
        ] {
            assert_eq!(read.entry_of(image), entry, "{image}");
        }
    }

    #[test]
    fn command_and_args_override_as_in_kubernetes() {
        let image = Image {
            entrypoint: vec!["entry".into()],
            command: vec!["cmd".into()],
            ..Image::default()
        };
        let list = |words: &str| {
            words
                .split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        for (command, args, expected) in [
            ("", "", "entry cmd"),
            ("", "a b", "entry a b"),
            ("c", "", "c"),
            ("c", "a", "c a"),
        ] {
            assert_eq!(image.argv(&list(command), &list(args)), list(expected));
        }
    }
}
