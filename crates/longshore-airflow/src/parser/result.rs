//! What a parser has found in one file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{ParseRequest, reply};
use crate::{api::UtcDateTime, serialized::Document};

/// What a parser has found in one file. Its paths are from the bundle's root.
///
/// The file has been parsed for good: what an earlier result said about it, and this one does not, is no more.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsingResult {
    /// The DAGs, in the order of the file.
    pub dags: Vec<ParsedDag>,
    /// What could not be imported, or read, by path: a traceback as a rule. A member of a zip archive has a path of its
    /// own below that of the archive.
    pub import_errors: BTreeMap<String, String>,
    /// What a user should know of a DAG that works.
    pub warnings: Vec<DagWarning>,
}

/// A DAG of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedDag {
    /// The DAG.
    pub document: Document,
    /// When the parser made it.
    pub last_loaded: Option<UtcDateTime>,
}

/// A warning about a DAG.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct DagWarning {
    /// The DAG.
    pub dag_id: String,
    /// The kind: `runtime varying value`, ….
    pub warning_type: String,
    /// For people.
    pub message: String,
}

/// The body as it is written.
#[derive(Deserialize)]
struct Body {
    serialized_dags: Vec<Serialized>,
    warnings: Option<Vec<Value>>,
    import_errors: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Serialized {
    data: Value,
    #[serde(default)]
    last_loaded: Option<UtcDateTime>,
}

impl ParsingResult {
    /// The `type` of the message.
    pub const TYPE: &str = "DagFileParsingResult";

    /// The body of the answer, after which the parser ends.
    #[must_use]
    pub fn reply() -> Value {
        reply::ok()
    }

    /// Reads the body of a frame. A DAG that cannot be read is an import error of its file, and the others count.
    ///
    /// # Errors
    /// The body has another form.
    pub(super) fn read(body: Value, request: &ParseRequest) -> Result<Self, serde_json::Error> {
        let body: Body = serde_json::from_value(body)?;
        let errors = body.import_errors.unwrap_or_default().into_iter();
        let mut import_errors: BTreeMap<String, String> = errors
            .map(|(path, text)| (request.relative(&path).to_owned(), text))
            .collect();
        let mut dags = Vec::new();
        for Serialized { data, last_loaded } in body.serialized_dags {
            let text = |name: &str| data["dag"][name].as_str().map(str::to_owned);
            let (dag_id, path) = (text("dag_id"), text("relative_fileloc"));
            match Document::read(data) {
                Ok(document) => dags.push(ParsedDag {
                    document,
                    last_loaded,
                }),
                Err(why) => {
                    let path = path.unwrap_or_else(|| request.relative_path().to_owned());
                    let dag_id = dag_id.unwrap_or_else(|| "without an id".to_owned());
                    let line = format!("DAG `{dag_id}`: {why}");
                    add_line(import_errors.entry(path).or_default(), &line);
                }
            }
        }
        let warnings = body.warnings.unwrap_or_default().into_iter();
        let warnings = warnings.filter_map(|it| serde_json::from_value(it).ok());
        Ok(Self {
            dags,
            import_errors,
            warnings: warnings.collect(),
        })
    }

    /// What is known of a file whose parser did not come to a result: why is its import error.
    #[must_use]
    pub fn failed(request: &ParseRequest, why: String) -> Self {
        Self {
            dags: Vec::new(),
            import_errors: BTreeMap::from([(request.relative_path().to_owned(), why)]),
            warnings: Vec::new(),
        }
    }
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}
