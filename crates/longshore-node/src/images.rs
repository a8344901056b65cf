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
//! ```

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

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

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// What `image` stands for: the entry with the longest pattern that matches, else the host.
    #[must_use]
    pub fn resolve(&self, image: &str) -> Image {
        self.find(image).cloned().unwrap_or_default()
    }

    /// The entry of `image`, where it has one: then it is known whether the image has an entry point.
    pub(crate) fn find(&self, image: &str) -> Option<&Image> {
        let entries = self.entries.iter();
        entries
            .filter(|(pattern, _)| matches(pattern, image))
            .max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, entry)| entry)
    }
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
