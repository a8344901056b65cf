//! The URLs of inputs and outputs of an attempt (task action spec §10).

use longshore_api::flyte::{self, TaskActionSpec};

use crate::names::fnv1a_32;

/// Where inputs and outputs of an attempt are, as URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// `…/inputs.pb`.
    pub input: String,
    /// The directory of it.
    pub input_prefix: String,
    /// Where `outputs.pb` and `error.pb` of this attempt go.
    pub output_prefix: String,
    /// The prefix of the URLs of large outputs.
    pub raw_output_prefix: String,
    /// `<raw output prefix>/_flytecheckpoints`.
    pub checkpoint: String,
    /// The checkpoint of the attempt before; empty for the first.
    pub previous_checkpoint: String,
}

/// What the paths of an attempt follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The namespace of the TaskAction.
    pub(crate) namespace: &'a str,
    /// The name of the TaskAction.
    pub(crate) name: &'a str,
    /// `spec.actionName` of the TaskAction.
    pub(crate) action_name: &'a str,
    /// `spec.inputUri` of the TaskAction: `inputs.pb` or its directory.
    pub(crate) input_uri: &'a str,
    /// `spec.runOutputBase` of the TaskAction.
    pub(crate) run_output_base: &'a str,
}

impl Paths {
    /// The paths of one attempt of a TaskAction, from 1.
    pub fn of_action(namespace: &str, name: &str, spec: &TaskActionSpec, attempt: u32) -> Self {
        let place = Place {
            namespace,
            name,
            action_name: &spec.action_name,
            input_uri: &spec.input_uri,
            run_output_base: &spec.run_output_base,
        };
        Self::of(place, attempt)
    }

    /// The paths of one attempt, from 1.
    pub(crate) fn of(place: Place<'_>, attempt: u32) -> Self {
        let file = format!("/{}", flyte::FILE_INPUTS);
        let uri = place.input_uri;
        let input_prefix = uri.strip_suffix(&file).unwrap_or(uri).to_owned();
        let output_prefix = output_prefix(place, attempt);
        let previous_checkpoint = if attempt >= 2 {
            checkpoint(&self::output_prefix(place, attempt - 1))
        } else {
            String::new()
        };
        Self {
            input: format!("{}{file}", input_prefix.trim_end_matches('/')),
            input_prefix,
            raw_output_prefix: output_prefix.clone(),
            checkpoint: checkpoint(&output_prefix),
            previous_checkpoint,
            output_prefix,
        }
    }
}

fn checkpoint(output_prefix: &str) -> String {
    format!("{output_prefix}/{}", flyte::DIRECTORY_CHECKPOINTS)
}

/// `<scheme>://<bucket>/<shard>/<path>/<action>/<attempt>`.
fn output_prefix(place: Place<'_>, attempt: u32) -> String {
    let base = place.run_output_base;
    let (bucket, path) = split_bucket(base);
    let path = path.trim_matches('/');
    let separator = if path.is_empty() { "" } else { "/" };
    let shard = shard(place.namespace, place.name);
    let action = place.action_name;
    format!("{bucket}/{shard}{separator}{path}/{action}/{attempt}")
}

/// `s3://bucket/a/b` is `s3://bucket` and `/a/b`; a path without scheme has no bucket.
fn split_bucket(url: &str) -> (&str, &str) {
    let authority = url.find("://").map_or(0, |at| at + "://".len());
    if authority == 0 {
        return ("", url);
    }
    let path = url[authority..]
        .find('/')
        .map_or(url.len(), |at| authority + at);
    url.split_at(path)
}

/// Two characters of `a` to `z` and `0` to `9` that spread the actions over the key space of a bucket.
fn shard(namespace: &str, name: &str) -> String {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let index = fnv1a_32(format!("{namespace}/{name}").as_bytes()) as usize % (36 * 36);
    [index / 36, index % 36]
        .map(|digit| char::from(DIGITS[digit]))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::vectors;

    fn place(run_output_base: &'static str) -> Place<'static> {
        Place {
            namespace: "flyte",
            name: "run1-a0",
            action_name: "a0",
            input_uri: "s3://in/x",
            run_output_base,
        }
    }

    #[test]
    fn output_prefixes_are_upstreams() {
        for vector in vectors()["computeActionOutputPath"].as_array().unwrap() {
            let text = |field: &str| vector[field].as_str().unwrap();
            let place = Place {
                namespace: text("namespace"),
                name: text("name"),
                action_name: text("actionName"),
                input_uri: "",
                run_output_base: text("runOutputBase"),
            };
            let attempt = u32::try_from(vector["attempt"].as_u64().unwrap()).unwrap();
            let paths = Paths::of(place, attempt);
            assert_eq!(paths.output_prefix, text("path"));
            assert_eq!(paths.raw_output_prefix, text("path"));
        }
    }

    #[test]
    fn inputs_are_given_as_file_or_as_directory() {
        for uri in ["s3://in/x", "s3://in/x/inputs.pb"] {
            let place = Place {
                input_uri: uri,
                ..place("s3://flyte-data/org/p/d/run1/")
            };
            let paths = Paths::of(place, 1);
            assert_eq!(paths.input, "s3://in/x/inputs.pb");
            assert_eq!(paths.input_prefix, "s3://in/x");
        }
    }

    #[test]
    fn only_the_first_attempt_has_no_checkpoint_before_it() {
        let place = place("s3://flyte-data/org/p/d/run1/");
        let first = Paths::of(place, 1);
        assert_eq!(
            first.checkpoint,
            "s3://flyte-data/vy/org/p/d/run1/a0/1/_flytecheckpoints"
        );
        assert_eq!(first.previous_checkpoint, "");
        assert_eq!(Paths::of(place, 2).previous_checkpoint, first.checkpoint);
    }
}
