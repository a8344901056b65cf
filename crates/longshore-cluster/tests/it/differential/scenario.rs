//! The requests: data in files, one for each subject.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

/// Where requests and answers are.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/differential")
}

/// Requests about one thing, in order, in a namespace of their own.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// One request.
///
/// In the path and the body `${name}` stands for a saved value, `${ns}` for the subject's
/// namespace, `${core}`, `${apps}`, `${batch}`, `${rbac}` for the start of paths in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Step {
    /// What the request tries, unique in its file.
    pub(super) name: String,
    /// Method and path.
    pub(super) request: String,
    /// Content type, or a short name of one.
    #[serde(rename = "type", default)]
    pub(super) content_type: Option<String>,
    /// `Accept`, or a short name of one.
    #[serde(default)]
    pub(super) accept: Option<String>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    /// A body as it is.
    #[serde(default)]
    pub(super) raw: Option<String>,
    /// Members of the body that are filled with so many bytes, by JSON pointer.
    #[serde(default)]
    pub(super) fill: BTreeMap<String, usize>,
    /// Values of the answer that later requests name, by JSON pointer.
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
    /// Values of the answer that are different each time, by JSON pointer.
    #[serde(default)]
    pub(super) mask: Vec<String>,
    /// The only parts of a long answer that are compared, by JSON pointer.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// In whose name the request is sent; none for the administrator.
    #[serde(rename = "as", default)]
    pub(super) acting: Option<String>,
    /// The groups of that user.
    #[serde(default)]
    pub(super) groups: Vec<String>,
    /// Further headers of that user, after `Impersonate-`.
    #[serde(default)]
    pub(super) identity: BTreeMap<String, String>,
    /// How many events of a watch are read.
    #[serde(default)]
    pub(super) events: Option<usize>,
    /// Ask again until this is the code.
    #[serde(default)]
    pub(super) until: Option<u16>,
}

impl Subject {
    /// Every subject, by name.
    pub(super) fn all() -> Vec<Subject> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "yaml")
            })
            .collect();
        paths.sort();
        paths.iter().map(|path| Subject::read(path)).collect()
    }

    fn read(path: &Path) -> Subject {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(path).unwrap();
        // A label value `y` is a text.
        let options = serde_saphyr::options! { strict_booleans: true };
        let steps: Vec<Step> = serde_saphyr::from_str_with_options(&text, options)
            .map_err(|error| format!("{}: {error}", path.display()))
            .unwrap();
        let subject = Subject { name, steps };
        let ids: BTreeSet<String> = subject.ids().collect();
        assert_eq!(
            ids.len(),
            subject.steps.len(),
            "names twice in {}",
            path.display()
        );
        subject
    }

    /// Whether its requests are about webhooks, so that the test has to serve one: `${hook}` stands
    /// for the address, `${ca}` for the authority.
    pub(super) fn needs_judge(&self) -> bool {
        let names_it = |body: &Value| body.to_string().contains("${hook}");
        self.steps
            .iter()
            .any(|step| step.body.as_ref().is_some_and(names_it))
    }

    /// The names of its requests in records and tables.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| self.id(step))
    }

    pub(super) fn id(&self, step: &Step) -> String {
        format!("{}: {}", self.name, step.name)
    }
}
